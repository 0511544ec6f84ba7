"""The output formats of received messages (client.md §17)."""

import json
from typing import Any

import pytest

from amps.cli.bodies import indented, printable
from amps.cli.printers import Table, make_printer
from amps.client import Message
from amps.client.payloads.codecs import codec_for
from tests.unit.cli.test_command_line import invoke


def message(body: bytes, topic: str = "t", **header: Any) -> Message:
    return Message(json.dumps({"c": "p", "t": topic, **header}).encode() + body)


def line(body: bytes, message_type: str = "json", **header: Any) -> Any:
    printer = make_printer("json", None, None, message_type, "t")
    text = printer.add(message(body, **header)) + printer.flush()
    assert text.count(b"\n") == 1
    return json.loads(text, parse_float=str)


def test_json_has_header_and_body() -> None:
    shown = line(b'{"id":1}', bm="1|2|", ts="20260101T000000.000000Z", k="7", x="YQ==", e=9)
    assert shown == {
        "header": {
            "topic": "t",
            "bookmark": "1|2|",
            "command": "publish",
            "correlation_id": "YQ==",
            "expiration": 9,
            "sowkey": "7",
            "timestamp": "20260101T000000.000000Z",
        },
        "data": {"id": 1},
    }


@pytest.mark.parametrize(
    ("message_type", "body", "expected"),
    [
        ("json", b'{\n "a": [1,\r\n 2.50]}', {"data": {"a": [1, "2.50"]}}),
        ("json", b"18446744073709551617000", {"data": 18446744073709551617000}),
        ("json", b'"text"', {"data": "text"}),
        ("json", b"text", {"text": "text"}),
        ("json", b"NaN", {"text": "NaN"}),
        ("json", b"", {"text": ""}),
        ("json", b"[" * 100_000, {"text": "[" * 100_000}),
        ("json", b"\xff\x00", {"base64": "/wA="}),
        ("binary", b'{"a":1}', {"text": '{"a":1}'}),
        ("fix", b"35=D\x01453=a\x01453=b\x01453=c\x01", {"data": {"35": "D", "453": ["a", "b", "c"]}}),
        ("nvfix", b"no pairs", {"text": "no pairs"}),
        ("msgpack", codec_for("msgpack").encode({"a": b"\xff", 1: None}), {"data": {"a": "/w==", "1": None}}),
        ("msgpack", b"\xc1", {"base64": "wQ=="}),
        ("bson", codec_for("bson").encode({"a": 1}), {"data": {"a": 1}}),
        ("bson", b"\x05", {"text": "\x05"}),
    ],
)
def test_json_bodies_by_message_type(message_type: str, body: bytes, expected: Any) -> None:
    shown = line(body, message_type)
    del shown["header"]
    assert shown == expected


def test_pretty_shows_the_header_and_an_indented_body() -> None:
    printer = make_printer("pretty", None, None, "json", "t")
    text = printer.add(message(b'{"a":{"b":[1.10,{}],"c":[]},"d":"x, {y}: [z]\\""}', k="5")).decode()
    assert text == (
        "t  command publish  sowkey 5\n"
        '  {\n    "a": {\n      "b": [\n        1.10,\n        {}\n      ],\n      "c": []\n    },\n'
        '    "d": "x, {y}: [z]\\""\n  }\n'
    )


def test_indenting_changes_nothing_but_spaces() -> None:
    for text in ("1", '"a b"', "[]", "{}", '{"a":[{},[],[[1,2],-1e5]],"b":{"c":null}}', '["\\\\",",","\\u00e9"]'):
        assert json.loads(indented(text)) == json.loads(text)
        if " " not in text:
            assert "".join(indented(text).split()) == text


@pytest.mark.parametrize("output", ["pretty", "table"])
def test_a_message_cannot_control_the_terminal(output: str) -> None:
    for message_type, body in (("json", '{"a\u009b2J":"\u202e\u007f"}'.encode()), ("xml", b"<a>\x1b[2J\r</a>")):
        printer = make_printer(output, None, None, message_type, "t")
        shown = (printer.add(message(body, topic="\x1b]0;x\x07")) + printer.flush()).decode()
        assert not set(shown) & set("\x1b\x07\x7f\x9b\r\u202e")
        assert "\\x1b]0;x\\x07" in shown


def test_printable_keeps_other_text() -> None:
    assert printable("ä\t€\n𝄞") == "ä\t€\n𝄞"


def table(bodies: list[bytes], width: int = 60, columns: tuple[str, ...] | None = None, **header: Any) -> list[str]:
    printer = Table("json", "t", width, columns)
    shown = b"".join(printer.add(message(body, **header)) for body in bodies) + printer.flush()
    return shown.decode().splitlines()


def test_a_table_has_a_column_per_field() -> None:
    assert table([b'{"id":1,"side":"buy"}', b'{"id":20,"price":1.50,"of":{"a":[1.0,null]}}']) == [
        "id  side  price  of",
        '1   buy',
        '20        1.50   {"a":[1.0,null]}',
    ]


def test_a_table_stays_within_its_width() -> None:
    fields = {f"field{n}": "x" * n for n in range(40)}
    wide = json.dumps(fields | {"日本": "語" * 50}).encode()
    long = json.dumps({f"field{n}": "x" * 30 for n in range(9)}).encode()
    for width in range(20, 90):
        for bodies in ([wide, b'{"new":1}', wide], [long, wide]):
            assert all(len(shown) <= width for shown in table(bodies, width)), width
    assert table([wide], 33)[1].endswith("…")
    assert table([b'{"a":"%b"}' % ("語" * 50).encode()], 200)[1] == "語" * 19 + " …"


def test_fields_of_later_messages_become_columns() -> None:
    printer = Table("json", "t", 40, None)
    assert printer.add(message(b'{"a":1}')) == b""
    assert printer.flush() == b"a\n1\n"
    assert printer.add(message(b'{"a":2}')) == b"2\n"
    assert printer.add(message(b'{"b":"x","a":3}')) == b"a  b\n3  x\n"
    assert printer.add(message(b'{"a":4}')) == b"4\n"
    assert printer.flush() == b""


def test_a_table_of_many_messages_begins_before_their_end() -> None:
    printer = Table("json", "t", 40, None)
    written = [printer.add(message(b'{"a":1}')) for _ in range(60)]
    assert written[0] == b""
    assert written[-1] == b"1\n"
    assert b"".join(written) == b"a\n" + b"1\n" * 60


def test_chosen_columns() -> None:
    columns = ("/a/b", "c", "{command}", "missing")
    assert table([b'{"a":{"b":1},"c":"x","d":0}', b"no fields"], 60, columns) == [
        "/a/b  c  {command}  missing",
        "1     x  publish",
        "         publish",
    ]


def test_bodies_without_fields_and_other_topics_have_columns() -> None:
    assert table([b"line 1\nline 2", b"[1]"]) == ["data", "line 1\\nline 2", "[1]"]
    assert table([b'{"a":1}'], topic="other") == ["topic  a", "other  1"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("-output", "json", "-format", "{data}"), "-format and -output exclude each other"),
        (("-columns", "a"), "add -output table"),
        (("-output", "table", "-columns", "a,,b"), "has an empty name"),
        (("-output", "xml"), "'raw', 'json', 'pretty', 'table'"),
    ],
)
def test_output_options_that_exclude_each_other_are_wrong_usage(words: tuple[str, ...], told: str) -> None:
    for command in ("subscribe", "sow", "sow_and_subscribe"):
        done = invoke(command, "-server", "h:1", "-topic", "t", *words)
        assert (done.exit_code, told in done.output) == (2, True), done.output
