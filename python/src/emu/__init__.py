"""Runs programs as on a slower CPU, by the command ``emu``.

The command does the work; this module writes its command line and reads its JSON. It is the one that ``$EMU_BINARY`` names, the
one of the wheel, or one in ``$PATH``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypedDict, Union

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Attached", "Delivered", "EmuError", "Node", "Result", "apply", "attach", "node", "nodes", "run", "run_async", "top"]

PathLike = Union[str, "os.PathLike[str]"]
Command = Sequence[PathLike]
Speed = Union[str, float, Mapping[int, str], Mapping[int, float]]

_MEANING = {
    2: "the request makes no sense",
    3: "not possible on this host, or with this method",
    4: "not permitted",
    5: "the speed is not delivered",
    6: "something could not be restored",
    9: "undecided: the machine was too noisy to tell",
    125: "emu itself failed",
    126: "the command cannot be executed",
    127: "the command does not exist",
}

#: The forms of JSON that are read here, as `docs/JSON.md` names them, with the `schema` of each.
_FORMS = {"run": 3, "node-list": 2, "node-apply": 1, "top": 2}


class EmuError(Exception):
    """What emu refused, or failed in."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message or _MEANING.get(code, f"emu ended with {code}"))
        #: Exit code of emu.
        self.code = code


@dataclass(frozen=True)
class Delivered:
    """The share of the CPU's speed that tasks were given while they wanted all, with its 95 % interval."""

    share: float
    low: float
    high: float
    asked: float

    @property
    def error(self) -> float:
        """Relative: ``share / asked - 1``."""
        return self.share / self.asked - 1.0

    @classmethod
    def _of(cls, seen: Mapping[str, Any] | None) -> Delivered | None:
        return seen and cls(seen["share"], seen["low"], seen["high"], seen["asked"]) or None


@dataclass(frozen=True)
class Result:
    """A command that has ended."""

    #: As ``subprocess`` has it: negative for a signal.
    returncode: int
    stdout: Any
    stderr: Any
    #: All that emu tells (``emu run --json``).
    record: dict[str, Any]

    @property
    def delivered(self) -> Delivered | None:
        """What was delivered; ``None`` where that cannot be told, as the command never wanted all."""
        return Delivered._of(self.record["delivered"])

    @property
    def health(self) -> str:
        """``holding``, ``degraded`` or ``ended``."""
        return str(self.record["status"]["health"])

    @property
    def problems(self) -> list[str]:
        """What is wrong, in words."""
        return list(self.record["status"]["problems"])


#: Seconds that a command has to end after SIGTERM, before it is killed.
GRACE = 2.0


def _of_wheel() -> Iterator[Path]:
    """Where the wheel's command may be: beside the module (``pip --target``), where its list of files says, and where scripts are."""
    yield Path(__file__).parents[1] / "bin" / "emu"
    with contextlib.suppress(metadata.PackageNotFoundError):
        listed = metadata.files("emu-cpu") or []
        yield from (Path(str(file.locate())).resolve() for file in listed if file.parts[-2:] == ("bin", "emu"))
    yield Path(sysconfig.get_path("scripts")) / "emu"


def _binary() -> str:
    named = os.environ.get("EMU_BINARY")
    found = next(filter(None, map(shutil.which, [named] if named else [*map(str, _of_wheel()), "emu"])), None)
    if not found:
        what = f"command `{named}`, which EMU_BINARY names" if named else "command `emu`"
        raise EmuError(127, f"there is no {what}: install it, or name it in EMU_BINARY")
    # What is started may have another folder.
    return os.path.abspath(found)


class Zone(TypedDict, total=False):
    """What else is asked for; see ``emu run --help``."""

    trace: PathLike | None
    like: PathLike | None
    cpus: str | Iterable[int] | None
    method: str | None
    period: str | None
    #: More options of the command, as words.
    options: Iterable[str]


class RunOptions(Zone, total=False):
    """And how it is run: as of ``subprocess.run``."""

    capture_output: bool
    text: bool
    cwd: PathLike | None
    env: Mapping[str, str] | None
    stdin: Any
    stdout: Any
    stderr: Any
    input: Any
    timeout: float | None


def _is_list(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str)


def _word(value: Any) -> str:
    """A value as the command has it: a list as ``0,1``, and a speed for each CPU as ``0=40%,1=80%``."""
    if isinstance(value, Mapping):
        value = [f"{key}={one}" for key, one in value.items()]
    if _is_list(value):
        return ",".join(map(str, value))
    return str(os.fspath(value) if isinstance(value, os.PathLike) else value)


def _options(named: Mapping[str, Any]) -> list[str]:
    """Options of the command for those that have a value."""
    return [f"--{name}={_word(value)}" for name, value in named.items() if value is not None]


def _zone(speed: Speed | None, zone: Mapping[str, Any]) -> list[str]:
    """The options of a zone. One that is misspelt would leave out what was meant."""
    if unknown := zone.keys() - Zone.__annotations__:
        raise TypeError(f"there is no option {', '.join(sorted(unknown))} of a zone; there are {', '.join(Zone.__annotations__)}")
    named = {name: value for name, value in zone.items() if name != "options"}
    return [*_options({"speed": speed, **named}), *_words(zone.get("options", ()))]


def _run(command: Command, speed: Speed | None, options: Mapping[str, Any], file: Path) -> tuple[list[str], dict[str, Any]]:
    """The words of ``emu run`` that leave a record in a file, and what is left for whoever starts them."""
    left = {name: value for name, value in options.items() if name in RunOptions.__annotations__.keys() - Zone.__annotations__}
    zone = _zone(speed, {name: value for name, value in options.items() if name not in left})
    words = [_binary(), "run", "--quiet", f"--json={file}", *zone, "--", *_words(command)]
    if left.get("input") is not None:
        left["stdin"] = subprocess.PIPE
    if left.pop("capture_output", False):
        left.update(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return words, left


def _words(command: Iterable[PathLike]) -> list[str]:
    # A text is an iterable of its letters.
    if isinstance(command, (str, bytes)):
        raise TypeError(f"{command!r} is no list of words, such as ['make', '-j2']")
    return [os.fspath(word) for word in command]


def _call(words: Sequence[str], text: str | None = None) -> str:
    """Runs emu to its end; returns what it wrote."""
    ended = subprocess.run([_binary(), *words], input=text, stdin=None if text is not None else subprocess.DEVNULL,
                           capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise EmuError(ended.returncode, ended.stderr.strip())
    return ended.stdout


def _json(text: str, form: str, whose: str | None = None) -> dict[str, Any]:
    """What emu wrote; that of ``whose`` host, where it is not this one's."""
    try:
        told: dict[str, Any] = json.loads(text)
        schema = told.get("schema")
    except (ValueError, AttributeError):
        schema = None
    if schema != _FORMS[form]:
        written = f"schema {schema} of" if schema else "something else than"
        raise EmuError(125, f"{whose or _binary()} writes {written} `{form}`, and this module reads schema {_FORMS[form]}: "
                            "use the emu of its version")
    return told


def _read(file: Path, code: int, stderr: Any) -> dict[str, Any]:
    """The record of a run; where there is none, the command never began."""
    text = file.read_text() if file.exists() else ""
    record = _json(text, "run") if text else {}
    if record.get("status") is None:
        if code == 0:
            raise EmuError(125, f"{_binary()} has left no record: it is no emu")
        if stderr is None:
            raise EmuError(code, f"{_MEANING.get(code, f'emu ended with {code}')}: emu has said why on stderr")
        message = stderr.decode(errors="replace") if isinstance(stderr, bytes) else stderr
        raise EmuError(code, message.strip())
    return record


@contextlib.contextmanager
def _record() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="emu-") as folder:
        yield Path(folder) / "record.json"


def run(command: Command, speed: Speed | None = None, *, check: bool = False, **options: Unpack[RunOptions]) -> Result:
    """Runs a command as on a slower CPU, to its end.

    ``speed`` is ``"40%"``, ``"1.2GHz"``, or one for each CPU: ``{0: "40%", 1: "80%"}``; instead of it there may be a ``trace`` or a
    profile of another machine (``like``). What is no option of a zone is as in ``subprocess.run``; after a ``timeout`` the
    command gets SIGTERM, and is killed if it does not end by that.

    Raises ``EmuError`` where the command was not run, and ``subprocess.CalledProcessError`` with ``check`` where it failed.
    """
    with _record() as file:
        words, popen = _run(command, speed, options, file)
        given, timeout = popen.pop("input", None), popen.pop("timeout", None)
        with subprocess.Popen(words, **popen) as process:
            try:
                stdout, stderr = process.communicate(given, timeout=timeout)
            except BaseException:
                _end(process)
                raise
        return _result(words, process.returncode, stdout, stderr, file, check)


def _result(words: list[str], code: int, stdout: Any, stderr: Any, file: Path, check: bool) -> Result:
    record = _read(file, code, stderr)
    if check and code:
        raise subprocess.CalledProcessError(code, words, stdout, stderr)
    return Result(code, stdout, stderr, record)


def _end(process: subprocess.Popen[Any]) -> None:
    """Ends a command with its emu. If emu alone were killed, the command would run on at full speed."""
    process.terminate()
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        pass
    finally:
        # Also where the wait is interrupted.
        if process.poll() is None:
            _kill_tasks(process.pid)


def _kill_tasks(emu: int) -> None:
    """Kills what an emu has slowed, by which it ends as well."""
    for zone in top()["zones"]:
        for pid in zone["tasks"].get("processes", []) if zone["pid"] == emu else []:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


async def run_async(
    command: Command, speed: Speed | None = None, *, check: bool = False, **options: Unpack[RunOptions]
) -> Result:
    """As ``run``, for asyncio. When it is cancelled the command is ended as after a ``timeout``.

    What is captured goes through a file, so that nothing is lost or waited for when the command is ended.
    """
    with _record() as file, contextlib.ExitStack() as stack:
        words, popen = _run(command, speed, options, file)
        given, timeout, is_text = (popen.pop(name, None) for name in ("input", "timeout", "text"))
        piped = [name for name in ("stdin", "stdout", "stderr") if popen.get(name) == subprocess.PIPE]
        for name in piped:
            popen[name] = stack.enter_context(open(file.with_name(name), "w+b"))
        if "stdin" in piped:
            popen["stdin"].write(given.encode() if isinstance(given, str) else given or b"")
            popen["stdin"].seek(0)
        process = await asyncio.create_subprocess_exec(*words, **popen)
        is_late = False
        try:
            await asyncio.wait_for(process.wait(), timeout)
        except asyncio.TimeoutError:
            is_late = True
        finally:
            if process.returncode is None:
                await _end_async(process)
        stdout, stderr = (_captured(file.with_name(name), is_text) if name in piped else None for name in ("stdout", "stderr"))
        if is_late:
            raise subprocess.TimeoutExpired(words, timeout or 0.0, stdout, stderr)
        return _result(words, await process.wait(), stdout, stderr, file, check)


def _captured(file: Path, is_text: bool | None) -> str | bytes:
    # Ends of lines become "\n" by that, as in `subprocess`.
    return file.read_text() if is_text else file.read_bytes()


async def _end_async(process: asyncio.subprocess.Process) -> None:
    """As ``_end``."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), GRACE)
    except asyncio.TimeoutError:
        pass
    finally:
        # Also where this is cancelled: then at once, as nothing would wait for a thread.
        if process.returncode is None:
            _kill_tasks(process.pid)
    await process.wait()


class Node:
    """A virtual node: CPUs with speeds of their own, and whatever is started there. See ``node``."""

    def __init__(self, name: str) -> None:
        self.name = name

    def run(self, command: Command, **popen: Any) -> subprocess.CompletedProcess[Any]:
        """Runs a command on it to its end, as ``subprocess.run``."""
        return subprocess.run(self._exec(command), **popen)

    def popen(self, command: Command, **popen: Any) -> subprocess.Popen[Any]:
        """Starts a command on it, as ``subprocess.Popen``."""
        return subprocess.Popen(self._exec(command), **popen)

    def _exec(self, command: Command) -> list[str]:
        return [_binary(), "node", "exec", self.name, "--", *_words(command)]

    def set(self, speed: Speed) -> None:
        """Gives it another speed, at once."""
        _call(["node", "set", self.name, *_options({"speed": speed}), "--quiet"])

    def status(self) -> dict[str, Any]:
        """What is asked, set and delivered, and what runs there (``emu node list --json``)."""
        for one in nodes():
            if one["name"] == self.name:
                return one
        raise EmuError(2, f"there is no node `{self.name}`")

    @property
    def delivered(self) -> Delivered | None:
        """What was delivered since the speed was set last."""
        return Delivered._of(self.status()["status"]["delivered"])

    def remove(self, kill: bool = True) -> None:
        """Ends it, and kills what runs there."""
        _call(["node", "remove", self.name, *(["--kill"] if kill else [])])


@contextlib.contextmanager
def node(name: str, speed: Speed | None = None, **zone: Unpack[Zone]) -> Iterator[Node]:
    """A virtual node for the time of a ``with``; what still runs there at its end is killed."""
    _call(["node", "create", "--quiet", *_zone(speed, zone), "--", name])
    made = Node(name)
    try:
        yield made
    finally:
        try:
            made.remove(kill=True)
        except EmuError:
            # It may have been removed before.
            if any(one["name"] == name for one in nodes()):
                raise


def nodes() -> list[dict[str, Any]]:
    """The nodes that there are (``emu node list --json``)."""
    return list(_json(_call(["node", "list", "--json"]), "node-list")["nodes"])


def top() -> dict[str, Any]:
    """All that is slowed on this host by emus of this user (``emu top --once --json``)."""
    return _json(_call(["top", "--once", "--json"]), "top")


def _toml(key: str, value: Any) -> str:
    """A value of a file of nodes, where all but switches, numbers of things and lists of members is text."""
    if _is_list(value) and key not in ("cpus", "speed"):
        value = list(value)
    elif not isinstance(value, bool) and key not in ("count", "cores"):
        value = _word(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def file_text(spec: Mapping[str, Mapping[str, Any]], classes: Mapping[str, Mapping[str, Any]] | None = None) -> str:
    """The text of a file of nodes. See ``apply``."""
    named = [("class", *one) for one in (classes or {}).items()] + [("node", *one) for one in spec.items()]
    return "\n".join(
        f"[{kind}.{json.dumps(name)}]\n" + "".join(f"{key} = {_toml(key, value)}\n" for key, value in one.items() if value is not None)
        for kind, name, one in named
    )


def apply(
    spec: PathLike | Mapping[str, Mapping[str, Any]],
    *,
    classes: Mapping[str, Mapping[str, Any]] | None = None,
    dry_run: bool = False,
) -> list[str]:
    """Makes the nodes of this host those of a file, or of ``{"small": {"cpus": "0", "speed": "25%"}}``: all, or as before.

    ``classes`` has what nodes with a ``class`` share, where they are no file.
    Returns the steps that were taken, or would be; none where all is so already.
    """
    if isinstance(spec, Mapping):
        source, text = "-", file_text(spec, classes)
    else:
        source, text = os.fspath(spec), None
    told = _json(_call(["node", "apply", source, "--json", "--dry-run" if dry_run else "--quiet"], text), "node-apply")
    return [change["what"] for change in told["changes"]]


class Attached:
    """Something that is slowed. See ``attach``."""

    def __init__(self, folder: Path, held: BinaryIO) -> None:
        self._folder = folder
        self._held = held
        #: All that emu tells, once it has ended.
        self.record: dict[str, Any] = {}

    @property
    def _pid(self) -> int:
        return int((self._folder / "pid").read_text())

    def _code(self) -> int | None:
        """Exit code of emu; ``None`` while it runs."""
        text = self._text("code")
        return int(text) if text.endswith("\n") else None

    def _text(self, name: str) -> str:
        file = self._folder / name
        return file.read_text() if file.exists() else ""

    def _begin(self) -> bool:
        """Waits until emu acts: it answers then. Or has it ended, with an error?"""
        while (code := self._code()) is None:
            if self._text("pid").endswith("\n") and any(zone["pid"] == self._pid for zone in top()["zones"]):
                return True
            time.sleep(0.02)
        return code == 0

    def _end(self) -> None:
        # Its end alone would not do: children that were forked meanwhile hold the pipe open, too.
        with self._held as held:
            held.write(b"\n")
        while (code := self._code()) is None:
            time.sleep(0.01)
        said = self._text("stderr")
        self.record = _read(self._folder / "record.json", code, said)
        if code != 0:
            raise EmuError(code, said.strip())

    def set(self, speed: Speed) -> None:
        """Gives it another speed, at once."""
        _call(["set", str(self._pid), *_options({"speed": speed}), "--quiet"])

    @property
    def delivered(self) -> Delivered | None:
        """What was delivered, once it has ended."""
        return Delivered._of(self.record.get("delivered"))


#: Starts emu as no child of this process: this process may be what is slowed. It leaves its number, its words and its exit code.
#: However this process ends, its pipe closes; a shell that reads it ends emu then, and where no line came before, tidies up.
_ORPHAN = """
exec 3<&0 </dev/null >/dev/null 2>&1
( "$@" 2>"$0/stderr" 3<&- &
  emu=$!
  echo $emu >"$0/pid"
  ( read -r line <&3; told=$?; [ -s "$0/code" ] || kill $emu; exit $told ) &
  wait $emu
  echo $? >"$0/code"
  wait $! || rm -r "$0" ) &
"""


@contextlib.contextmanager
def attach(
    speed: Speed | None = None,
    *,
    pid: int | Iterable[int] | None = None,
    name: str | None = None,
    cgroup: PathLike | None = None,
    unit: str | None = None,
    container: str | None = None,
    **zone: Unpack[Zone],
) -> Iterator[Attached]:
    """Slows down what runs already for the time of a ``with``, and puts all back. That may be this process itself."""
    meant = _options({"pid": pid, "name": name, "cgroup": cgroup, "unit": unit, "container": container})
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="emu-", ignore_cleanup_errors=True))
        words = [_binary(), "attach", "--quiet", f"--json={folder}/record.json", *meant, *_zone(speed, zone)]
        reader, writer = os.pipe()
        held = stack.enter_context(open(writer, "wb", buffering=0))
        with open(reader, "rb") as read:
            # Ctrl-C is for this process, which then ends emu.
            subprocess.run(["sh", "-c", _ORPHAN, folder, *words], stdin=read, check=True, start_new_session=True)
        attached = Attached(Path(folder), held)
        try:
            if attached._begin():
                yield attached
        finally:
            attached._end()
