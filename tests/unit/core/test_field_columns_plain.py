"""Short integers and texts of JSON, which are read by words and vectors.

At every length and before every end, the result must be that of another reader.
"""

import json
from typing import Any

import pytest

pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'amps-server[spark]')")

from amps._core.columns.columns import FieldColumns  # noqa: E402

BITS = {"byte": 8, "short": 16, "int": 32, "long": 64}
NUMBERS = (
    *("1234567890123"[:digits] for digits in range(1, 14)),
    *("-9876543210987"[: digits + 1] for digits in range(14)),
    *(
        "0",
        "-0",
        "00",
        "01",
        "-01",
        "0000000",
        "00000001",
        "127",
        "128",
        "-128",
        "-129",
        "32767",
        "32768",
        "-32769",
    ),
    *(
        "2147483647",
        "2147483648",
        "9223372036854775807",
        "9223372036854775808",
        "1.5",
        "1e3",
        "1E3",
        "-1.0",
        ".5",
    ),
    *(
        "1.",
        "1a",
        "1:",
        "1/",
        "12;",
        "1234567.",
        "1234567e",
        "+1",
        "--1",
        "-",
        "",
        "1 1",
        "1\\",
        '1"',
        "1}",
        "1,",
    ),
    *("true", "false", "null", "nul", "truefalse"),
)
ENDS = ("}", " }", "\n}", ',"z":7}', ' , "z" : 7 }', ',"more":"0123456789abcdef0123","z":7}', "]", ",}", "")
TEXTS = (
    *("abcdefghijklmnopqrstuvwxyz0123456789"[:length] for length in range(37)),
    *("é" * length for length in range(12)),
    *("x" * place + "é" + "y" * (15 - place) for place in range(18)),
    *("x" * place + "\\n" + "y" * 15 for place in range(18)),
    *("x" * place + '\\"' for place in range(18)),
    *("x" * place + "\\\\" for place in range(18)),
    *("x" * place + "\\" for place in range(18)),
    *("x" * place + "\\q" + "y" for place in range(18)),
    *("x" * place + "\t" for place in range(18)),
)


def read(fields: tuple[tuple[str, str], ...], messages: list[str]) -> tuple[list[dict[str, Any]], int]:
    """The rows, and the number of malformed messages."""
    columns = FieldColumns("json", fields)
    for message in messages:
        columns.add_payload(message.encode())
    made = columns.finish()
    made.validate(full=True)
    return made.to_pylist(), columns.malformed


def known(message: str) -> dict[str, Any] | None:
    """The object that a message begins with, or None if it is malformed. Bytes behind the object are ignored."""
    try:
        found: dict[str, Any] = json.JSONDecoder(strict=False).raw_decode(message)[0]
    except ValueError:
        return None
    return found


def integer(value: Any, of: str) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if -(1 << BITS[of] - 1) <= value < 1 << BITS[of] - 1 else None


@pytest.mark.parametrize("of", BITS)
def test_integers_are_those_of_the_text(of: str) -> None:
    messages = [f'{{"a":{number}{end}' for number in NUMBERS for end in ENDS]
    rows, malformed = read((("a", of), ("z", "long")), messages)
    wanted = [known(message) for message in messages]
    assert malformed == wanted.count(None) > 0
    for message, row, members in zip(messages, rows, wanted, strict=True):
        members = members or {}
        assert row == {"a": integer(members.get("a"), of), "z": members.get("z")}, message


def test_unwanted_values_must_be_well_formed() -> None:
    values = (*NUMBERS, *(f'"{text}"' for text in TEXTS))
    messages = [f'{{"z":7,"a":{value}{end}' for value in values for end in ENDS]
    rows, malformed = read((("z", "long"),), messages)
    wanted = [known(message) for message in messages]
    assert malformed == wanted.count(None) > 0
    for message, row, members in zip(messages, rows, wanted, strict=True):
        assert row == {"z": None if members is None else 7}, message


def test_texts_are_those_of_the_text() -> None:
    """Each message occurs several times, with and without further bytes in memory behind it."""
    messages = [f'{{"a":"{text}"{end}' for text in TEXTS for end in ENDS] * 3
    rows, malformed = read((("a", "string"), ("z", "long")), messages)
    wanted = [known(message) for message in messages]
    assert malformed == wanted.count(None) > 0
    for message, row, members in zip(messages, rows, wanted, strict=True):
        members = members or {}
        assert row == {"a": members.get("a"), "z": members.get("z")}, message


def test_of_a_repeated_name_the_last_value_counts() -> None:
    messages = ['{"a":1,"b":"one","a":22,"b":"two"}', '{"a":1,"b":"one","a":"no","b":2}', '{"a":1,"b":"one"}']
    rows, malformed = read((("a", "int"), ("b", "string")), messages)
    assert malformed == 0
    assert rows == [{"a": 22, "b": "two"}, {"a": None, "b": "2"}, {"a": 1, "b": "one"}]


@pytest.mark.parametrize("length", [1, 8, 15, 16, 17, 31])
def test_a_text_that_is_not_utf_8_is_null_and_the_rest_of_its_row_is_read(length: int) -> None:
    """Enough rows precede it, so that texts can be stored without a check of the room left."""
    columns = FieldColumns("json", (("a", "string"), ("z", "long")))
    texts = [b"x" * place + b"\xff" + b"y" * (length - 1 - place) for place in range(length)]
    for text in (*[b"x" * 100] * 9, *texts):
        columns.add_payload(b'{"a":"%b","z":7,"more":"0123456789abcdef0123456789"}' % text)
    rows = columns.finish().to_pylist()
    assert rows == [*[{"a": "x" * 100, "z": 7}] * 9, *[{"a": None, "z": 7}] * length]


LONG_NAME = "a name of many more bytes than those that are looked at where one is expected"
WHOLE = (
    '{"a":1,"b":"text","c":-2,"d":"other","e":null,"f":123456789012345678901234567890}',
    '{"e":12345678.5,"b":"0123456789abcde","a":7654321,"f":"0123456789abcdef0123456789abcdef"}',
    '{"f":-12,"e":"a text that is longer than a vector","g":1.25e10,"b":null,"a":-1234567}',
    '{"a":12345678,"e":true,"b":"esc\\n","c":{"a":[1,{"b":"}"}]},"g":1234567890123456789}',
    '{ "a" : 1 , "b" : "text" , "g" : 0 , "e" : -0 , "f" : "" }',
    f'{{"c":1,"{LONG_NAME}":12,"b":"text"}}',
)


@pytest.mark.parametrize("message", WHOLE)
@pytest.mark.parametrize("fields", [("a", "b"), ("b", LONG_NAME), ("c", "a"), ("z",)])
def test_memory_behind_the_end_is_not_read(message: str, fields: tuple[str, ...]) -> None:
    """A message cut anywhere, also between digits, is malformed whatever bytes lie behind it in memory."""
    of = {"a": "long", "b": "string", "c": "short", "z": "int", LONG_NAME: "int"}
    columns = FieldColumns("json", tuple((name, of[name]) for name in fields))
    members = json.loads(message)
    row = {name: value if not isinstance(value := members.get(name), dict) else None for name in fields}
    wanted = [row]
    columns.add_payload(message.encode())
    for length in range(1, len(message)):
        for behind in (message[length:], '"}', "}", ",", "1}", "0,"):
            columns.add_payload(memoryview((message[:length] + behind + " " * 40).encode())[:length])
        columns.add_payload(message.encode())
        wanted += [dict.fromkeys(fields)] * 6 + [row]
    assert columns.malformed == 6 * (len(message) - 1)
    assert columns.finish().to_pylist() == wanted


def test_integers_are_those_of_the_text_in_the_middle_of_messages() -> None:
    """The integers are followed by more bytes. They occur as the predicted member and as unwanted values."""
    fields = (*((name, name) for name in BITS), ("text", "string"), ("z", "long"))
    more = '"more":"0123456789abcdef0123456789","z":7}'
    messages = [
        f'{{"none":{first},"{name}":{number}{behind}{more}'
        for number in NUMBERS
        for first in ("1", number)
        for name in (*BITS, "text")
        for behind in (",", " ,", "}", "")
    ]
    rows, malformed = read(fields, messages)
    wanted = [known(message) for message in messages]
    assert malformed == wanted.count(None) > 0
    for message, row, members in zip(messages, rows, wanted, strict=True):
        members = members or {}
        assert {name: row[name] for name in BITS} == {
            name: integer(members.get(name), name) for name in BITS
        }, message
        assert row["z"] == members.get("z"), message
        assert (row["text"] is None) == (members.get("text") is None), message


def test_a_null_that_is_withdrawn_leaves_none() -> None:
    """A null is withdrawn by a later value of the same name, by a malformed message, and by the end of a batch."""
    fields = (("a", "long"), ("b", "string"), ("c", ("array", "int")), ("d", ("struct", (("e", "boolean"),))))
    columns = FieldColumns("json", fields)
    nulls = '"a":null,"b":null,"c":[null,null],"d":{"e":null}'
    values = '"a":1,"b":"text","c":[2,3],"d":{"e":true}'
    full: dict[str, Any] = {"a": 1, "b": "text", "c": [2, 3], "d": {"e": True}}
    empty: dict[str, Any] = {"a": None, "b": None, "c": [None, None], "d": {"e": None}}
    missing: dict[str, Any] = dict.fromkeys("abcd")
    for batch in range(3):
        wanted: list[dict[str, Any]] = []
        for turn in range(150 + batch):
            for message, row in (
                (f"{{{nulls},{values}}}", full),
                (f"{{{values},{nulls}}}", empty),
                (f"{{{nulls},{values}", missing),
                (f"{{{values}}}", full),
                *([("{}", missing)] if turn % 7 == 0 else []),
            ):
                columns.add_payload(message.encode())
                wanted.append(row)
        made = columns.finish()
        made.validate(full=True)
        assert made.to_pylist() == wanted
        for name in "abcd":
            assert made.field(name).null_count == sum(row[name] is None for row in wanted)
