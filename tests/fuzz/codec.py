"""The wire codec against an oracle: a second, independent reader of protocol.md §2 and §3.

The oracle is slow and simple: one regular expression for the syntax, `json` for the text of strings.
"""

import json
import re
from collections.abc import Mapping

from amps._core.wire import framing as wire
from tests.fuzz import cases
from tests.support.peer import ABBREVIATIONS, Value, frame

_STRING = rb'"(?:[^"\\]|\\.)*"'
_PAIR = re.compile(
    rb"[ \t\r\n]*(" + _STRING + rb")[ \t\r\n]*:[ \t\r\n]*(" + _STRING + rb"|-?[0-9]+|true|false)[ \t\r\n]*",
    re.DOTALL,
)
_EMPTY = re.compile(rb"\{[ \t\r\n]*\}")

LONG_NAMES = {short: long for long, short in ABBREVIATIONS.items()} | {"v": "version", "order_by": "orderby"}
INTEGER_FIELDS = frozenset(
    ["batch_size", "top_n", "expiration", "seq", "msg_len", "gseq", "matches", "topic_matches",
     "records_returned", "records_inserted", "records_updated", "records_deleted", "timeout_interval",
     "max_msgs"]
)  # fmt: skip
BOOLEAN_FIELDS = frozenset(["data_only", "send_empty", "send_keys", "send_oof", "send_matching_ids"])


class Finding(AssertionError):
    """The code under test disagrees with the oracle."""


def raw_header(payload: bytes) -> tuple[dict[str, bytes], int] | None:
    """Return the texts of the known fields in the header at the start of a payload, quotes included, and where it
    ends; None if its syntax is wrong.
    """
    empty = _EMPTY.match(payload)
    if empty is not None:
        return {}, empty.end()
    if payload[:1] != b"{":
        return None
    texts: dict[str, bytes] = {}
    at = 1
    while True:
        pair = _PAIR.match(payload, at)
        if pair is None:
            return None
        key = pair[1][1:-1].decode("utf-8", "surrogateescape")
        name = LONG_NAMES.get(key, key)
        if name in wire.FIELD_NAMES:
            texts[name] = pair[2]
        at = pair.end()
        if payload[at : at + 1] == b"}":
            return texts, at + 1
        if payload[at : at + 1] != b",":
            return None
        at += 1


def oracle(payload: bytes) -> tuple[dict[str, Value], int] | None:
    """Return the header at the start of a payload, and where it ends; None if it is malformed."""
    found = raw_header(payload)
    if found is None:
        return None
    texts, end = found
    try:
        return {name: _value(name, text) for name, text in texts.items()}, end
    except ValueError:
        return None


def _value(name: str, text: bytes) -> Value:
    plain = json.loads(text.decode("utf-8"), strict=False) if text[:1] == b'"' else text.decode()
    if name in INTEGER_FIELDS and re.fullmatch(r"-?[0-9]{1,20}", plain) and len(plain) <= 20:
        return int(plain)
    if name in BOOLEAN_FIELDS and plain in ("true", "false"):
        return bool(plain == "true")
    return str(plain)


def check_header(payload: bytes) -> None:
    """Check that the parser and the oracle agree on a payload."""
    try:
        parsed = wire.parse_header(payload)
    except wire.HeaderError:
        parsed = None
    expected = oracle(payload)
    if parsed != expected:
        raise Finding(f"payload {payload!r}\n parser: {parsed}\n oracle: {expected}")


def check_round_trip(fields: Mapping[str, Value], body: bytes) -> None:
    """Check that the reader and the oracle read back the fields that the writer wrote."""
    data = wire.encode_frame(fields, body)
    decoder = wire.FrameDecoder()
    decoder.feed(data)
    payload = decoder.next_frame()
    if payload is None or decoder.next_frame() is not None:
        raise Finding(f"{fields} is not one frame: {data!r}")
    header, end = wire.parse_header(payload)
    if header != fields or payload[end:] != body:
        raise Finding(f"written {fields} {body!r}, read {header} {payload[end:]!r}")
    if oracle(payload) != (header, end):
        raise Finding(f"written {data!r}, the oracle reads {oracle(payload)}")


def check_stream(payloads: list[bytes], pieces: list[bytes]) -> None:
    """Check that the decoder returns the frames of a stream unchanged, wherever the stream is cut."""
    decoder = wire.FrameDecoder()
    decoded = []
    for piece in pieces:
        decoder.feed(piece)
        while (payload := decoder.next_frame()) is not None:
            decoded.append(payload)
    if decoded != [payload for payload in payloads if payload]:
        raise Finding(f"frames {payloads!r}\n in pieces {pieces!r}\n decoded {decoded!r}")
    if decoder.buffered_bytes:
        raise Finding(f"{decoder.buffered_bytes} bytes left over of {pieces!r}")


def run(seed: int) -> None:
    """Run one case of each kind."""
    rng = cases.Random(seed)
    check_header(cases.random_payload(rng))
    check_header(cases.mutate(rng, cases.encode_oddly(rng, cases.random_command(rng))))
    fields: dict[str, Value] = {"cmd": rng.choice(cases.COMMANDS)}
    for name in rng.sample([name for name in cases.FIELDS if name in wire.FIELD_NAMES], rng.randrange(8)):
        fields[name] = _plain_value(rng, name)
    check_round_trip(fields, cases.random_body(rng))
    payloads = [cases.random_payload(rng) if rng.random() < 0.9 else b"" for _ in range(rng.randrange(6))]
    check_stream(payloads, cases.cuts(rng, b"".join(frame(payload) for payload in payloads)))


def _plain_value(rng: cases.Random, name: str) -> Value:
    if name in INTEGER_FIELDS:
        return rng.choice([number for number in cases.NUMBERS if abs(number) < 2**64])
    if name in BOOLEAN_FIELDS:
        return rng.random() < 0.5
    return rng.choice([text for text in cases.STRINGS if text != "\ud800"])
