"""The module with the real command, which ``EMU_BINARY`` names."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import emu
from emu.pytest_plugin import SlowCpu

LOOP = [sys.executable, "-c", "import time; end = time.monotonic() + {}\nwhile time.monotonic() < end: pass"]


def loop(seconds: float) -> list[str]:
    return [word.format(seconds) for word in LOOP]


def used() -> float:
    """CPU time of this process in half a second of wall time, as a share."""
    begin, before = time.monotonic(), time.process_time()
    while time.monotonic() < begin + 0.5:
        pass
    return (time.process_time() - before) / (time.monotonic() - begin)


def is_about(share: float, wanted: float) -> bool:
    """Whether it may be that on a busy machine, which takes time from a task, and gives it none."""
    return 0.35 * wanted < share < wanted + 0.1


def test_a_run_tells_what_was_delivered() -> None:
    # On a busy machine a second may not tell.
    for _ in range(20):
        result = emu.run(loop(1), "30%", cpus=[0], capture_output=True, text=True)
        assert (result.returncode, result.stdout) == (0, "")
        if result.delivered:
            break
    assert result.delivered is not None and is_about(result.delivered.share, 0.3), result.record
    assert result.delivered.low <= result.delivered.share <= result.delivered.high


def test_exit_codes_and_signals_are_the_commands() -> None:
    assert emu.run(["sh", "-c", "exit 3"], "50%").returncode == 3
    assert emu.run(["sh", "-c", "kill -9 $$"], {0: "50%"}).returncode == -9
    with pytest.raises(subprocess.CalledProcessError):
        emu.run(["false"], "50%", check=True)


def test_what_emu_refuses_is_an_error() -> None:
    for words, code in [({"speed": "140%"}, 2), ({"speed": "50%", "cpus": "999"}, 2), ({"trace": "/nowhere"}, 2)]:
        with pytest.raises(emu.EmuError) as refused:
            emu.run(["true"], capture_output=True, text=True, **words)  # type: ignore[arg-type]
        assert refused.value.code in (code, 3) and "error" in str(refused.value)
    with pytest.raises(emu.EmuError):
        emu.run(["/no/such/program"], "50%", capture_output=True)
    with pytest.raises(emu.EmuError, match="makes no sense.*on stderr"):
        emu.run(["true"], "140%")


def test_a_run_of_asyncio() -> None:
    async def both() -> list[emu.Result]:
        runs = [emu.run_async(["sh", "-c", f"exit {cpu}"], "50%", cpus=[cpu]) for cpu in (0, 1)]
        return await asyncio.gather(*runs)

    codes = [result.returncode for result in asyncio.run(both())]
    assert codes == [0, 1]


def is_given(node: emu.Node, share: float) -> bool:
    """Whether a node is given this share at some time: others use a shared machine now and then."""
    for _ in range(40):
        time.sleep(0.3)
        delivered = node.delivered
        if delivered is not None and is_about(delivered.share, share):
            return True
    return False


def test_a_node_lasts_for_a_with() -> None:
    with emu.node("python-test", "30%", cpus=[0]) as node:
        assert node.run(["sh", "-c", "exit 4"]).returncode == 4
        with node.popen(loop(30)) as looping:
            assert is_given(node, 0.3), node.status()
            node.set("60%")
            assert is_given(node, 0.6), node.status()
            looping.kill()
    assert all(one["name"] != "python-test" for one in emu.nodes())


def test_nodes_are_applied_once() -> None:
    wanted = {"python-a": {"cpus": "0", "speed": "40%"}, "python-b": {"cpus": "1", "speed": "80%"}}
    try:
        assert len(emu.apply(wanted, dry_run=True)) == 2
        assert len(emu.apply(wanted)) == 2
        assert emu.apply(wanted) == []
    finally:
        assert len(emu.apply({})) == 2


@pytest.mark.parametrize("ignored", ["", "trap '' TERM; "])
def test_a_command_ends_at_its_timeout(ignored: str) -> None:
    script = ignored + "echo $$; while :; do :; done"
    with pytest.raises(subprocess.TimeoutExpired) as late:
        emu.run(["sh", "-c", script], "50%", timeout=1.5, stdout=subprocess.PIPE, text=True)
    pid = int(str(late.value.stdout if isinstance(late.value.stdout, str) else (late.value.stdout or b"").decode()))
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_file_has_classes_numbers_switches_and_lists() -> None:
    slow = {"slow": {"speed": "30%", "no-hold-clock": True}}
    steps = emu.apply({"python-w": {"class": "slow", "count": 2}}, classes=slow, dry_run=True)
    assert len(steps) == 2 and all("--no-hold-clock" in step for step in steps), steps
    members = {"cpus": 0, "speed": "40%", "run": ["sleep", "60"], "units": ["no-such-unit"], "pids": []}
    steps = emu.apply({"python-a": members}, dry_run=True)
    assert [step.split()[0] for step in steps] == ["create", "start", "watch"], steps


def test_what_runs_is_attached() -> None:
    with subprocess.Popen(loop(30)) as looping:
        with emu.attach("30%", pid=looping.pid, cpus=[0]) as attached:
            time.sleep(0.6)
            attached.set("50%")
            time.sleep(0.8)
        looping.kill()
    assert attached.delivered is not None and is_about(attached.delivered.share, 0.5), attached.record
    with pytest.raises(emu.EmuError):
        with emu.attach("30%", name="there-is-no-such-program"):
            pass


def test_this_process_is_slowed(slow_cpu: SlowCpu) -> None:
    # Others may need the CPUs, too.
    assert used() > 0.45
    slow_cpu("25%", cpus=[0])
    assert is_about(used(), 0.25)


def test_nothing_is_left() -> None:
    assert emu.top()["zones"] == []
    assert not list(Path("/sys/fs/cgroup").glob(f"**/emu-{os.getpid()}-*"))
