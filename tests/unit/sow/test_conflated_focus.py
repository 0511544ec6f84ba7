"""Conflated subscriptions to SOW topics against a model of sow.md §16 and D13, with a clock that the test sets."""

import json
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from amps._core.delivery.delivery import LiveTailer
from amps._core.delivery.output import OutputBuffer
from amps._core.journal.reader import LogCursor, LogDirectory
from amps._core.sow.table import JournalPlaces
from amps._core.wire.topics import SowRules, TopicTable
from amps.expressions.filters import compile_filter
from amps.messages import make_message_types, standard_settings
from amps.server.evaluation_contexts import EvaluationContexts
from amps.server.transport.options import Conflating, Options
from amps.server.transport.session import Subscription
from amps.server.transport.subscriptions import SubscriptionSet
from tests.support.sow_core import JSON, SowCore

Document = dict[str, Any]
Frame = tuple[str, str, str]
"""Command, reason, and the body with its fields in order."""

INTERVAL_NS = 1_000_000_000
FILTERS: dict[str | None, Callable[[Document], bool]] = {
    None: lambda d: True,
    "/a > 1": lambda d: int(d.get("a", -1)) > 1,
    "/a = 1": lambda d: d.get("a") == 1,
}


@dataclass(eq=False)
class FakeConnection:
    """The fields of a connection that subscriptions and routes use."""

    message_type: str = "json"
    output: OutputBuffer = field(default_factory=lambda: OutputBuffer(lambda: None))

    def received(self) -> list[Frame]:
        data = b"".join(self.output.take())
        found = []
        while data:
            (length,) = struct.unpack_from(">I", data)
            text = data[4 : 4 + length].decode()
            header, end = json.JSONDecoder().raw_decode(text)
            body = json.dumps(json.loads(text[end:]), sort_keys=True)
            found.append((header["c"], header.get("reason", ""), body))
            data = data[4 + length :]
        return sorted(found)


def difference(old: Document, new: Document) -> Document:
    changed = {name: new.get(name) for name in {**old, **new} if old.get(name) != new.get(name)}
    return {"id": new["id"], **changed}


@dataclass
class HeldKey:
    """What the model holds for a key."""

    due_ns: int
    base: Document | None
    in_focus: bool
    last: Document | None = None
    reason: str | None = None
    changes: Document | None = None


@dataclass
class Wanted:
    """A subscription, and its model."""

    text: str | None
    oof: bool
    delta: bool
    no_empties: bool
    paths: tuple[tuple[bytes, ...], ...] | None
    held: dict[int, HeldKey] = field(default_factory=dict)
    connection: FakeConnection = field(default_factory=FakeConnection)

    def matches(self, document: Document | None) -> bool:
        return document is not None and FILTERS[self.text](document)

    def subscription(self, topic: str) -> Subscription:
        options = Options(
            oof=self.oof, delta=self.delta, no_empties=self.no_empties, conflating=Conflating(1.0, self.paths)
        )
        owner: Any = self.connection
        made = Subscription(owner, "s", topic, None, options)
        made.filter = None if self.text is None else compile_filter(self.text)
        return made

    def take(self, key: int, before: Document | None, after: Document | None, now_ns: int) -> None:
        """Take a change, or a removal (`after` None)."""
        if self.matches(after):
            assert after is not None
            held = self.held.setdefault(key, HeldKey(now_ns + INTERVAL_NS, before, self.matches(before)))
            held.last, held.reason = after, None
            if before is not None:
                changes = difference(before, after)
                if len(changes) > 1 and held.base is not None:
                    known = {n: v for n, v in changes.items() if v is not None}
                    held.changes = changes if held.changes is None else {**held.changes, **known}
        elif self.oof and self.matches(before):
            held = self.held.setdefault(key, HeldKey(now_ns + INTERVAL_NS, before, True))
            held.reason = "deleted" if after is None else "match"

    def due(self, now_ns: int) -> list[Frame]:
        frames = []
        for key, held in list(self.held.items()):
            if held.due_ns <= now_ns:
                del self.held[key]
                frames += self.finish(held)
        return sorted((command, reason, json.dumps(body, sort_keys=True)) for command, reason, body in frames)

    def finish(self, held: HeldKey) -> list[tuple[str, str, Document]]:
        if held.reason is not None:
            if held.base is None or not held.in_focus:
                return []
            return [("oof", held.reason, held.base)]
        assert held.last is not None
        if not self.delta or held.base is None or (self.oof and not held.in_focus):
            return [("p", "", held.last)]
        body = difference(held.base, held.last)
        if held.changes is None and len(body) == 1 and self.no_empties:
            return []
        changed = {name: value for name, value in (held.changes or {}).items() if value is not None}
        if all(held.last.get(name) == value for name, value in changed.items()):
            body |= changed
        return [("p", "", body)]


class Reader:
    """The states that a subscription set reads."""

    def __init__(self, core: SowCore, topic: str) -> None:
        self._core = core
        self._topic = topic

    def reader(self, number: int) -> Any:
        core = self._core
        places = JournalPlaces(
            LogDirectory(f"{core.directory}/journal.", ".journal", lambda topic, message_type: None),
            lambda: (core.first_number, core.feeder.journal.number),
        )
        return core.topics[self._topic].reader(places)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("topic", ["kept", "plain"])
def test_sow_16_random_changes_of_conflated_records(tmp_path: Path, topic: str, seed: int) -> None:
    """sow.md §16, D13; §25 37 and 38: at every moment each subscription gets what the model says, and nothing else."""
    chance = random.Random(seed)
    core = SowCore(tmp_path, 1 << 20)
    core.feeder.control.set_transport_alive(3, True)
    core.feeder.control.set_state_floor(3, 1)  # a reader that keeps everything
    log: Any = None
    types = make_message_types(standard_settings().values())
    evaluations = EvaluationContexts(types, "i", "g", log)
    topics = TopicTable(
        lambda name, message_type: (name == "kept", False, None, None),
        None,
        lambda name, message_type: SowRules(core.topics[name].keys, JSON.documents(), False, 4096, 0, 0),
    )
    states: Any = Reader(core, topic)
    members = SubscriptionSet(
        topics, evaluations, combine=True, live=True, holds=lambda subscription: None, states=states
    )
    journal = LogDirectory(core.feeder.journal_storage.prefix, ".journal", topics.entry)
    transient = LogDirectory(core.feeder.transient_storage.prefix, ".journal", topics.entry)
    wanted = [
        Wanted(text, oof, delta, delta and chance.random() < 0.5, chance.choice((None, ((b"id",),))))
        for text in FILTERS
        for oof in (False, True)
        for delta in (False, True)
    ]
    subscriptions = [each.subscription(topic) for each in wanted]
    for subscription in subscriptions:
        members.add(subscription)
    tailer = LiveTailer(LogCursor(journal, 0, 0, True), LogCursor(transient, 0, 0, True), members.group)
    state: dict[int, Document] = {}
    try:
        for _ in range(250):
            id_ = chance.randrange(3)
            before = state.get(id_)
            fields = {name: chance.randrange(3) for name in ("a", "b", "c") if chance.random() < 0.7}
            what = chance.random()
            after: Document | None = {"id": id_, **fields}
            if what < 0.15:
                core.delete(topic, id_)
                after = None
                state.pop(id_, None)
            elif what < 0.4:
                assert after is not None
                core.publish(topic, after, delta=True)
                after = {**(before or {}), **after}
                state[id_] = after
            else:
                assert after is not None
                core.publish(topic, after)
                state[id_] = after
            while not tailer.run(core.feeder.journal.position, core.feeder.transient.position, 1 << 30):
                pass
            for each in wanted:
                each.take(id_, before, after, core.now_ns)
            core.now_ns += chance.choice((0, 1, 200_000_000, 2_000_000_000))
            for each, subscription in zip(wanted, subscriptions, strict=True):
                assert subscription.conflation is not None
                subscription.conflation.run(core.now_ns, False)
                assert each.connection.received() == each.due(core.now_ns)
                assert (subscription.conflation.due_ns is None) == (not each.held)
    finally:
        core.close()
