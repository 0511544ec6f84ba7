"""JSON bodies with and without orjson, and a client without any other package."""

import math
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any
from uuid import UUID

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amps.client.payloads.json_text import dumps, dumps_without_orjson, loads_without_orjson

NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=True, allow_infinity=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner),
    max_leaves=12,
)


class Side(Enum):
    BUY = "buy"


class Level(IntEnum):
    HIGH = 3


@dataclass
class Quote:
    price: Decimal
    at: datetime


@given(VALUES)
def test_values_are_written_and_read_alike(value: Any) -> None:
    text = dumps_without_orjson(value)
    assert orjson.loads(text) == orjson.loads(dumps(value))
    assert loads_without_orjson(text) == orjson.loads(text)
    assert loads_without_orjson(memoryview(text)) == orjson.loads(text)


@pytest.mark.parametrize(
    "value",
    [
        Quote(Decimal("1.50"), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        [Side.BUY, Level.HIGH, date(2026, 1, 2), UUID(int=7), b"bytes", (1, 2)],
        {Side.BUY: 1, Level.HIGH: 2, 7: 3, None: 4, True: 5, date(2026, 1, 2): 6, UUID(int=7): 7},
        {"nested": [{"set": {1}, "text": "é\n\x01\u2028"}]},
    ],
)
def test_other_types_become_the_same_values(value: Any) -> None:
    assert orjson.loads(dumps_without_orjson(value)) == orjson.loads(dumps(value))


@pytest.mark.parametrize("value", [object(), [object()], "\ud800", {(1, 2): 1}])
def test_an_object_without_a_text_is_refused(value: Any) -> None:
    for write in (dumps, dumps_without_orjson):
        with pytest.raises(TypeError):
            write(value)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"NaN", b"[-Infinity]", b'"\xff"', b"[1,]", b"{'a':1}", b"\xef\xbb\xbf1", b"1 2"]
)
def test_malformed_text_is_refused(text: bytes) -> None:
    for read in (orjson.loads, loads_without_orjson):
        with pytest.raises(ValueError, match=r"."):
            read(text)


def test_floats_that_json_lacks_are_null() -> None:
    assert dumps_without_orjson([math.nan, math.inf, 1.5]) == dumps([math.nan, math.inf, 1.5]) == b"[null,null,1.5]"


ALONE = """
import sys


class OnlyTheStandardLibrary:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if name.startswith("amps._core") or top != "amps" and top not in sys.stdlib_module_names:
            raise ModuleNotFoundError(name)
        return None


sys.meta_path.insert(0, OnlyTheStandardLibrary())
import amps.aio, amps.client, amps.compat
from amps.client.payloads.codecs import codec_for
from amps.client.protocol.traffic import COMPILED

assert not COMPILED
assert not any(name.startswith("amps.server") for name in sys.modules)
print(codec_for("json").encode({"id": 1}).decode(), codec_for("json").decode(b'{"id": 2}'))
try:
    codec_for("msgpack").encode({})
except ImportError as error:
    print(error)
"""


def test_the_client_needs_the_standard_library_only() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", ALONE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "{\"id\":1} {'id': 2}"
    assert second == "bodies of the type msgpack need the package msgpack: pip install msgpack"
