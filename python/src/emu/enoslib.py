"""Slower CPUs for the hosts of an EnOSlib experiment::

    from emu.enoslib import Nodes

    with Nodes(roles["edge"], {"worker": {"speed": "25%"}}, binary="./emu", backup_dir="results") as edge:
        edge.run("worker", "./program")

emu is copied to the hosts where ``binary`` names it; the static one runs on every Linux.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from enoslib.api import actions
from enoslib.service.service import Service

from . import file_text

__all__ = ["Nodes"]


class Nodes(Service):  # type: ignore[misc]  # EnOSlib has no types.
    """The same virtual nodes on some hosts; ``nodes`` and ``classes`` as of ``emu.apply``.

    ``deploy`` makes them and changes nothing where they are already. ``backup`` writes what was asked and delivered to
    ``backup_dir``, a file ``HOST.json`` for each host. ``destroy`` removes them, and kills what runs there. A host that does not
    answer is an error of EnOSlib's, unless its ``on_error_continue`` is passed in ``options``, as other options of
    ``enoslib.api.actions``: ``{"run_as": "root"}``.
    """

    def __init__(
        self,
        hosts: Any,
        nodes: Mapping[str, Mapping[str, Any]],
        *,
        classes: Mapping[str, Mapping[str, Any]] | None = None,
        binary: str | Path | None = None,
        path: str = "/usr/local/bin/emu",
        backup_dir: str | Path = "emu",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._hosts = hosts
        self._text = file_text(nodes, classes)
        self._binary = binary
        self._path = path if binary else "emu"
        self._backup_dir = Path(backup_dir)
        self._options = dict(options or {})

    def _on_hosts(self, *lines: str, stdin: str | None = None) -> Any:
        """Runs lines of the shell on every host; returns EnOSlib's results."""
        with actions(roles=self._hosts, **self._options) as on:
            for line in lines:
                on.shell(line, **({} if stdin is None else {"stdin": stdin}))
        return on.results

    def deploy(self) -> None:
        """Installs emu where a binary is given, and makes the nodes."""
        if self._binary:
            with actions(roles=self._hosts, **self._options) as on:
                on.copy(src=str(Path(self._binary).resolve()), dest=self._path, mode="0755")
        self._on_hosts(f"{self._path} node apply - --quiet", stdin=self._text)

    def run(self, node: str, command: str, background: bool = False) -> Any:
        """Runs a line of the shell on a node of every host; returns EnOSlib's results."""
        on_node = f"{self._path} node exec {shlex.quote(node)} -- sh -c {shlex.quote(command)}"
        return self._on_hosts(f"nohup {on_node} >/dev/null 2>&1 &" if background else on_node)

    def listed(self) -> dict[str, dict[str, Any]]:
        """For each host what ``emu node list --json`` tells."""
        found = self._on_hosts(f"{self._path} node list --json")
        return {one.host: json.loads(one.stdout) for one in found if one.ok()}

    def backup(self) -> None:
        """Writes what was asked and delivered so far."""
        self._backup_dir.mkdir(parents=True, exist_ok=True)
        for host, told in self.listed().items():
            (self._backup_dir / f"{host}.json").write_text(json.dumps(told, indent=2) + "\n")

    def destroy(self) -> None:
        """Removes all nodes of these hosts."""
        names = f"{self._path} node list --json | tr ',{{' '\\n\\n' | sed -n 's/^ *\"name\": *\"\\(.*\\)\"$/\\1/p'"
        gone = f"! command -v {self._path} >/dev/null ||"
        self._on_hosts(f'{gone} for node in $({names}); do {self._path} node remove "$node" --kill || exit; done')

    def __exit__(self, *_: object) -> None:
        # What was delivered is known as long as the nodes are there.
        try:
            self.backup()
        finally:
            self.destroy()
