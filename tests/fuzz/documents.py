"""Merging, comparing and reducing of well-formed and broken messages, against what extractors read before and after.

The models of tests/unit/messages know what well-formed messages become. Here any bytes may be given. An operation
refuses a message, or its result is right as far as the extractor of the type can read it:

- a merged message has the values of the delta;
- a difference has the new value of each field whose values differ, and a message does not differ from itself;
- a reduced message has nothing that is excluded, and all that is not.
"""

import json
import random
import struct
from collections.abc import Callable

import bson
import msgpack

from amps._core.values.documents import Selection
from amps._core.values.fields import FieldSet
from amps.messages import MessageType, TypeSettings, make_message_types
from tests.fuzz.cases import mutate
from tests.fuzz.codec import Finding
from tests.unit.messages.reading import read

Random = random.Random
Path = tuple[bytes, ...]

NAMES = ["a", "b", "k", "1"]
NESTED: list[Path] = [(b"a",), (b"b",), (b"1",), (b"a", b"b"), (b"b", b"k"), (b"k", b"k"), (b"k", b"a", b"b")]
FLAT: list[Path] = [(b"1",), (b"2",), (b"37",)]
TYPES = make_message_types(
    [
        *(TypeSettings(name, name) for name in ("json", "fix", "nvfix", "msgpack", "bson", "bflat", "xml")),
        TypeSettings("last", "json", early_termination=False),
        TypeSettings("pair", "composite-local", parts=("json", "msgpack")),
    ]
)


def random_value(rng: Random, depth: int) -> object:
    kind = rng.randrange(8 if depth else 5)
    if kind >= 6:
        return {name: random_value(rng, depth - 1) for name in rng.sample(NAMES, rng.randrange(4))}
    if kind == 5:
        return [random_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return [None, True, rng.randrange(-5, 300), rng.choice(["", "x", "é", "12", "y" * 40]), 1.5][kind]


def random_document(rng: Random) -> dict[str, object]:
    return {name: random_value(rng, 3) for name in rng.sample(NAMES, rng.randrange(5))}


def json_message(rng: Random) -> bytes:
    text = json.dumps(random_document(rng), ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 1]))
    if rng.random() < 0.3:
        text = text.replace('"a"', '"\\u0061"', 1)
    return text.encode()


def fix_message(rng: Random) -> bytes:
    fields = [(rng.choice(["1", "2", "37", "x"]), rng.choice(["", "5", "y=z", "1.0"])) for _ in range(rng.randrange(6))]
    return b"\x01".join(f"{tag}={value}".encode() for tag, value in fields) + rng.choice([b"", b"\x01"]) * bool(fields)


VALUES = [(0, b""), (8, b"\0"), (8, b"\1x"), (0x18, b"\5"), (0x48, b"\xff\0"), (0x98, b"\2\1\2")]
"""Types and values of BFlat: null, strings, an integer, a LEB128, an array."""


def bflat_message(rng: Random) -> bytes:
    made = b""
    for _ in range(rng.randrange(6)):
        tag = rng.choice([b"1", b"2", b"37"])
        head, value = rng.choice(VALUES)
        made += bytes([head | len(tag)]) + tag + value
    return made


def xml_element(rng: Random, name: str, depth: int) -> str:
    attributes = "".join(f' {one}="{rng.choice(["", "x", "&lt;"])}"' for one in rng.sample(NAMES[:3], rng.randrange(3)))
    inner = rng.choice(["", " ", "5", " x ", "<![CDATA[<]]>", "&amp;"])
    for _ in range(rng.randrange(4) if depth else 0):
        inner += xml_element(rng, rng.choice(NAMES[:3]), depth - 1) + rng.choice(["", "\n", "z"])
    return f"<{name}{attributes}>{inner}</{name}>" if inner else f"<{name}{attributes}/>"


def pair_message(rng: Random) -> bytes:
    parts = [rng.choice([b"", json_message(rng)]), rng.choice([b"", msgpack.packb(random_document(rng))])]
    return b"".join(struct.pack(">I", len(part)) + part for part in parts) + rng.choice([b"", b"tail"])


MESSAGES: dict[str, tuple[Callable[[Random], bytes], list[Path]]] = {
    "json": (json_message, NESTED),
    "last": (json_message, NESTED),
    "fix": (fix_message, FLAT),
    "nvfix": (fix_message, [*FLAT, (b"x",)]),
    "msgpack": (lambda rng: bytes(msgpack.packb(random_document(rng))), NESTED),
    "bson": (lambda rng: bytes(bson.encode(random_document(rng))), NESTED),
    "bflat": (bflat_message, FLAT),
    "xml": (
        lambda rng: xml_element(rng, "r", 2).encode(),
        [(b"r",), (b"r", b"@a"), (b"r", b"a"), (b"r", b"b", b"@k"), (b"r", b"k", b"a")],
    ),
    "pair": (pair_message, [(part, *path) for part in (b"0", b"1") for path in NESTED]),
}

Shown = list[list[str]] | None


def values_of(kind: MessageType, message: bytes, paths: list[Path]) -> Shown:
    """What is at each path, with NULLs and containers left out; None if the message cannot be read."""
    found = read(kind.extractor(), message, paths)
    if found is None:
        return None
    return [shown(values) for values in found]


def shown(values: list[object]) -> list[str]:
    made = [repr(value) for value in values if value is not ...]
    return made if any(value != "None" for value in made) else []


def run(seed: int) -> None:
    """One round of all operations of one type. Raises Finding."""
    rng = Random(seed)
    name = rng.choice(list(MESSAGES))
    make, paths = MESSAGES[name]
    first, second = make(rng), make(rng)
    if rng.random() < 0.5:
        first = mutate(rng, first)
    if rng.random() < 0.3:
        second = mutate(rng, second)
    kind = TYPES[name]
    check_merge(kind, first, second, paths)
    check_difference(kind, first, second, paths)
    check_select(kind, rng, first, paths)


def attempt(operation: Callable[..., object], *given: object) -> object:
    """The result; None if the message is refused, for the right reason."""
    try:
        return operation(*given)
    except ValueError as error:
        if "cannot be parsed" not in str(error):
            raise
        return None


def check_merge(kind: MessageType, stored: bytes, delta: bytes, paths: list[Path]) -> None:
    merged = attempt(kind.documents().merged, stored, delta)
    if not isinstance(merged, bytes):
        return
    after, given, before = (values_of(kind, one, paths) for one in (merged, delta, stored))
    if after is None or given is None:
        return
    for number, path in enumerate(paths):
        if given[number] and after[number] != given[number]:
            raise Finding(f"{kind.name}: {path} of {delta!r} into {stored!r} gives {merged!r}")
        if before is not None and not names(kind, delta, path) and after[number] != before[number]:
            raise Finding(f"{kind.name}: {path} changes when {delta!r} is merged into {stored!r}: {merged!r}")


def names(kind: MessageType, message: bytes, path: Path) -> bool:
    """Whether a message has anything on the way to a path, be it an empty array, which may replace what is there."""
    documents = kind.documents()
    nothing = attempt(documents.selected, message, Selection([(False, ())]))
    some = [
        attempt(documents.selected, message, Selection([(False, ()), (True, path[:steps])]))
        for steps in range(1, len(path) + 1)
    ]
    return any(one is None or one != nothing for one in some)


def check_difference(kind: MessageType, old: bytes, new: bytes, paths: list[Path]) -> None:
    documents = kind.documents()
    for one in (old, new):
        same = attempt(documents.compared, one, one, FieldSet())
        if isinstance(same, tuple) and same[1]:
            raise Finding(f"{kind.name}: {one!r} differs from itself: {same[0]!r}")
    found = attempt(documents.compared, old, new, FieldSet())
    if not isinstance(found, tuple):
        return
    body, changed = found
    before, after, written = (values_of(kind, one, paths) for one in (old, new, body))
    if before is None or after is None or written is None:
        return
    for number, path in enumerate(paths):
        if before[number] == after[number]:
            continue
        if not changed or written[number] != after[number]:
            raise Finding(f"{kind.name}: {path} is missing in the difference of {old!r} and {new!r}: {body!r}")


def check_select(kind: MessageType, rng: Random, message: bytes, paths: list[Path]) -> None:
    path = rng.choice(paths)
    left = attempt(kind.documents().selected, message, Selection([(False, path)]))
    only = attempt(kind.documents().selected, message, Selection([(False, ()), (True, path)]))
    if not isinstance(left, bytes) or not isinstance(only, bytes):
        return
    before, without, alone = (values_of(kind, one, paths) for one in (message, left, only))
    for number, other in enumerate(paths):
        below = other[: len(path)] == path
        above = path[: len(other)] == other
        if without is not None and below and without[number]:
            raise Finding(f"{kind.name}: {other} is left of {message!r} without {path}: {left!r}")
        if alone is not None and not below and not above and alone[number]:
            raise Finding(f"{kind.name}: {other} is in {path} of {message!r}: {only!r}")
        if before is None:
            continue
        if without is not None and not below and not above and without[number] != before[number]:
            raise Finding(f"{kind.name}: {other} changes in {message!r} without {path}: {left!r}")
        if alone is not None and below and alone[number] != before[number]:
            raise Finding(f"{kind.name}: {other} changes in {path} of {message!r}: {only!r}")
