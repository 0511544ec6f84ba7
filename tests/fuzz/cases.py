"""Generators of headers, frames and byte streams: well-formed, odd and broken, all from one `Random`."""

import json
import random
from collections.abc import Sequence

from tests.support.peer import ABBREVIATIONS, Value, frame

Random = random.Random

COMMANDS = [
    "publish", "p", "delta_publish", "subscribe", "delta_subscribe", "sow", "sow_and_subscribe",
    "sow_and_delta_subscribe", "unsubscribe", "sow_delete", "heartbeat", "flush", "start_timer", "stop_timer",
    "logon",
]  # fmt: skip
STRANGE_COMMANDS = ["ack", "nosuch", "", "P", "p ", "oof", "group_begin", "publish\0"]

TOPICS = [
    "L/a",
    "L/b",
    "plain",
    "^L/",
    ".*",
    "L/.*",
    "^ord(",
    "/AMPS/devnull",
    "/AMPS/x",
    "ä",
    "\0",
    "t" * 5000,
]
BOOKMARKS = [
    "0",
    "0|1|",
    "0|1",
    "1|1|",
    "1|1|,2|2|",
    "abc",
    "[1|1|:2|2|]",
    "20240101T000000Z",
    ",",
    "1|",
    "9" * 30,
]
OPTIONS = [
    "", "none", "replace", "bookmark", "timestamp", "timestamp,", "live", "fully_durable",
    "live,fully_durable", "bookmark_not_found=epoch", "bookmark_not_found=fail", "rate=10", "pause",
    "resume", "conflation=1s", "conflation_key=[/a", "select=[-/,+/a]", "max_backlog=10", "non_regex_topic",
    "bogus", "start,60", "beat", "stop", "ack_conflation=10ms", ",,,", "=", "[", "top_n=1,skip_n=1",
    "projection=[SUM(/a) AS /b],grouping=[/c]",
]  # fmt: skip
ACKS = ["none", "received", "processed", "persisted", "completed", "stats", "parsed", "processed,completed",
        "received,processed,persisted,completed,stats", "bogus", "", ","]  # fmt: skip
STRINGS = [
    "",
    "a",
    "1",
    "9",
    "\0",
    '"',
    "\\",
    "}",
    "{}",
    "é",
    "🙂",
    "\ud800",
    "a,b",
    "all",
    "x" * 3000,
    "\n",
    " 7 ",
]
NUMBERS = [0, 1, 2, 3, 10, 255, 10001, 2**31, 2**32, 2**63, 2**64 - 1, 2**64, -1, 10**30]

VALUES: dict[str, Sequence[Value]] = {
    "topic": TOPICS,
    "bookmark": BOOKMARKS,
    "opts": OPTIONS,
    "ack_type": ACKS,
    "sub_id": ["s", "t", "s,t", "all", ""],
    "query_id": ["q", ""],
    "cmd_id": ["1", "2", "x" * 500, ""],
    "filter": ["1=1", "/a >", "/a > 1", ""],
    "correlation_id": ["abc+/=", "not base64 \0", "x" * 2000],
    "send_matching_ids": [True, False, "true", "no"],
    "client_name": ["fuzz-1", "fuzz-2", "", "[]\n"],
    "message_type": ["json", "nosuch", ""],
    "heartbeat": ["start", "stop", "beat", "?"],
    "timeout_interval": [0, 60, -1, "soon"],
}
"""Values that pass the first checks, by full field name; other fields take any string or number."""

FIELDS = [
    "cmd_id", "ack_type", "topic", "filter", "opts", "sub_id", "query_id", "bookmark", "batch_size",
    "top_n", "orderby", "sow_key", "sow_keys", "expiration", "seq", "correlation_id", "client_name",
    "user_id", "password", "message_type", "version", "send_matching_ids", "heartbeat", "timeout_interval",
    "data_only", "unknown_key",
]  # fmt: skip


def random_bytes(rng: Random, most: int) -> bytes:
    return rng.randbytes(rng.randrange(most + 1))


def random_body(rng: Random) -> bytes:
    return rng.choice([b"", b"{}", b'{"a":1}', b"}" * 5, b"\0" * 9, random_bytes(rng, 300), b"x" * 20_000])


def random_value(rng: Random, field: str) -> Value:
    if rng.random() < 0.8 and field in VALUES:
        return rng.choice(VALUES[field])
    other: list[Value] = [rng.choice(STRINGS), rng.choice(NUMBERS), rng.random() < 0.5]
    return rng.choice(other)


def random_command(rng: Random) -> dict[str, Value]:
    """A command, by full field names, with fields that are plausible for it."""
    command: Value = rng.choice(COMMANDS if rng.random() < 0.97 else STRANGE_COMMANDS)
    header: dict[str, Value] = {"cmd": command}
    if rng.random() < 0.9:
        header["topic"] = rng.choice(TOPICS)
    for field in rng.sample(FIELDS, rng.randrange(6)):
        header[field] = random_value(rng, field)
    return header


def encode_oddly(rng: Random, fields: dict[str, Value]) -> bytes:
    """Write a header of these fields in a random one of the forms that are well-formed (protocol.md D2)."""

    def blank() -> str:
        return rng.choice(["", "", "", " ", "\t", "\r\n", "  "])

    pairs = []
    for name, value in fields.items():
        key = ABBREVIATIONS.get(name, name) if rng.random() < 0.7 else name
        if isinstance(value, bool):
            text = "true" if value else "false"
            text = f'"{text}"' if rng.random() < 0.3 else text
        elif isinstance(value, int):
            text = f'"{value}"' if rng.random() < 0.3 else str(value)
        else:
            text = json.dumps(value, ensure_ascii=rng.random() < 0.5)
        pairs.append(f"{blank()}{json.dumps(key)}{blank()}:{blank()}{text}{blank()}")
    rng.shuffle(pairs)
    return ("{" + ",".join(pairs) + "}").encode("utf-8", "replace")


def mutate(rng: Random, data: bytes) -> bytes:
    """The same bytes with a few random changes."""
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        if not changed:
            return rng.randbytes(3)
        at = rng.randrange(len(changed))
        match rng.randrange(6):
            case 0:
                changed[at] ^= 1 << rng.randrange(8)
            case 1:
                changed[at] = rng.choice(b'{}":,\\\0 0truefalse\xff')
            case 2:
                del changed[at : at + rng.randrange(1, 9)]
            case 3:
                changed[at:at] = rng.choice(
                    [b'"', b"\\", b"}", b"{", b",", b":", b"\0", b'"c":"p",', b"\xc3"]
                )
            case 4:
                end = rng.randrange(at, len(changed)) + 1
                changed[at:at] = changed[at:end]
            case _:
                del changed[at:]
    return bytes(changed)


def random_payload(rng: Random) -> bytes:
    """Header and body of one frame, well-formed or not."""
    kind = rng.random()
    if kind < 0.05:
        return random_bytes(rng, 200)
    header = encode_oddly(rng, random_command(rng))
    if kind < 0.4:
        header = mutate(rng, header)
    return header + random_body(rng)


def random_frame(rng: Random) -> bytes:
    return frame(random_payload(rng))


def cuts(rng: Random, data: bytes) -> list[bytes]:
    """The data in pieces of random sizes."""
    positions = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(12)))
    return [data[a:b] for a, b in zip([0, *positions], [*positions, len(data)], strict=True)]
