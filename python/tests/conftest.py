"""Whatever the module reads of emu is held against its schema, where there is a validator."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import emu

SCHEMAS = Path(__file__).parents[2] / "schemas"
#: Forms that were validated.
VALIDATED: set[str] = set()


@pytest.fixture(autouse=True, scope="session")
def validated() -> Iterator[None]:
    if importlib.util.find_spec("jsonschema") is None:
        yield
        return
    import jsonschema

    reads = emu._json

    def read(text: str, form: str, *whose: str) -> dict[str, Any]:
        told = reads(text, form, *whose)
        jsonschema.validate(told, json.loads((SCHEMAS / f"{form}.json").read_text()))
        VALIDATED.add(form)
        return told

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(emu, "_json", read)
        yield
