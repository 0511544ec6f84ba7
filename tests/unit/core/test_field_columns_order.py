"""Members of JSON objects in any order. Each name is predicted from the object before, and found if it differs."""

import json
import random
from typing import Any

import pytest

pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'amps-server[spark]')")

from amps._core.columns.columns import FieldColumns  # noqa: E402

LONG = "x" * 27
"""With its comma, quotes and colon, this name is one byte shorter than the predicted bytes; others are longer."""
HALF = "h" * 12
"""This name fills the bytes that are compared at once exactly; others are shorter or longer."""
NAMES = (
    *("a", "ab", "abc", "b", LONG, f"{LONG}y", f"{LONG}yz", "with space", 'quo"ted', "é"),
    *(HALF[1:], HALF, f"{HALF}i", f"{HALF}j"),
)
SIMPLE = [name for name in NAMES if name.isalnum()]
FIELDS = (*((name, "long") for name in NAMES), ("inner", ("struct", (("a", "long"), ("b", "string")))))


def rows(messages: list[str]) -> list[dict[str, Any]]:
    columns = FieldColumns("json", FIELDS)
    for message in messages:
        columns.add_payload(message.encode())
    assert columns.malformed == 0
    found: list[dict[str, Any]] = columns.finish().to_pylist()
    return found


def row_of(message: str) -> dict[str, Any]:
    """The expected row of a message, from another reader."""
    read = json.loads(message)
    inner = read.get("inner")
    return {
        **{name: read.get(name) for name in NAMES},
        "inner": None if inner is None else {"a": inner.get("a"), "b": inner.get("b")},
    }


def written(names: list[str], draw: random.Random) -> str:
    """JSON with occasional spaces around colons and commas, and escapes for letters that need none."""
    members = []
    for name in names:
        value: Any = draw.randrange(10**6)
        if name == "inner":
            keys = draw.sample(["a", "b", "other"], draw.randrange(4))
            value = {key: "text" if key == "b" else draw.randrange(10) for key in keys}
        shown = json.dumps(name, ensure_ascii=draw.random() < 0.5)
        if name == "ab" and draw.random() < 0.3:
            shown = '"a\\u0062"'
        space = draw.choice(["", "", "", " ", "\n"])
        members.append(f"{shown}{space}:{space}{json.dumps(value)}{space}")
    return f"{{{','.join(members)}}}"


def test_any_order_is_read() -> None:
    draw = random.Random(1)
    every = [*NAMES, "inner", "unwanted", "ab unwanted"]
    order = list(every)
    messages = []
    for _ in range(3000):
        if draw.random() < 0.3:
            order = draw.sample(every, draw.randrange(len(every) + 1))
        messages.append(written(order, draw))
    assert rows(messages) == [row_of(message) for message in messages]


def test_names_that_begin_alike_are_told_apart() -> None:
    """This includes the end of a message, where fewer than 32 bytes are left to compare."""
    messages = [
        '{"a":1,"ab":2}',
        '{"ab":3,"a":4}',
        '{"abc":5}',
        '{"ab":6}',
        f'{{"{LONG}y":7,"{LONG}":8}}',
        f'{{"{LONG}":9}}',
        *(f'{{"n":1,"{name}":12,"other":"{LONG}{LONG}"}}' for name in (*SIMPLE, *reversed(SIMPLE))),
    ]
    assert rows(messages) == [row_of(message) for message in messages]


def test_more_members_than_are_predicted() -> None:
    names = [f"n{number}" for number in range(200)]
    columns = FieldColumns("json", tuple((name, "long") for name in names))
    for turn in range(3):
        members = {name: number + turn for number, name in enumerate(names)}
        columns.add_payload(json.dumps(members).encode())
    rows_found = columns.finish().to_pylist()
    assert rows_found == [{name: number + turn for number, name in enumerate(names)} for turn in range(3)]


@pytest.mark.parametrize("many", [63, 64, 65, 66])
def test_names_behind_the_last_predicted_one_are_told_apart(many: int) -> None:
    """The last names differ in each message, after as many members as are predicted, one fewer or one more."""
    columns = FieldColumns("json", (("a", "long"), ("b", "long"), ("c", "long")))
    ends = ['"a":1,"b":2', '"b":3,"a":4', '"c":5,"c":6', '"a":7,"a":8', '"b":9,"c":10', '"c":11,"x":12'] * 2
    before = ",".join(f'"n{place}":0' for place in range(many))
    for end in ends:
        columns.add_payload(f"{{{before},{end}}}".encode())
    assert columns.malformed == 0
    wanted = [json.loads(f"{{{end}}}") for end in ends]
    assert columns.finish().to_pylist() == [{name: row.get(name) for name in "abc"} for row in wanted]


@pytest.mark.parametrize(
    "separators", [(",", ":"), (", ", ": "), (",\n  ", " : "), (" ,", ":\t"), (" , ", ":  ")]
)
def test_blanks_are_predicted_too_and_may_differ(separators: tuple[str, str]) -> None:
    draw = random.Random(2)
    messages = []
    for turn in range(60):
        comma, colon = separators if turn % 3 else draw.choice([(",", ":"), (", ", ":"), (",", ": ")])
        members = [
            f'"a"{colon}{turn}',
            f'"ab"{colon}null',
            f'"other"{colon}"more, or less"',
            f'"b"{colon}-1',
        ]
        messages.append(f"{{{draw.choice(['', '', ' '])}{comma.join(members)}{draw.choice(['', ' '])}}}")
    assert rows(messages) == [row_of(message) for message in messages]


@pytest.mark.parametrize(
    "broken",
    [
        *(
            '{"a":1,"ab":2,',
            '{"a":1,"ab":',
            '{"a":1,"ab"',
            '{"a":1,"ab" 2}',
            '{"a":1 "ab":2}',
            '{"a":',
            '{"a"',
        ),
        *(
            '{"a":1,}',
            '{,"a":1}',
            "{,}",
            '{"a":1,,"ab":2}',
            '{"a":,"ab":2}',
            '{"a":}',
            '{"a":1,"ab":}',
            "{",
            "{ ",
        ),
    ],
)
def test_predicted_bytes_that_are_missing_are_malformed(broken: str) -> None:
    columns = FieldColumns("json", FIELDS)
    for message in ('{"a":1,"ab":2}', broken, '{"a":1,"ab":2}'):
        columns.add_payload(message.encode())
    assert columns.malformed == 1
    assert [row["ab"] for row in columns.finish().to_pylist()] == [2, None, 2]
