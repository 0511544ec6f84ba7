"""Pages over the log of a core, whose journals are removed (amps/_core/delivery/pages.pyx; sow.md §11, D19)."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from amps._core.delivery.delivery import Group, LiveTailer, TopicRoutes
from amps._core.delivery.output import WANT_OUT_OF_FOCUS, OutputBuffer
from amps._core.delivery.pages import PageList, TopicPages, Window
from amps._core.expressions.machine import EvaluationContext
from amps._core.journal.reader import LogCursor, LogDirectory
from amps._core.sow.ranking import Ranking, SortKeys
from amps._core.sow.table import JournalPlaces
from amps._core.values.fields import FieldValues, MessageContext
from amps._core.wire.topics import SowRules, TopicTable
from amps.server.shared.sow_state import Snapshot, StateFloor
from amps.server.transport.options import Options
from amps.server.transport.pages import Pages, PageTerms
from amps.server.transport.session import Session, Subscription
from tests.support.peer import decode_payload
from tests.support.sow_core import JSON, SowCore

TOPICS = ["kept", "plain"]


class Followed:
    """One window on a topic of a core, ordered by `/id`."""

    def __init__(self, core: SowCore, topic: str, skip: int, top: int) -> None:
        self._core = core
        table = TopicTable(
            lambda name, _: (name == "kept", False, None, None),
            None,
            lambda name, _: SowRules(core.topics[name].keys, JSON.documents(), False, 1 << 20, 0, 0),
        )
        self.group = Group(lambda entry, since, current: TopicRoutes(), live=True)
        entry = self.entry = table.entry(topic, "json")
        journals = LogDirectory(f"{core.directory}/journal.", ".journal", table.entry)
        passing = LogDirectory(f"{core.directory}/transient.", ".journal", table.entry)
        self.tailer = LiveTailer(LogCursor(journals, 0, 0, False), LogCursor(passing, 0, 0, False), self.group)
        numbers = lambda: (core.first_number, core.feeder.journal.number)  # noqa: E731
        self.places = JournalPlaces(LogDirectory(f"{core.directory}/journal.", ".journal", table.entry), numbers)
        evaluation = EvaluationContext(
            JSON.extractor(), FieldValues(), MessageContext(b"", b""), lambda name_hash: None
        )
        self.ranking = Ranking(SortKeys(JSON.extractor(), [((b"id",), False, False)]), 1 << 30)
        self.ranking.filled()
        pages = PageList(self.ranking, None, lambda _: None)
        self.topic = TopicPages(entry, core.topics[topic].reader(self.places), evaluation)
        self.topic.add(pages)
        self.group.follow(entry.number, self.topic)
        self.output = OutputBuffer(lambda: None)
        pages.open(Window(entry, self.output, b"s", WANT_OUT_OF_FOCUS, WANT_OUT_OF_FOCUS, skip, top))
        self.evaluation = evaluation

    def run(self) -> list[tuple[str, Any]]:
        """What the window sends for everything that the core has written."""
        feeder = self._core.feeder
        assert self.tailer.run(feeder.journal.position, feeder.transient.position, 1 << 40)
        data = b"".join(bytes(part) for part in self.output.take())
        found = []
        while data:
            length = int.from_bytes(data[:4], "big")
            message = decode_payload(data[4 : 4 + length])
            data = data[4 + length :]
            found.append((str(message.get("reason") or message.command), json.loads(message.body)))
        return found


@pytest.fixture
def core(tmp_path: Path) -> Iterator[SowCore]:
    made = SowCore(tmp_path, 8192)
    yield made
    made.close()


def fill(core: SowCore, topic: str) -> None:
    for number in range(1, 6):
        core.publish(topic, {"id": number, "v": 1})
    core.feeder.control.set_transport_alive(3, True)
    core.feeder.control.set_state_floor(3, core.next_txid)


def rotate(core: SowCore) -> None:
    """Write so much to another key that the journal changes."""
    number = core.feeder.journal.number
    while core.feeder.journal.number == number:
        core.publish("kept", {"id": 99, "text": "x" * 1000})


@pytest.mark.parametrize("topic", TOPICS)
def test_a_record_comes_with_the_value_of_the_moment(core: SowCore, topic: str) -> None:
    """sow.md D19: not with the one that it has when the message is made."""
    fill(core, topic)
    page = Followed(core, topic, 0, 2)
    assert [kind for kind, _ in page.run()] == ["p", "p"]
    core.delete(topic, 1)
    core.publish(topic, {"id": 3, "v": 2})
    core.publish(topic, {"id": 3, "v": 3})
    assert page.run() == [
        ("deleted", {"id": 1, "v": 1}),
        ("p", {"id": 3, "v": 1}),
        ("p", {"id": 3, "v": 2}),
        ("p", {"id": 3, "v": 3}),
    ]
    core.publish(topic, {"id": 0, "v": 1})
    core.delete(topic, 3)
    assert page.run() == [("match", {"id": 3, "v": 3}), ("p", {"id": 0, "v": 1})]


def test_a_record_comes_whose_journal_was_removed(core: SowCore) -> None:
    """sow.md D19: the core has carried its value over, also if it has a newer one meanwhile."""
    fill(core, "kept")
    page = Followed(core, "kept", 0, 2)
    page.run()
    rotate(core)
    rotate(core)
    page.run()
    core.feeder.control.set_state_floor(3, core.next_txid)
    core.remove_journals(core.feeder.journal.number)
    page.places.forget(core.first_number)
    core.delete("kept", 1)
    core.delete("kept", 2)
    core.publish("kept", {"id": 4, "v": 2})
    assert page.run() == [
        ("deleted", {"id": 1, "v": 1}),
        ("p", {"id": 3, "v": 1}),
        ("deleted", {"id": 2, "v": 1}),
        ("p", {"id": 4, "v": 1}),
        ("p", {"id": 4, "v": 2}),
    ]
    assert page.evaluation.unreadable == 0


def test_lists_are_counted(core: SowCore) -> None:
    """sow.md §22: the memory of each list, and its subscriptions. A list ends with the last of them."""
    fill(core, "kept")
    followed = Followed(core, "kept", 0, 2)
    floor = StateFloor(core.feeder.control, 3)
    states = SimpleNamespace(
        snapshot_at=lambda txid: Snapshot(floor, txid, lambda: None),
        reader=lambda number: core.topics["kept"].reader(followed.places),
    )
    evaluations = SimpleNamespace(of_type=lambda message_type: followed.evaluation)
    group = Group(lambda entry, since, current: TopicRoutes(), live=True)
    pages = Pages(group, cast(Any, evaluations), cast(Any, states), 1 << 30, lambda: None)
    connection = cast(Session, SimpleNamespace(output=followed.output, message_type="json"))
    terms = PageTerms(followed.entry, (), 0, 2)
    opened = []
    for sub_id in ("a", "b"):
        subscription = Subscription(connection, sub_id, "kept", None, Options())
        page = pages.obtain(subscription, terms, core.next_txid)
        page.open(subscription)
        opened.append(page)
    [counted] = pages.statistics()
    assert counted.pop("memory_bytes") == pages.memory_bytes > 0
    assert counted == {"topic": "kept", "message_type": "json", "subscription_count": 2}
    assert group.is_followed
    for page in opened:
        page.close()
        page.close()
    assert (pages.statistics(), group.is_followed, pages.run()) == ([], False, False)
