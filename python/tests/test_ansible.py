"""The module of Ansible writes a file of nodes as this package does."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import emu

MODULE = Path(__file__).parents[2] / "ansible/roles/emu/library/emu_node.py"


class Refused(Exception):
    pass


class Module:
    """``AnsibleModule`` on a host whose emu always tells the same."""

    params: dict[str, Any] = {"nodes": {}, "classes": {}, "content": None, "emu": "emu"}
    check_mode = True
    told = ""

    def __init__(self, **_: object) -> None:
        pass

    def run_command(self, *_: object, **__: object) -> tuple[int, str, str]:
        return 0, self.told, ""

    def fail_json(self, msg: str, **_: object) -> None:
        raise Refused(msg)


@pytest.fixture
def emu_node(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, where Ansible need not be."""
    parts: dict[str, dict[str, Any]] = {
        "ansible": {},
        "ansible.module_utils": {},
        "ansible.module_utils.basic": {"AnsibleModule": Module},
        "ansible.module_utils.parsing": {},
        "ansible.module_utils.parsing.convert_bool": {"boolean": lambda value: value in (True, "yes")},
    }
    for name, has in parts.items():
        module = ModuleType(name)
        vars(module).update(has)
        monkeypatch.setitem(sys.modules, name, module)
    found = importlib.util.spec_from_file_location("emu_node", MODULE)
    assert found is not None and found.loader is not None
    loaded = importlib.util.module_from_spec(found)
    found.loader.exec_module(loaded)
    return loaded


def test_the_role_writes_a_zone_as_this_package(emu_node: Any) -> None:
    nodes: dict[str, dict[str, Any]] = {
        "a": {"cpus": [0, 1], "speed": {"0": "40%", "1": "80%"}, "run": ["sleep", "60"], "pids": [1, 2]},
        "b": {"class": "small", "count": 2, "no-hold-clock": True, "cores": 1, "method": None},
    }
    classes = {"small": {"speed": "25%"}}
    theirs, ours = emu_node.text_of(nodes, classes), emu.file_text(nodes, classes)
    assert theirs.splitlines() == [line for line in ours.splitlines() if line]
    assert 'cpus = "0,1"\nspeed = "0=40%,1=80%"\n' in theirs
    # A template gives text for all.
    assert "count = 2\nno-hold-clock = true" in emu_node.text_of({"b": {"count": "2", "no-hold-clock": "yes"}}, {})


def test_what_is_no_node_and_no_emu_is_refused(emu_node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for told, seen in [('{"schema": 99}', "schema 99"), ("[]", "something else"), ("emu 0.0\n", "something else"), ("", "something")]:
        monkeypatch.setattr(Module, "told", told)
        with pytest.raises(Refused, match=f"writes {seen}.* reads schema 1"):
            emu_node.main()
    for table in ("nodes", "classes"):
        monkeypatch.setattr(Module, "params", {**Module.params, "nodes": {}, table: {"a": "fast"}})
        with pytest.raises(Refused, match="`a` is no dictionary"):
            emu_node.main()
