"""A fixture for tests that are to run as on a slower machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Protocol

import pytest

import emu


class SlowCpu(Protocol):
    """What the fixture is: a call begins, the end of the test ends."""

    def __call__(self, speed: emu.Speed, **zone: Any) -> emu.Attached: ...


@pytest.fixture
def slow_cpu() -> Iterator[SlowCpu]:
    """``slow_cpu("25%")`` slows this test down, and what it starts, from then until its end."""
    with ExitStack() as stack:

        def begin(speed: emu.Speed, **zone: Any) -> emu.Attached:
            attached: AbstractContextManager[emu.Attached] = emu.attach(speed, pid=os.getpid(), **zone)
            return stack.enter_context(attached)

        yield begin
