"""The service for EnOSlib, with hosts that are shells of this one; ``tests/hosts/enoslib`` has real ones."""

from __future__ import annotations

import importlib
import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import emu


class Failed(Exception):
    def __init__(self, hosts: list[Any]) -> None:
        self.hosts = hosts


class Unreachable(Failed):
    pass


class Told:
    """A result, as of EnOSlib: one of a host that does not answer has no streams."""

    def __init__(self, host: str, payload: dict[str, Any]) -> None:
        self.host, self.payload = host, payload
        self.stdout = payload.get("stdout")

    def ok(self) -> bool:
        return self.payload.get("rc") == 0


class Results(list[Told]):
    def ok(self) -> Results:
        return Results(one for one in self if one.ok())


class Actions:
    """``enoslib.api.actions`` on hosts, of which ``gone`` does not answer."""

    def __init__(self, roles: list[str], on_error_continue: bool = False) -> None:
        self.roles, self.goes_on, self.results = roles, on_error_continue, Results()

    def shell(self, line: str, stdin: str | None = None) -> None:
        self.line, self.stdin = line, stdin

    def __enter__(self) -> Actions:
        return self

    def __exit__(self, *_: object) -> None:
        for host in self.roles:
            if host == "gone":
                self.results.append(Told(host, {"unreachable": True, "msg": "no route to it"}))
                continue
            told = subprocess.run(self.line, shell=True, input=self.stdin or "", capture_output=True, text=True, check=False)
            self.results.append(Told(host, {"rc": told.returncode, "stdout": told.stdout, "stderr": told.stderr}))
        for kind, error in (("rc", Failed), ("msg", Unreachable)):
            failed = [one for one in self.results if not one.ok() and kind in one.payload]
            if failed and not self.goes_on:
                raise error(failed)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """``emu.enoslib.Nodes`` with hosts and options."""
    parts: dict[str, dict[str, Any]] = {
        "enoslib": {},
        "enoslib.api": {"actions": Actions},
        "enoslib.errors": {"EnosFailedHostsError": Failed, "EnosUnreachableHostsError": Unreachable},
        "enoslib.service": {},
        "enoslib.service.service": {"Service": object},
    }
    for name, has in parts.items():
        module = ModuleType(name)
        vars(module).update(has)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "emu.enoslib", raising=False)
    nodes = importlib.import_module("emu.enoslib").Nodes
    spec = {"python-e": {"cpus": [0], "speed": {0: "40%"}}}

    def make(hosts: list[str], **options: Any) -> Any:
        return nodes(hosts, spec, backup_dir=tmp_path, **{"path": emu._binary(), **options})

    return make


def test_a_lost_host_is_told_and_the_rest_is_kept(
    service: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hosts = ["here"]
    with service(hosts) as nodes:
        assert nodes.deploy() == {"here": []}
        hosts.append("gone")
    assert caplog.messages == ["gone: no route to it"] * 2
    (kept,) = tmp_path.iterdir()
    assert kept.name == "here.json" and [one["name"] for one in json.loads(kept.read_text())["nodes"]] == ["python-e"]
    assert emu.nodes() == []


def test_a_host_of_another_version_is_refused_with_both(
    service: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    has = subprocess.run([emu._binary(), "--version"], check=True, capture_output=True, text=True).stdout.strip()
    for options, words in [({"version": "9.9"}, f"here: {has}, and not emu 9.9"), ({"path": "/no/emu"}, "/no/emu: not found")]:
        caplog.clear()
        with pytest.raises(Failed):
            service(["here"], **options).deploy()
        assert words in caplog.text and [one.levelno for one in caplog.records] == [logging.WARNING]
    assert service(["here", "gone"], version=has.split()[1], options={"on_error_continue": True}).deploy().keys() == {"here"}
    service(["here"]).destroy()
    assert emu.nodes() == []


def test_a_host_whose_emu_writes_another_form_is_named(service: Callable[..., Any], tmp_path: Path) -> None:
    other = tmp_path / "emu"
    other.write_text("#!/bin/sh\necho '{\"schema\": 99}'")
    other.chmod(0o755)
    with pytest.raises(emu.EmuError, match="emu on here writes schema 99 of `node-list`.* reads schema 2"):
        service(["here"], path=str(other)).listed()
