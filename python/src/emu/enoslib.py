"""Slower CPUs for the hosts of an EnOSlib experiment::

    from emu.enoslib import Nodes

    with Nodes(roles["edge"], {"worker": {"speed": "25%"}}, binary="./emu", backup_dir="results") as edge:
        edge.run("worker", "./program")

emu is copied to the hosts where ``binary`` names it; the static one runs on every Linux.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shlex
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from enoslib.api import actions
from enoslib.errors import EnosFailedHostsError, EnosUnreachableHostsError
from enoslib.service.service import Service

from . import _json, file_text

__all__ = ["Nodes"]

_LOG = logging.getLogger(__name__)

#: Goes on where emu runs, in the version that is wanted.
_VERSION = """wanted={wanted}
has=$({emu} --version 2>&1) && [ "$has" = "${{wanted:-$has}}" ] || {{
  echo "$has${{wanted:+, and not $wanted}}; give the service the binary" >&2
  exit 3
}}
"""


def _warn(failed: Iterable[Any]) -> None:
    """Tells why hosts failed, in their words."""
    for one in failed:
        _LOG.warning("%s: %s", one.host, one.payload.get("stderr") or one.payload.get("msg") or "no answer")


class Nodes(Service):  # type: ignore[misc]  # EnOSlib has no types.
    """The same virtual nodes on some hosts; ``nodes`` and ``classes`` as of ``emu.apply``.

    All nodes of the user on these hosts belong to the service. ``deploy`` makes them, and changes nothing where they are already.
    ``backup`` writes what was asked and delivered to ``backup_dir``, a file ``HOST.json`` for each host. ``destroy`` removes them, and
    kills what runs there.

    A host must have emu in the ``version`` that is named, or in that of ``binary``. One that has not or does not answer fails: each is
    a warning. Where nodes are made and programs run that is an error of EnOSlib's, too, unless ``options`` has its
    ``on_error_continue``. Other options of ``enoslib.api.actions`` go there as well: ``{"run_as": "root"}``.
    """

    def __init__(
        self,
        hosts: Any,
        nodes: Mapping[str, Mapping[str, Any]],
        *,
        classes: Mapping[str, Mapping[str, Any]] | None = None,
        binary: str | Path | None = None,
        version: str | None = None,
        path: str | None = None,
        backup_dir: str | Path = "hosts",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._hosts = hosts
        self._text = file_text(nodes, classes)
        self._binary = binary
        self._version = version
        self._path = path or ("/usr/local/bin/emu" if binary else "emu")
        self._backup_dir = Path(backup_dir)
        self._options = dict(options or {})

    def _on_hosts(self, words: str, stdin: str | None = None, before: str = "", after: str = "", **options: bool) -> Any:
        """Has emu do something on every host; returns EnOSlib's results."""
        on = actions(roles=self._hosts, **{**self._options, **options})
        try:
            with on:
                on.shell(f"{before}{shlex.quote(self._path)} {words}{after}", **({} if stdin is None else {"stdin": stdin}))
        except (EnosFailedHostsError, EnosUnreachableHostsError) as error:
            _warn(error.hosts)
            raise
        _warn(one for one in on.results if not one.ok())
        return on.results

    def _wanted(self) -> str:
        """What emu has to say of its version on the hosts; nothing where that does not matter, or cannot be told here."""
        if self._version or not self._binary:
            return f"emu {self._version}" if self._version else ""
        # A binary for another kind of machine does not run here, and need only run there.
        with contextlib.suppress(OSError):
            return subprocess.run([self._binary, "--version"], capture_output=True, text=True, check=False).stdout.strip()
        return ""

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

    def deploy(self) -> dict[str, list[str]]:
        """Installs emu where a binary is given, and makes the nodes; returns the steps that were taken on each host."""
        self._backup_dir.mkdir(parents=True, exist_ok=True)
        if self._binary:
            with actions(roles=self._hosts, **self._options) as on:
                on.copy(src=str(Path(self._binary).resolve()), dest=self._path, mode="0755")
        before = _VERSION.format(emu=shlex.quote(self._path), wanted=shlex.quote(self._wanted()))
        taken = {}
        for one in self._on_hosts("node apply - --json --quiet", stdin=self._text, before=before).ok():
            told = _json(one.stdout, "node-apply", f"emu on {one.host}")
            taken[one.host] = [change["what"] for change in told["changes"]]
            for note in told["notes"]:
                _LOG.warning("%s: %s", one.host, note)
        return taken

    def run(self, node: str, command: str, background: bool = False) -> Any:
        """Runs a line of the shell on a node of every host; returns EnOSlib's results."""
        words = f"node exec {shlex.quote(node)} -- sh -c {shlex.quote(command)}"
        before, after = ("nohup ", " >/dev/null 2>&1 &") if background else ("", "")
        return self._on_hosts(words, before=before, after=after)

    def listed(self) -> dict[str, dict[str, Any]]:
        """For each host that answers what ``emu node list --json`` tells."""
        told = self._on_hosts("node list --json", on_error_continue=True).ok()
        return {one.host: _json(one.stdout, "node-list", f"emu on {one.host}") for one in told}

    def backup(self) -> None:
        """Writes what was asked and delivered so far, of each host that answers."""
        for host, told in self.listed().items():
            (self._backup_dir / f"{host}.json").write_text(json.dumps(told, indent=2) + "\n")

    def destroy(self) -> None:
        """Removes all nodes of these hosts, where emu is installed and they answer."""
        before = f"! command -v {shlex.quote(self._path)} >/dev/null || "
        self._on_hosts("node remove --all --kill", before=before, on_error_continue=True)
