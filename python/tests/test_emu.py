"""The module with the real command, which ``EMU_BINARY`` names."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import emu
from conftest import VALIDATED
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


def test_what_would_be_misread_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    zone: dict[str, Any] = {"cpu": [0]}
    calls: list[Callable[[], object]] = [
        lambda: emu.run("true", "50%"),
        lambda: emu.run(["true"], "50%", options="--quiet"),
        lambda: emu.run(["true"], "50%", **zone),
        lambda: emu.node("a", "50%", **zone).__enter__(),
        lambda: emu.attach("50%", pid=os.getpid(), **zone).__enter__(),
    ]
    for call, said in zip(calls, ["list of words"] * 2 + ["no option cpu of"] * 3):
        with pytest.raises(TypeError, match=said):
            call()
    with pytest.raises(emu.EmuError, match="not a name for a node"):
        emu.node("--help", "50%").__enter__()
    for named in ("/no/such/emu", "/tmp"):
        monkeypatch.setenv("EMU_BINARY", named)
        with pytest.raises(emu.EmuError, match=f"no command `{named}`"):
            emu.attach("50%", pid=os.getpid()).__enter__()


def test_the_command_may_be_named_from_this_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EMU_BINARY", os.path.relpath(emu._binary()))
    assert emu.run(["pwd"], "50%", cwd=tmp_path, capture_output=True, text=True).stdout.strip() == str(tmp_path)


def test_a_run_of_asyncio() -> None:
    async def both() -> list[emu.Result]:
        runs = [emu.run_async(["sh", "-c", f"exit {cpu}"], "50%", cpus=[cpu]) for cpu in (0, 1)]
        return await asyncio.gather(*runs)

    codes = [result.returncode for result in asyncio.run(both())]
    assert codes == [0, 1]


def test_asyncio_has_what_run_has() -> None:
    async def runs() -> None:
        told = await emu.run_async(["sh", "-c", "cat; echo b >&2"], "50%", input="a\r\n", text=True, capture_output=True)
        assert (told.stdout, told.stderr, told.returncode) == ("a\n", "b\n", 0)
        with pytest.raises(subprocess.CalledProcessError) as failed:
            await emu.run_async(["sh", "-c", "echo c; exit 3"], "50%", check=True, capture_output=True)
        assert (failed.value.returncode, failed.value.stdout) == (3, b"c\n")
        with pytest.raises(subprocess.TimeoutExpired) as late:
            await emu.run_async(["sh", "-c", "echo d; exec sleep 60"], "50%", timeout=1, capture_output=True, text=True)
        assert str(late.value.stdout) == "d\n"

    asyncio.run(runs())


@pytest.mark.parametrize("often", [1, 2])
def test_a_cancelled_run_ends_whatever_it_ignores(tmp_path: Path, often: int) -> None:
    async def cancelled() -> None:
        script = f"trap '' TERM; echo $$ >{tmp_path}/pid; while :; do :; done"
        running = asyncio.ensure_future(emu.run_async(["sh", "-c", script], "50%"))
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            await asyncio.sleep(0.05)
        for _ in range(often):
            running.cancel()
            await asyncio.sleep(0.3)
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(running, 20)

    asyncio.run(cancelled())
    pid = (tmp_path / "pid").read_text().strip()
    assert is_soon(lambda: not Path("/proc", pid).exists())


@contextlib.contextmanager
def beside(words: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs meanwhile."""
    with subprocess.Popen(words) as process:
        try:
            yield process
        finally:
            process.kill()


def is_soon(state: Callable[[], bool]) -> bool:
    end = time.monotonic() + 10
    while not state() and time.monotonic() < end:
        time.sleep(0.05)
    return state()


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
    with emu.node("python-test", "30%", cpus=[0]) as node:
        node.remove()
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


def test_a_zone_is_written_in_one_way() -> None:
    speeds = {0: "40%", 1: "80%"}
    (step,) = emu.apply({"python-z": {"cpus": range(2), "speed": speeds}}, dry_run=True)
    assert "--speed=0=40%,1=80% --cpus=0,1" in step or "--speed=0=40%,1=80% --cpus=0-1" in step, step
    wanted = {"python-z": {"cpus": [0], "speed": {0: "40%"}}}
    try:
        assert len(emu.apply(wanted)) == 1 and emu.apply(wanted) == []
        (made,) = emu.nodes()
        emu.Node("python-z").set({0: "60%"})
        assert [cpu["asked_share"] for cpu in emu.nodes()[0]["status"]["cpus"]] == [0.6]
    finally:
        emu.apply({})
    with emu.node("python-z", cpus=[0], speed={0: "40%"}) as node:
        assert node.status()["cpus"] == made["cpus"]
    with beside(["sleep", "60"]) as sleeping:
        with emu.attach({0: "40%"}, pid=[sleeping.pid], cpus=range(1)) as attached:
            attached.set({0: "60%"})
    assert [cpu["asked_share"] for cpu in attached.record["status"]["cpus"]] == [0.6]


def test_an_emu_of_another_form_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "emu"
    monkeypatch.setenv("EMU_BINARY", str(other))
    says = 'for word; do case $word in --json=*) exec >"${word#--json=}";; esac; done; echo \'%s\''
    calls: list[Callable[[], object]] = [lambda: emu.run(["true"]), emu.top, emu.nodes, lambda: emu.apply({})]
    for told, seen in [('{"schema": 99}', "schema 99 of"), ("[]", "something else"), ("emu 0.0", "something else")]:
        other.write_text("#!/bin/sh\n" + says % told)
        other.chmod(0o755)
        for call, form in zip(calls, ("run", "top", "node-list", "node-apply")):
            with pytest.raises(emu.EmuError, match=f"{other} writes {seen}.*`{form}`.* reads schema {emu._FORMS[form]}"):
                call()


@pytest.mark.skipif(importlib.util.find_spec("jsonschema") is None, reason="there is no validator")
def test_all_that_is_read_is_of_its_schema() -> None:
    emu.run(["true"], "50%")
    assert emu.nodes() == emu.top()["zones"] == emu.apply({}, dry_run=True)
    assert VALIDATED == set(emu._FORMS)


def test_what_runs_is_attached() -> None:
    with beside(loop(30)) as looping:
        with emu.attach("30%", pid=looping.pid, cpus=[0]) as attached:
            time.sleep(0.6)
            attached.set("50%")
            time.sleep(0.8)
    assert attached.delivered is not None and is_about(attached.delivered.share, 0.5), attached.record
    with pytest.raises(emu.EmuError):
        with emu.attach("30%", name="there-is-no-such-program"):
            pass


@pytest.mark.parametrize("ending", ["SIGKILL", "SIGTERM", "SIGINT"])
def test_an_attach_ends_with_its_program(ending: str) -> None:
    script = "import emu, sys, time\nwith emu.attach('30%', pid=int(sys.argv[1])):\n print(1, flush=True); time.sleep(60)"
    folders = set(Path(tempfile.gettempdir()).glob("emu-*"))
    with beside(loop(60)) as looping:
        words = [sys.executable, "-c", script, str(looping.pid)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as program:
            assert program.stdout is not None and program.stdout.readline() == b"1\n"
            assert len(emu.top()["zones"]) == 1
            program.send_signal(getattr(signal, ending))
        assert is_soon(lambda: emu.top()["zones"] == [])
        assert is_soon(lambda: not set(Path(tempfile.gettempdir()).glob("emu-*")) - folders)


def test_an_attach_is_undone_where_its_begin_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: emu.Attached) -> bool:
        time.sleep(0.5)
        raise KeyboardInterrupt

    monkeypatch.setattr(emu.Attached, "_begin", interrupted)
    with beside(["sleep", "60"]) as sleeping:
        with pytest.raises(KeyboardInterrupt), emu.attach("30%", pid=sleeping.pid):
            pass
        assert emu.top()["zones"] == []


def test_this_process_is_slowed(slow_cpu: SlowCpu) -> None:
    # Others may need the CPUs, too.
    assert used() > 0.45
    slow_cpu("25%", cpus=[0])
    assert is_about(used(), 0.25)


def test_nothing_is_left() -> None:
    assert emu.top()["zones"] == []
    assert not list(Path("/sys/fs/cgroup").glob(f"**/emu-{os.getpid()}-*"))
