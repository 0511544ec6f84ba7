"""Attacks on a server with message queues: every process must survive, and every command must be answered.

Commands are more often valid than those of `cases`: bookmarks are often those of present or former messages, and
options those of queues, so that the code behind the first checks is reached.
"""

from typing import Any

from tests.fuzz import cases, transactions
from tests.fuzz.codec import Finding
from tests.fuzz.server import ATTACKER_TIMEOUT_S
from tests.support.peer import ConnectionClosed, PeerError, RawClient, Silence, Value, frame
from tests.support.queues import options, queue_xml
from tests.support.server import ServerProcess

QUEUES = (
    queue_xml("Q/plain", "T/a", LeasePeriod="20ms"),
    queue_xml("Q/strict", "^T/", DefaultPublishTarget="T/b", Leasing="strict", MaxDeliveries=3, MaxCancels=2),
    queue_xml("Q/once", "T/a", Semantics="at-most-once"),
    queue_xml("Q/ranked", "T/b", Priority="/a", Expiration="50ms"),
    queue_xml("Q/barred", "T/a", BarrierExpression="/a = 7", Filter="/a IS NOT NULL", FairnessModel="fast"),
    queue_xml("Q/deep", "T/b", TargetQueueDepth=1000, MaxBacklog=5),
    queue_xml("Q/own"),
)
OPTIONS: dict[str, Any] = options(*QUEUES, log_topics=("^T/", "^Q/", "^L/", "^witness/"))

NAMES = [f"Q/{name}" for name in ("plain", "strict", "once", "ranked", "barred", "deep", "own")]
TOPICS = [*NAMES, "^Q/", "^Q/[op]", "Q/.*", ".*", "Q/nosuch", "T/a", "T/b", "^[QT]/", "^Q(", ""]
WORDS = [
    "max_backlog=1", "max_backlog=0", "max_backlog=10", "max_backlog=99999999999999999999", "max_backlog=-1",
    "max_backlog=x", "replace", "timestamp", "bookmark", "non_regex_topic", "oof", "live", "conflation=none",
    "conflation=1s", "pause", "resume", "rate=3", "top_n=3", "top_n=0,skip_n=9", "skip_n=1", "cancel", "expire",
    "lease_extension=1s", "lease_extension=99999w", "lease_extension=", "cancel,expire", "select=[+/a]", "none",
]  # fmt: skip
FILTERS = [
    "1=1",
    "/a = 1",
    "/a > 3",
    "/a IS NULL",
    "/a LIKE '^x+$'",
    "BOOKMARK() IS NULL",
    "/a >",
    "x" * 3000,
]
ORDERS = ["/a", "/a DESC", "/b/c TEXT, /a", "/a DESC TEXT", "/a/", "a", ",", "1+1", "/a," * 40, "/a SIDEWAYS"]
BODIES = [b'{"a":%d}' % number for number in range(9)] + [
    b"",
    b"{}",
    b"no json",
    b'{"a":"' + b"x" * 30_000 + b'"}',
]
COMMANDS = ["subscribe", "delta_subscribe", "sow", "sow_and_subscribe", "sow_and_delta_subscribe"]
ACKNOWLEDGEMENTS = ["processed", "processed,completed,stats", "persisted", "received", "none", ""]


def attack_queues(server: ServerProcess, seed: int) -> None:
    """Use queues in strange ways, over one connection or two that alternate."""
    rng = cases.Random(seed)
    sent: list[bytes] = []
    with RawClient.tcp(server.port(), timeout_s=ATTACKER_TIMEOUT_S) as client:
        try:
            client.logon(f"queue-fuzz-{rng.choice([rng.randrange(3), seed])}")
            _use(client, rng, sent)
        except (ConnectionClosed, ConnectionResetError, BrokenPipeError):
            pass  # a disconnect is a correct answer
        except Silence as silence:
            raise Finding(f"the server neither answers nor closes: {silence}; sent {sent!r}") from None
        except PeerError as error:
            raise Finding(f"the server's answer is malformed: {error}; sent {sent!r}") from None
    failures = server.log.search("unexpected failure")
    if failures:
        raise Finding(f"an error in a worker: {failures[-1]}; sent {sent!r}")


def _use(client: RawClient, rng: cases.Random, sent: list[bytes]) -> None:
    bookmarks = ["1|1|", "0|0|", "18446744073709551615|18446744073709551615|"]
    delivered: list[tuple[str, str]] = []  # queue and bookmark
    if rng.random() < 0.5:
        # Without this, few seeds have messages in hand.
        client.subscribe(rng.choice(NAMES), "mine", o="max_backlog=5")
        client.publish_all(rng.choice(["T/a", "T/b", "Q/own"]), BODIES[:3])
        _read(client, "begun", bookmarks, delivered)
    for number in range(rng.randrange(2, 15)):
        if rng.random() < (0.5 if delivered else 0.1):
            header, body = _random_transaction(rng, bookmarks, delivered, number)
        else:
            header, body = _random_command(rng, bookmarks)
        data = frame(cases.encode_oddly(rng, header), body)
        if rng.random() < 0.05:
            data = frame(cases.mutate(rng, data[4:]))
        sent.append(data)
        client.send_bytes(data)
        if rng.random() < 0.5:
            _read(client, f"f{number}", bookmarks, delivered)
    _read(client, "the-end", bookmarks, delivered)


def _read(client: RawClient, cid: str, bookmarks: list[str], delivered: list[tuple[str, str]]) -> None:
    """Read until all commands have been processed, and remember the bookmarks of deliveries."""
    client.send({"c": "flush", "cid": cid, "a": "processed"})
    while not (message := client.receive()).is_ack("processed", cid):
        if message.get("bm") and message["c"] != "ack":
            bookmarks.append(str(message["bm"]))
            if message["t"] in NAMES:
                delivered.append((str(message["t"]), str(message["bm"])))


def _random_command(rng: cases.Random, bookmarks: list[str]) -> tuple[dict[str, Value], bytes]:
    """A command with full field names, and its body."""
    kind = rng.random()
    header: dict[str, Value] = {"cmd_id": str(rng.randrange(5)), "ack_type": rng.choice(ACKNOWLEDGEMENTS)}
    if kind < 0.35:
        header |= {"cmd": "publish", "topic": rng.choice([*NAMES, "T/a", "T/b", "T/a", "T/b"])}
        if rng.random() < 0.2:
            header["expiration"] = rng.choice([0, 1, 10**12, -1])
        return header, rng.choice(BODIES)
    header["topic"] = rng.choice(TOPICS)
    header["opts"] = ",".join(rng.sample(WORDS, rng.choice([0, 1, 1, 2, 3])))
    if rng.random() < 0.3:
        header["filter"] = rng.choice(FILTERS)
    if kind < 0.65:
        header |= {"cmd": rng.choice(COMMANDS), "sub_id": rng.choice("abc")}
        for field, values in (
            ("orderby", ORDERS),
            ("batch_size", [1, 7, 10_000]),
            ("top_n", [0, 2, -1, 2**64]),
        ):
            if rng.random() < 0.3:
                header[field] = rng.choice(values)
        if rng.random() < 0.1:
            header["bookmark"] = rng.choice(["0", "0|1|", "x", *bookmarks])
        if rng.random() < 0.1:
            header["sow_keys"] = rng.choice(["1,2,3", "x", ",", "9" * 500, "1," * 5000])
    elif kind < 0.75:
        header |= {"cmd": "unsubscribe", "sub_id": rng.choice(["a", "b", "a,b,c", "all", ""])}
    else:
        header["cmd"] = "sow_delete"
        if rng.random() < 0.8:
            header.pop("filter", None)
            header["bookmark"] = _random_bookmarks(rng, bookmarks)
        if rng.random() < 0.3:
            header["seq"] = rng.choice(cases.NUMBERS)
        if rng.random() < 0.1:
            header["sow_keys"] = "1,2"
    return header, rng.choice(BODIES) if rng.random() < 0.1 else b""


def _random_transaction(
    rng: cases.Random, bookmarks: list[str], delivered: list[tuple[str, str]], number: int
) -> tuple[dict[str, Value], bytes]:
    """A transaction, mostly well-formed and of messages that were delivered; bodies name other topics and these."""
    header: dict[str, Value] = {
        "cmd": "transaction",
        "cmd_id": "t",
        "ack_type": rng.choice(["persisted", "persisted", "persisted,processed", *ACKNOWLEDGEMENTS]),
        "topic": rng.choice([*NAMES, *NAMES, *TOPICS]),
        "bookmark": rng.choice(bookmarks) if rng.random() < 0.7 else _random_bookmarks(rng, bookmarks),
        "seq": 10 * number + 1 if rng.random() < 0.8 else rng.choice([*range(1, 50), *cases.NUMBERS]),
    }
    if delivered and rng.random() < 0.8:
        header["topic"], header["bookmark"] = rng.choice(delivered[-5:])
    if rng.random() < 0.1:
        header.pop(rng.choice(list(header)))
    if rng.random() < 0.1:
        header["filter"] = "1=1"
    if rng.random() < 0.7:
        publishes = [
            frame(cases.encode_oddly(rng, {"topic": rng.choice(["T/a", "T/b", *NAMES])}), rng.choice(BODIES))
            for _ in range(rng.randrange(5))
        ]
        return header, b"".join(publishes)
    return header, transactions.random_body(rng)


def _random_bookmarks(rng: cases.Random, bookmarks: list[str]) -> str:
    """A list of bookmarks, mostly real ones; sometimes a long one."""
    count = rng.choice([1, 1, 1, 2, 5, 3000])
    chosen = [rng.choice(bookmarks) for _ in range(count)]
    if rng.random() < 0.3:
        chosen.append(rng.choice([*cases.BOOKMARKS, "\0", "1|1", "-1|1|", "1|1|1|", " "]))
    return rng.choice([",", ",", ",", ", ", ";", ",,"]).join(chosen)
