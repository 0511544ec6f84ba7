"""Filters on messages of every type, through a server (expressions.md §12, §13, §15)."""

import struct

import msgpack
import pytest

from tests.support.peer import bodies_of
from tests.support.peers import Peers
from tests.support.server import ServerProcess

NVFIX = b"sym=ACME\x01qty=250\x01px=12.50\x01memo=\x01code=0042\x01"
FIX = b"35=D\x0155=ACME\x0138=250\x0144=12.5\x01"
XML = b'<Trade ref="T-9"><Sym>ACME</Sym><Qty>250</Qty><Leg>buy</Leg><Leg>sell</Leg><Memo/></Trade>'
PACKED = msgpack.packb(
    {
        "n": None,
        "b": True,
        "i": 5,
        "f": 5.0,
        "s": "x",
        "arr": [1, 2],
        "m": {"k": 1},
        "e": msgpack.ExtType(7, b"ab"),
    }
)


def parts(*contents: bytes, payload: bytes = b"") -> bytes:
    return b"".join(struct.pack(">I", len(content)) + content for content in contents) + payload


def bson(*elements: bytes) -> bytes:
    content = b"".join(elements) + b"\0"
    return struct.pack("<i", len(content) + 4) + content


BSON = bson(
    b"\x0an\0",
    b"\x08b\0\x01",
    b"\x10i\0" + struct.pack("<i", 5),
    b"\x12l\0" + struct.pack("<q", 2**40),
    b"\x01f\0" + struct.pack("<d", 5.5),
    b"\x02s\0" + struct.pack("<i", 2) + b"x\0",
    b"\x04arr\0" + bson(b"\x100\0" + struct.pack("<i", 1), b"\x101\0" + struct.pack("<i", 2)),
    b"\x03m\0" + bson(b"\x10k\0" + struct.pack("<i", 1)),
    b"\x07id\0" + bytes.fromhex("0123456789abcdef01234567"),
    b"\x09at\0" + struct.pack("<q", 1264413840000),
)
PHOTO = parts(b'{"id":1,"m":"a"}', b'{"m":"b","c":2}', b"\x00\xff{", payload=b'{"id":9}\xff')
BOTH = parts(b'{"id":1,"m":"a"}', b'{"m":"b","c":2}')
TICK = struct.pack("<i4xd", 7, 12.5) + struct.pack(">H", 258) + b"ab\0\xff"
SUB, SEVEN, REPEATED, CASH = b"\x0a\x02\x08\x05", b"\x10\x07", b"\x22\x03\x01\x02\x03", b"\x32\x02ok"

# Section of expressions.md, message type, filter, messages that it delivers, messages that it does not.
CASES: list[tuple[str, str, str, list[bytes], list[bytes]]] = [
    ("13 row 104", "nvfix", "/qty = 250 AND /px = 12.5 AND /memo IS NULL", [NVFIX], [b"qty=250\x01"]),
    ("13 row 105", "nvfix", "/code = 42 AND /code = '0042'", [NVFIX], []),
    ("13 row 105", "nvfix", "/code = '42'", [], [NVFIX]),
    (
        "13 row 106",
        "fix",
        "/55 = 'ACME' AND /38 > 100 AND /38 > /44 * 10",
        [FIX],
        [FIX.replace(b"250", b"99")],
    ),
    (
        "13 row 107",
        "xml",
        "/Trade/@ref = 'T-9' AND /Trade/Qty = 250 AND /Trade/Memo IS NULL",
        [XML],
        [b"<a/>"],
    ),
    ("13 row 108", "xml", "/Trade/Leg = 'sell'", [XML], [XML.replace(b"sell", b"buy")]),
    ("13 row 117", "binary", "/x = 1", [], [b'{"x":1}']),
    ("13 row 117", "binary", "1=1", [b'{"x":1}', b"\x00\xff", b""], []),
    ("15 item 37", "nvfix", "/a = 1 AND /b IS NULL", [b"a=1\x01b=\x01"], [b"a=2\x01"]),
    ("15 item 37", "nvfix", "/code = 42", [b"code=0042\x01"], []),
    ("15 item 37", "nvfix", "/code = '42'", [], [b"code=0042\x01"]),
    (
        "15 item 38",
        "fix",
        "/38 > 100 AND /44 == /99",
        [b"38=200\x0144=7\x0199=7\x01"],
        [b"38=200\x0144=7\x01"],
    ),
    ("15 item 38", "fix", "/Name = 1", [], [b"38=200\x01", b"1=1\x01"]),
    ("15 item 38", "fix", "/58 = 'b'", [b"58=a\x0158=b\x01"], [b"58=a\x01"]),
    ("15 item 39", "xml", "/O/@u = 'f' AND /O/S = 'I'", [b'<O u="f"><S>I</S></O>'], [b'<O u="f"><S/></O>']),
    ("15 item 39", "xml", "/S = 'I'", [], [b'<O u="f"><S>I</S></O>']),
    ("15 item 39", "xml", "/O/S IS NULL", [b"<O><S/></O>"], [b"<O><S>I</S></O>"]),
    (
        "15 item 40",
        "xml",
        r"""/O/@p LIKE "^90\..*" AND /O/@p < 91.0""",
        [b'<O p="90.25"/>'],
        [b'<O p="91.25"/>'],
    ),
    (
        "15 item 41",
        "msgpack",
        "/n IS NULL AND /b = 1 AND /i = 5 AND /f = 5 AND /s = 'x' AND /arr = 2 AND /m/k = 1 AND /e = 'ab'",
        [PACKED],
        [b"\x80", PACKED.replace(b"ab", b"ac")],
    ),
    ("15 item 42", "bflat", "/int = 9", [b"\x1bint\x09"], [b"\x1bint\x08"]),
    ("15 item 43", "json", "/code = 1", [b'{"code":1,"d":"x","code":2}'], [b'{"code":2,"code":1}']),
    ("15 item 43", "last-json", "/code = 2", [b'{"code":1,"d":"x","code":2}'], [b'{"code":2,"code":1}']),
    ("15 item 45", "binary", "/x = 1 OR /y IS NOT NULL", [], [b"x=1\x01", b"<x>1</x>", b"\x81\xa1x\x01"]),
    ("15 item 46", "xml", "/O/S = 1", [b"<O><S>1</S></O>"], [b"<O><S>1</S></P>", b"<O>", b"\xff"]),
    ("15 item 46", "fix", "/1 = 1", [b"1=1\x01"], [b"2\x011=1\x01", b"=5\x011=1\x01"]),
    ("15 item 66", "pipe-nvfix", "/a = 1 AND /b = 2", [b"a=1|b=2|"], [b"a=1\x01b=2\x01"]),
    ("15 item 67", "photo", "/0/id = 1 AND /1/m = 'b'", [PHOTO], [BOTH.replace(b'"id":1', b'"id":2')]),
    ("15 item 67", "photo", "/id = 1", [], [PHOTO]),
    ("15 item 68", "both", "/id = 1", [BOTH], [parts(b"{}", b"{}")]),
    ("15 item 68", "both", "/m = 'a' AND /m = 'b'", [BOTH], [parts(b'{"m":"a"}', b"{}")]),
    (
        "15 item 69",
        "tick",
        "/id = 7 AND /px = 12.5 AND /n = 258 AND /t = 'ab'",
        [TICK, TICK + b"extra"],
        [TICK[:-1], b"\x08" + TICK[1:]],
    ),
    ("15 item 69", "tick", "/skip IS NULL", [TICK], []),
    ("15 item 70", "order", "/sub IS NOT NULL", [SUB, SUB + SEVEN], [SEVEN]),
    ("15 item 70", "order", "/n = 0", [SUB], [SEVEN]),
    ("12.5", "order", "/sub/k = 5 AND /r = 3", [SUB + REPEATED], [SUB, REPEATED]),
    ("12.5", "order", "/cash IS NOT NULL AND /card IS NULL", [CASH], [SUB]),
    (
        "12.4",
        "bson",
        "/n IS NULL AND /b = 1 AND /i = 5 AND /l = 1099511627776 AND /f = 5.5 AND /s = 'x' AND /arr = 2"
        " AND /m/k = 1 AND /id = '0123456789abcdef01234567' AND /at = 1264413840000",
        [BSON],
        [bson(), BSON.replace(b"x\0", b"y\0")],
    ),
]


@pytest.mark.parametrize(
    ("message_type", "text", "delivered", "kept_back"),
    [pytest.param(*case[1:], id=f"{case[0]} {case[1]} {case[2][:50]}") for case in CASES],
)
def test_expressions_filters_on_every_message_type(
    peers: Peers,
    typed_server: ServerProcess,
    topic: str,
    message_type: str,
    text: str,
    delivered: list[bytes],
    kept_back: list[bytes],
) -> None:
    """expressions.md §13 rows 104 to 108, 117, §15 items 37 to 46, 66 to 70: messages arrive byte for byte."""
    client = peers.logged_on(typed_server, "any", mt=message_type)
    unfiltered = peers.logged_on(typed_server, "any", mt=message_type)
    client.subscribe(topic, "s", f=text)
    unfiltered.subscribe(topic, "all")
    bodies = [*kept_back, *delivered, *kept_back]
    for body in bodies:
        client.publish(topic, body)
    assert bodies_of(client.receive_published(len(delivered))) == delivered
    client.expect_silence()
    assert bodies_of(unfiltered.receive_published(len(bodies))) == bodies


def test_expressions_messages_too_short_are_logged(
    peers: Peers, typed_server: ServerProcess, topic: str
) -> None:
    """expressions.md §12.5: the missing fields are NULL."""
    client = peers.logged_on(typed_server, "any", mt="tick")
    client.subscribe(topic, "s", f="/id = 7 AND /t IS NULL")
    client.publish(topic, TICK[:8])
    assert bodies_of(client.receive_published(1)) == [TICK[:8]]
    typed_server.log.wait_for("14-0007", "of type tick end before a field")


def test_expressions_types_keep_apart_on_one_topic(
    peers: Peers, typed_server: ServerProcess, topic: str
) -> None:
    """A filter receives messages of its own type only: the same topic in another type is another topic."""
    clients = {name: peers.logged_on(typed_server, "any", mt=name) for name in ("json", "nvfix", "last-json")}
    for client in clients.values():
        client.subscribe(topic, "s", f="/a = 1")
    for body in (b'{"a":1,"a":2}', b"a=1\x01", b'{"a":2,"a":1}'):
        for client in clients.values():
            client.publish(topic, body)
    assert bodies_of(clients["json"].receive_published(1)) == [b'{"a":1,"a":2}']
    assert bodies_of(clients["last-json"].receive_published(1)) == [b'{"a":2,"a":1}']
    assert bodies_of(clients["nvfix"].receive_published(1)) == [b"a=1\x01"]
    for client in clients.values():
        client.expect_silence()


@pytest.mark.parametrize(
    ("message_type", "text", "first", "second"),
    [
        ("nvfix", "/n > 3", b"n=4\x01", b"n=3\x01"),
        ("photo", "/1/n > 3", parts(b"", b'{"n":4}', b"", payload=b"\x01"), parts(b"", b'{"n":3}', b"")),
    ],
)
def test_expressions_filters_of_replays_of_other_types(
    peers: Peers,
    typed_server: ServerProcess,
    recorded_topic: str,
    message_type: str,
    text: str,
    first: bytes,
    second: bytes,
) -> None:
    """transaction_log.md §7.3: the rules of the message's type apply to the filter of a replay."""
    client = peers.logged_on(typed_server, "any", mt=message_type)
    client.publish_persisted(recorded_topic, [first, second, first], 1)
    client.subscribe(recorded_topic, "s", bm="0", f=text)
    assert bodies_of(client.receive_published(2)) == [first, first]
    client.publish_persisted(recorded_topic, [second, first], 4)
    assert bodies_of(client.receive_published(1)) == [first]
    client.expect_silence()
