"""Peers that merge deltas into JSON orders, compare two states of an order, and reduce an order to some fields.

The library parses messages, changes dicts and writes them. This server's operations are called from Python, message by
message, which the core does without. Each peer is checked against plain Python.
"""

import importlib
import importlib.metadata
import json
from collections.abc import Callable
from typing import Any, Final

from amps._core.values.fields import FieldSet
from amps.expressions import parse_select_list
from amps.messages import make_message_types, standard_settings
from perf.machine import own_version
from perf.orders.corpus import Corpus
from perf.peers.process import ProcessPeer, Work
from perf.pump import PeerError

Document = dict[str, Any]
Operation = Callable[[bytes, bytes], bytes]
"""From a message and the delta that belongs to it: the result."""

OPERATIONS: Final = ("merge", "difference", "select")
DELTA_FIELDS: Final = ("status", "price", "quantity")
REGION: Final = ("account", "region")
SELECTED: Final = ("symbol", "status", "price")


def delta_of(following: bytes) -> bytes:
    """A delta with four fields of another order."""
    order = json.loads(following)
    outer, inner = REGION
    return json.dumps({**{name: order[name] for name in DELTA_FIELDS}, outer: {inner: order[outer][inner]}}).encode()


def merged(stored: Document, delta: Document) -> Document:
    for name, value in delta.items():
        if isinstance(value, dict) and isinstance(stored.get(name), dict):
            merged(stored[name], value)
        elif value is not None:
            stored[name] = value
    return stored


def compared(old: Document, new: Document) -> Document:
    made = {}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            inner = compared(before, value)
            if inner:
                made[name] = inner
        elif value != before or name not in old:
            made[name] = value
    for name in old.keys() - new.keys():
        made[name] = None
    return made


def with_parser(operation: str, loads: Callable[[bytes], Any], dumps: Callable[[Any], bytes]) -> Operation:
    """An operation in Python."""

    def merge(message: bytes, delta: bytes) -> bytes:
        return dumps(merged(loads(message), loads(delta)))

    def difference(old: bytes, new: bytes) -> bytes:
        return dumps(compared(loads(old), loads(new)))

    def select(message: bytes, delta: bytes) -> bytes:
        order = loads(message)
        return dumps({name: order[name] for name in order if name in SELECTED})

    return {"merge": merge, "difference": difference, "select": select}[operation]


class DocumentWork(Work):
    """An operation on each message; for a difference, on the message and what its delta makes of it."""

    def __init__(self, name: str, kind: str, operation: Operation, corpus: Corpus) -> None:
        self._name = name
        self._kind = kind
        self._operation = operation
        messages = corpus.messages("json")
        deltas = [delta_of(following) for following in [*messages[1:], messages[0]]]
        if kind == "difference":
            make = with_parser("merge", json.loads, lambda made: json.dumps(made, separators=(",", ":")).encode())
            deltas = [make(message, delta) for message, delta in zip(messages, deltas, strict=True)]
            messages = [json.dumps(json.loads(message), separators=(",", ":")).encode() for message in messages]
        self._given = list(zip(messages, deltas, strict=True))
        self.count = len(messages)

    def run(self, first: int, end: int) -> None:
        operation = self._operation
        for message, other in self._given[first:end]:
            operation(message, other)

    def verify(self, corpus: Corpus) -> None:
        right = with_parser(self._kind, json.loads, lambda made: json.dumps(made).encode())
        for message, other in self._given:
            if json.loads(self._operation(message, other)) != json.loads(right(message, other)):
                raise PeerError(f"{self._name} makes {self._operation(message, other)!r} of {message!r} and {other!r}")


class OwnDocuments(ProcessPeer):
    """This server's operations."""

    def __init__(self, operation: str) -> None:
        self.name = f"amps-{operation}"
        self.title = "this server"
        self.operation = operation

    def version(self) -> str:
        return own_version()

    def prepare(self, corpus: Corpus) -> Work:
        documents = make_message_types(standard_settings().values())["json"].documents()
        selection = parse_select_list(f"[-/,{','.join(f'+/{name}' for name in SELECTED)}]")
        no_keys = FieldSet()
        operations: dict[str, Operation] = {
            "merge": documents.merged,
            "difference": lambda old, new: documents.compared(old, new, no_keys)[0],
            "select": lambda message, _: documents.selected(message, selection),
        }
        return DocumentWork(self.name, self.operation, operations[self.operation], corpus)


class OrjsonDocuments(ProcessPeer):
    """orjson, and dicts in Python."""

    def __init__(self, operation: str) -> None:
        self.name = f"orjson-{operation}"
        self.title = "orjson and dicts"
        self.operation = operation

    def version(self) -> str:
        try:
            return f"orjson {importlib.metadata.version('orjson')}"
        except importlib.metadata.PackageNotFoundError:
            raise PeerError("orjson is not installed: pip install '.[perf]'") from None

    def prepare(self, corpus: Corpus) -> Work:
        orjson = importlib.import_module("orjson")
        return DocumentWork(self.name, self.operation, with_parser(self.operation, orjson.loads, orjson.dumps), corpus)
