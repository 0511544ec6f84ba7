"""Redis as a keeper of states: a JSON text for each key (SET), a hash for each key (HSET), or the module RediSearch.

Orders that are found by their symbol have a set of keys for each symbol, which the publisher maintains (SADD); the
query is SORT … BY nosort GET, one round trip. Redis itself cannot filter by content: the client reads everything (SCAN
and MGET) and parses it. With RediSearch (Debian: redis-redisearch) the fields of the filter are indexed beforehand.

A start reads the append-only file. It is written anew first, as Redis does by itself from time to time.
"""

import importlib
import importlib.util
import json
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from perf.load import FIRST_NUMBER
from perf.orders.lines import SCAN_PRICE_LIMIT, Document, OrderLines, is_found
from perf.orders.records import CURRENCY, QUANTITY_LEAST, QUANTITY_MOST, REGION, STATUSES, symbol
from perf.peers.redis import RedisEverySecond, encode
from perf.peers.state_server import PIPELINED, Asking, StateServer, lane_of
from perf.pump import RECEIVE_BYTES, Lane, PeerError, connect
from perf.state_load import KEY, Numbers

CHUNK = 1000
SCAN_COUNT = 2000
START_LIMIT_S = 300.0
SEARCH_MODULE = Path("/usr/lib/redis/modules/redisearch.so")


def key_of(number: int | bytes) -> bytes:
    return b"s:%d" % number if isinstance(number, int) else b"s:" + number


def count_replies(received: memoryview) -> int:
    """One line feed for each of the short replies to SET (`+OK`) and HSET (`:0`)."""
    data = received.tobytes()
    if b"-" in data:
        raise PeerError(f"Redis refused: {data[:300]!r}")
    return data.count(b"\n")


class Conversation:
    """A connection on which commands and replies are Python objects."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._hiredis = importlib.import_module("hiredis")
        self._reader = self._hiredis.Reader()

    def ask(self, *words: bytes) -> Any:
        return self.ask_all([encode(*words)])[0]

    def ask_all(self, commands: Sequence[bytes]) -> list[Any]:
        """Send commands, and return their replies. Raises PeerError."""
        self.sock.sendall(b"".join(commands))
        replies: list[Any] = []
        while len(replies) < len(commands):
            reply = self._reader.gets()
            if reply is False:
                data = self.sock.recv(RECEIVE_BYTES)
                if not data:
                    raise PeerError("the server closed the connection")
                self._reader.feed(data)
                continue
            if isinstance(reply, self._hiredis.ReplyError):
                raise PeerError(f"Redis refused: {reply}")
            replies.append(reply)
        return replies


class RedisState(StateServer, RedisEverySecond):
    name = "redis-set-everysec"
    title = "Redis, SET of JSON (appendfsync everysec)"
    window = 16_000

    def version(self) -> str:
        if importlib.util.find_spec("hiredis") is None:
            raise PeerError("hiredis is not installed: pip install '.[perf]'")
        return super().version()

    @cached_property
    def _conversation(self) -> Conversation:
        return Conversation(connect(self.port))

    def prepare(self) -> None:
        """Wait until everything is loaded."""
        self.__dict__.pop("_conversation", None)
        deadline = time.monotonic() + START_LIMIT_S
        while True:
            try:
                self._conversation.ask(b"GET", b"s:0")
                return
            except PeerError as error:
                if "LOADING" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def condense(self) -> None:
        """Write the append-only file anew."""
        self._conversation.ask(b"BGREWRITEAOF")
        while b"aof_rewrite_in_progress:1" in self._conversation.ask(b"INFO", b"persistence"):
            time.sleep(0.1)

    def lane(self, templates: Sequence[bytes], numbers: Numbers, version: int, number: int) -> Lane:
        commands = [encode(*self.write_command(template)) for template in templates]
        return lane_of(connect(self.port), commands, numbers, version, count_replies, self.window)

    def write_command(self, record: bytes) -> list[bytes]:
        return [b"SET", key_of(KEY), record]

    def value(self, number: int) -> bytes | None:
        value: bytes | None = self._conversation.ask(b"GET", key_of(number))
        return value

    def count(self) -> int:
        return int(self._conversation.ask(b"DBSIZE"))

    def load_orders(self, orders: OrderLines) -> None:
        documents = enumerate(orders.documents(), start=FIRST_NUMBER)
        symbols = iter(orders.symbol_numbers().tolist())
        while part := list(islice(documents, CHUNK)):
            commands = [
                encode(*command)
                for number, document in part
                for command in self.order_commands(number, document, next(symbols))
            ]
            self._conversation.ask_all(commands)

    def order_commands(self, number: int, document: bytes, symbol_number: int) -> Iterable[list[bytes]]:
        """The commands that store an order."""
        yield [b"SET", key_of(number), document]
        yield [b"SADD", symbol_key(symbol_number), b"%d" % number]

    @cached_property
    def _asking(self) -> Asking:
        return Asking(connect(self.port))

    def by_number(self, numbers: Numbers, symbols: Sequence[int]) -> int:
        came = 0
        for first in range(0, len(numbers), PIPELINED):
            part = numbers[first : first + PIPELINED].tolist()
            came += self._asking.ask(b"".join(encode(*self.get_command(number)) for number in part), len(part))
        return came

    def get_command(self, number: int) -> list[bytes]:
        return [b"GET", key_of(number)]

    def by_symbol(self, symbols: Sequence[int], expected: int) -> int:
        queries = [encode(*self.symbol_command(number)) for number in symbols]
        return self._asking.ask(b"".join(queries), expected)

    def symbol_command(self, number: int) -> list[bytes]:
        return [b"SORT", symbol_key(number), b"BY", b"nosort", b"GET", b"s:*"]

    def scan(self, expected: int) -> int:
        return sum(is_found(document) for document in self._documents())

    def _documents(self) -> Iterator[Document]:
        cursor, ask = b"0", self._conversation.ask
        while True:
            cursor, keys = ask(b"SCAN", cursor, b"MATCH", b"s:*", b"COUNT", b"%d" % SCAN_COUNT)
            if keys:
                yield from map(orjson.loads, ask(b"MGET", *keys))
            if cursor == b"0":
                return


def symbol_key(number: int) -> bytes:
    return b"x:%d" % number


class RedisStateAlways(RedisState):
    name = "redis-set-always"
    title = "Redis, SET of JSON (appendfsync always)"
    fsync = "always"


class RedisHash(RedisState):
    """A hash for each record; nested fields have names with dots."""

    name = "redis-hash-everysec"
    title = "Redis, HSET of fields (appendfsync everysec)"

    def write_command(self, record: bytes) -> list[bytes]:
        return [b"HSET", key_of(KEY), *words_of(json.loads(record))]

    def delta_lane(self, templates: Sequence[bytes], numbers: Numbers, version: int, number: int) -> Lane:
        return self.lane([json.dumps(change_of(template)).encode() for template in templates], numbers, version, number)

    def value(self, number: int) -> bytes | None:
        words = self._conversation.ask(b"HGETALL", key_of(number))
        names = (name.decode() for name in words[::2])
        return orjson.dumps(dict(zip(names, (read(word) for word in words[1::2]), strict=True))) if words else None

    def order_commands(self, number: int, document: bytes, symbol_number: int) -> Iterable[list[bytes]]:
        yield [b"HSET", key_of(number), *words_of(orjson.loads(document))]


class RedisHashAlways(RedisHash):
    name = "redis-hash-always"
    title = "Redis, HSET of fields (appendfsync always)"
    fsync = "always"


def change_of(template: bytes) -> Document:
    """The fields of a change without those of its key."""
    return {name: value for name, value in json.loads(template).items() if name != "id"}


def read(word: bytes) -> object:
    try:
        return orjson.loads(word)
    except orjson.JSONDecodeError:
        return word.decode()


def words_of(document: Document, above: str = "") -> list[bytes]:
    """Names and values for HSET."""
    words: list[bytes] = []
    for name, value in document.items():
        if isinstance(value, dict):
            words += words_of(value, f"{above}{name}.")
        else:
            words += [f"{above}{name}".encode(), value.encode() if isinstance(value, str) else orjson.dumps(value)]
    return words


class PairCounter:
    """Counts pairs of replies."""

    together = 2

    def __init__(self) -> None:
        self._odd = 0

    def __call__(self, received: memoryview) -> int:
        whole, self._odd = divmod(count_replies(received) + self._odd, self.together)
        return whole


def indexed_fields(order: Document) -> Document:
    fields = {name: order[name] for name in ("symbol", "status", "currency", "price", "quantity")}
    return {**fields, "region": order["account"]["region"]}


class RedisSearch(RedisState):
    """Hashes with the document and with the fields of the filter, which RediSearch indexes."""

    name = "redis-search"
    title = "Redis with RediSearch, fields of the filter indexed"
    answers_while_updating = False  # version 1.2 returns fewer documents then

    def absence(self) -> str:
        return "" if SEARCH_MODULE.exists() else "RediSearch is not installed: apt-get install redis-redisearch"

    def command(self) -> list[str]:
        limits = ("MAXEXPANSIONS", "100000", "MAXDOCTABLESIZE", "4000000", "TIMEOUT", "60000")
        return [*super().command(), "--loadmodule", str(SEARCH_MODULE), *limits]

    def load_orders(self, orders: OrderLines) -> None:
        schema = b"symbol TAG status TAG region TAG currency TAG price NUMERIC quantity NUMERIC"
        self._conversation.ask(b"FT.CREATE", b"orders", b"NOOFFSETS", b"NOFREQS", b"SCHEMA", *schema.split())
        super().load_orders(orders)

    def lane(self, templates: Sequence[bytes], numbers: Numbers, version: int, number: int) -> Lane:
        """An order is stored, and then added to the index."""
        commands = []
        for template in templates:
            order = json.loads(template)
            store = [b"HSET", key_of(KEY), b"document", template, *words_of(indexed_fields(order))]
            commands.append(encode(*store) + encode(b"FT.ADDHASH", b"orders", key_of(KEY), b"1.0", b"REPLACE"))
        return lane_of(connect(self.port), commands, numbers, version, PairCounter(), self.window)

    def order_commands(self, number: int, document: bytes, symbol_number: int) -> Iterable[list[bytes]]:
        fields = indexed_fields(orjson.loads(document))
        yield [b"HSET", key_of(number), b"document", document, *words_of(fields)]
        yield [b"FT.ADDHASH", b"orders", key_of(number), b"1.0", b"REPLACE"]

    def get_command(self, number: int) -> list[bytes]:
        return [b"HGET", key_of(number), b"document"]

    def symbol_command(self, number: int) -> list[bytes]:
        return search_command(f"@symbol:{{{symbol(number)}}}")

    def scan(self, expected: int) -> int:
        query = (
            f"@status:{{{'|'.join(STATUSES)}}} @price:[-inf ({SCAN_PRICE_LIMIT}] "
            f"@quantity:[{QUANTITY_LEAST} {QUANTITY_MOST}] -@region:{{{REGION}}} -@currency:{{{CURRENCY}}}"
        )
        return self._asking.ask(encode(*search_command(query)), expected)


def search_command(query: str) -> list[bytes]:
    words = (b"RETURN", b"1", b"document", b"LIMIT", b"0", b"1000000")
    return [b"FT.SEARCH", b"orders", query.encode(), *words]
