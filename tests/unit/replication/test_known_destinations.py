"""What a destination knows after a restart about the records that go there (docs/replication.md, "Identity")."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from amps._core.journal.reader import LogCursor
from amps._core.replication.stream import Rules
from amps._core.shm.memory import MODE_ASYNC, PendingTable
from amps.config.model_replication import DestinationConfig, ReplicatedTopic
from amps.server.replication.destinations import Destination
from amps.server.replication.hello import Identity
from amps.server.replication.state_file import SavedDestination
from amps.server.replication.write_times import WriteTimes
from tests.support.streams import GrowingLog, topic_table

CONFIG = DestinationConfig("B", "B", "G", False, (ReplicatedTopic("t", "json"),), ())
PEER = Identity("B", "G", "uuid", "7", "r")


class Instance:
    """A log, and the destination over it. `control_acked`: what an earlier process left on the control page."""

    def __init__(self, directory: Path) -> None:
        self.log = GrowingLog(directory)
        self.topics = topic_table()
        self.control_acked = 0
        self.log.append("p", 1)
        for number in range(9):
            self.log.append("q", number + 1, "other")

    def cursor_before(self, position: int) -> LogCursor:
        return self.log.cursor(self.topics)

    def destination(self, saved: SavedDestination, config: DestinationConfig = CONFIG) -> Destination:
        control = SimpleNamespace(
            destination=lambda index: (MODE_ASYNC, self.control_acked, 0),
            set_destination=lambda *values: False,
            watermarks=lambda: (self.log.position, 0, 0, 0),
        )
        nothing = SimpleNamespace(begin=lambda now: None)
        runtime = SimpleNamespace(
            control=control,
            pending_tables=[PendingTable()],
            replication_statistics=SimpleNamespace(destinations=[nothing]),
        )
        access = SimpleNamespace(
            cursor_before=self.cursor_before,
            rules_of=lambda config, peer: Rules(
                lambda topic, kind: topic == "t", None, {}, (peer.name, peer.epoch) if peer else None
            ),
        )
        clock = cast(Any, SimpleNamespace(time_ns=lambda: 0, monotonic_s=lambda: 0.0))
        made = Destination(
            0,
            config,
            cast(Any, runtime),
            cast(Any, access),
            Identity("A", "G", "uuid-a", "1", ""),
            saved,
            clock,
            WriteTimes(clock, 0),
            lambda index, source: None,
        )
        made.begin()
        made.source.scan(self.log.position, 1 << 60)
        return made


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return Instance(tmp_path)


@pytest.fixture
def saved(instance: Instance) -> SavedDestination:
    """What an instance knows when everything is acknowledged."""
    first = instance.destination(SavedDestination())
    first.meet(PEER)
    first.source.scan(instance.log.position, 1 << 60)
    saved = first.saved()
    assert (saved.going_txid, saved.peer_name, len(saved.rules)) == (1, "B", 32)
    return replace(saved, acked_position=instance.log.position, acked_txid=10)


def test_a_restarted_destination_knows_what_went_there(instance: Instance, saved: SavedDestination) -> None:
    again = instance.destination(saved)
    assert again.source.going_txid == 1
    assert not again.meet(PEER)
    assert again.saved() == saved


def test_other_rules_begin_without_that_knowledge(instance: Instance, saved: SavedDestination) -> None:
    """Messages of a topic that is new in the configuration may go there."""
    topics = (*CONFIG.topics, ReplicatedTopic("other", "json"))
    assert instance.destination(saved, replace(CONFIG, topics=topics)).source.going_txid is None
    assert instance.destination(saved, replace(CONFIG, pass_through=".*")).source.going_txid is None
    filtered = (replace(CONFIG.topics[0], filter="/x > 1"),)
    assert instance.destination(saved, replace(CONFIG, topics=filtered)).source.going_txid is None


def test_a_position_that_the_file_does_not_have_begins_without_it(
    instance: Instance, saved: SavedDestination
) -> None:
    """An earlier process came further than it has stored: more may have gone there."""
    instance.control_acked = instance.log.position
    behind = replace(saved, acked_position=instance.log.position - 100)
    assert instance.destination(behind).source.going_txid is None


def test_another_instance_may_get_more(instance: Instance, saved: SavedDestination) -> None:
    """Messages that passed the one may go to the other; a wiped one lacks what it had."""
    again = instance.destination(saved)
    assert again.meet(replace(PEER, epoch="8"))
    assert again.source.going_txid is None


def test_before_the_first_connection_at_most_more_seems_to_go_there(instance: Instance) -> None:
    first = instance.destination(SavedDestination())
    assert first.source.going_txid == 1
    assert first.meet(PEER)
    assert first.source.going_txid in (0, 1)
