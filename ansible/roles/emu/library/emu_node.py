#!/usr/bin/python
"""Makes the virtual nodes of a host those of a file, by ``emu node apply``."""

from __future__ import annotations

import json

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.parsing.convert_bool import boolean

DOCUMENTATION = """
module: emu_node
short_description: Virtual nodes on slower CPUs
description:
  - Makes all virtual nodes of the user on a host those that are given, or leaves all as it is.
  - A second time it changes nothing.
options:
  nodes:
    description: For each node what C([node.NAME]) has in a file of C(emu node apply). None removes all nodes.
    type: dict
  classes:
    description: For each class what nodes that name it share.
    type: dict
  content:
    description: The text of such a file, instead.
    type: str
  emu:
    description: The command.
    type: path
    default: emu
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
"""

EXAMPLES = """
- emu_node:
    classes: {small: {speed: 25%}}
    nodes: {worker: {class: small, count: 2}, server: {cpus: [2, 3], speed: {2: 80%, 3: 40%}}}
"""

RETURN = """
changes: {description: "What was changed or would be; C(node), C(action) and C(what) in words.", type: list, returned: success}
nodes: {description: What C(emu node list --json) tells afterwards., type: list, returned: success}
ansible_facts:
  description: Facts of the host.
  returned: success
  type: dict
  contains:
    emu:
      description: emu on the host, C(ansible_facts.emu) in later tasks.
      type: dict
      contains:
        version: {description: Its version., type: str, sample: 0.1.0}
        nodes: {description: As C(nodes)., type: list}
notes: {description: Members that are not there and nodes whose emu was killed., type: list, returned: success}
"""


SWITCHES = ("exclude-background", "exclusive", "lift-rt-limit", "no-hold-clock", "widen")


def word(value: object) -> str:
    """A list as ``0,1``, and a speed for each CPU as ``0=40%,1=80%``."""
    if isinstance(value, dict):
        value = [f"{key}={one}" for key, one in value.items()]
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def toml(key: str, value: object) -> str:
    """A value of the file, of the type that its key has: a template gives text for all."""
    if isinstance(value, list) and key != "cpus":
        value = [(int if key == "pids" else str)(item) for item in value]
    elif key in ("count", "cores"):
        value = int(str(value))
    elif key in SWITCHES:
        value = boolean(value)
    else:
        value = word(value)
    return json.dumps(value, ensure_ascii=False)


def text_of(nodes: dict, classes: dict) -> str:
    tables = [("class", *one) for one in classes.items()] + [("node", *one) for one in nodes.items()]
    lines = []
    for kind, name, one in tables:
        if not isinstance(one or {}, dict):
            raise TypeError(f"`{name}` is no dictionary")
        lines.append(f"[{kind}.{json.dumps(name)}]")
        lines.extend(f"{key} = {toml(key, value)}" for key, value in (one or {}).items() if value is not None)
    return "\n".join(lines) + "\n"


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "nodes": {"type": "dict"},
            "classes": {"type": "dict", "default": {}},
            "content": {"type": "str"},
            "emu": {"type": "path", "default": "emu"},
        },
        required_one_of=[("nodes", "content")],
        mutually_exclusive=[("nodes", "content")],
        supports_check_mode=True,
    )
    emu = module.params["emu"]

    def call(*words: str, data: str | None = None) -> str:
        code, told, said = module.run_command([emu, *words], data=data, handle_exceptions=False)
        if code != 0:
            module.fail_json(msg=said.strip() or f"{emu} ended with {code}", rc=code)
        return told

    def read(told: str, schema: int) -> dict:
        try:
            read = json.loads(told)
            written = f"schema {read['schema']}"
        except (ValueError, TypeError, KeyError):
            written = "something else"
        if written != f"schema {schema}":
            module.fail_json(msg=f"{emu} {version} writes {written}, and this module reads schema {schema}")
        return read

    content = module.params["content"]
    if content is None:
        try:
            content = text_of(module.params["nodes"], module.params["classes"])
        except (TypeError, ValueError) as error:
            module.fail_json(msg=f"a value of `nodes` or `classes` makes no sense: {error}")
    try:
        words = ["--dry-run"] if module.check_mode else ["--quiet"]
        version = call("--version").strip().split(" ", 1)[-1]
        applied = read(call("node", "apply", "-", "--json", *words, data=content), 1)
        nodes = read(call("node", "list", "--json"), 2)["nodes"]
    except OSError as error:
        module.fail_json(msg=f"cannot run {emu}: {error}; the role `emu` installs it")
    for note in applied["notes"]:
        module.warn(note)
    module.exit_json(
        changed=bool(applied["changes"]),
        changes=applied["changes"],
        notes=applied["notes"],
        nodes=nodes,
        ansible_facts={"emu": {"version": version, "nodes": nodes}},
        diff={"prepared": "".join(f"{change['what']}\n" for change in applied["changes"])},
    )


if __name__ == "__main__":
    main()
