"""Slower CPUs for the hosts of an EnOSlib experiment::

    from emu.enoslib import Nodes

    with Nodes(roles["edge"], {"worker": {"speed": "25%"}}, binary="./emu", backup_dir="results") as edge:
        edge.run("worker", "./program")

emu is copied to the hosts where ``binary`` names it; the static one runs on every Linux.
"""

from __future__ import annotations

import json
import logging
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

    All nodes of the user on these hosts belong to the service. ``deploy`` makes them, and changes nothing where they are already.
    ``backup`` writes what was asked and delivered to ``backup_dir``, a file ``HOST.json`` for each host. ``destroy`` removes them, and
    kills what runs there. A host that does not answer is an error of EnOSlib's, unless ``options`` has its ``on_error_continue``;
    other options of ``enoslib.api.actions`` go there, too: ``{"run_as": "root"}``.
    """

    def __init__(
        self,
        hosts: Any,
        nodes: Mapping[str, Mapping[str, Any]],
        *,
        classes: Mapping[str, Mapping[str, Any]] | None = None,
        binary: str | Path | None = None,
        path: str | None = None,
        backup_dir: str | Path = "hosts",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._hosts = hosts
        self._text = file_text(nodes, classes)
        self._binary = binary
        self._path = path or ("/usr/local/bin/emu" if binary else "emu")
        self._backup_dir = Path(backup_dir)
        self._options = dict(options or {})

    def _on_hosts(self, words: str, stdin: str | None = None, before: str = "", after: str = "") -> Any:
        """Has emu do something on every host; returns EnOSlib's results."""
        with actions(roles=self._hosts, **self._options) as on:
            on.shell(f"{before}{shlex.quote(self._path)} {words}{after}", **({} if stdin is None else {"stdin": stdin}))
        return on.results

    def __enter__(self) -> Nodes:
        try:
            self.deploy()
        except BaseException:
            self.destroy()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # What was delivered is known as long as the nodes are there.
        try:
            self.backup()
        finally:
            self.destroy()

    def deploy(self) -> None:
        """Installs emu where a binary is given, and makes the nodes."""
        self._backup_dir.mkdir(parents=True, exist_ok=True)
        if self._binary:
            with actions(roles=self._hosts, **self._options) as on:
                on.copy(src=str(Path(self._binary).resolve()), dest=self._path, mode="0755")
        for one in self._on_hosts("node apply - --json --quiet", stdin=self._text):
            for note in json.loads(one.stdout)["notes"] if one.ok() else []:
                logging.getLogger(__name__).warning("%s: %s", one.host, note)

    def run(self, node: str, command: str, background: bool = False) -> Any:
        """Runs a line of the shell on a node of every host; returns EnOSlib's results."""
        words = f"node exec {shlex.quote(node)} -- sh -c {shlex.quote(command)}"
        before, after = ("nohup ", " >/dev/null 2>&1 &") if background else ("", "")
        return self._on_hosts(words, before=before, after=after)

    def listed(self) -> dict[str, dict[str, Any]]:
        """For each host what ``emu node list --json`` tells."""
        return {one.host: json.loads(one.stdout) for one in self._on_hosts("node list --json") if one.ok()}

    def backup(self) -> None:
        """Writes what was asked and delivered so far."""
        for host, told in self.listed().items():
            (self._backup_dir / f"{host}.json").write_text(json.dumps(told, indent=2) + "\n")

    def destroy(self) -> None:
        """Removes all nodes of these hosts, where emu is installed."""
        self._on_hosts("node remove --all --kill", before=f"! command -v {shlex.quote(self._path)} >/dev/null || ")
