"""Configurations of replication with which no instance starts (replication.md §23, §26, 41 to 43 and 48).

tests/unit/config/test_replication.py has all errors; here a whole server refuses to start, and says what to change.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.instances import REPLICATION, Instances, Sent, To
from tests.support.queues import queue_xml
from tests.support.server import Transport


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Instances]:
    made = Instances(tmp_path)
    yield made
    made.close()


def refusal(group: Instances) -> str:
    """What A says when it refuses to start."""
    with pytest.raises(AssertionError, match="refused to start") as refused:
        group.launch("A")
    return str(refused.value)


@pytest.mark.parametrize("check", ["queue", "queue_underlying"])
def test_replication_41_checks_of_queues_cannot_be_excluded(group: Instances, check: str) -> None:
    """replication.md §26 41, 25.6"""
    to = To("B", topics=[Sent("T", exclude=check), Sent("Q", exclude=check)])
    group.add("A", [to], topics=("T", "Q"), xml=f"<SOW>{queue_xml('Q', 'T')}</SOW>")
    group.add("B")
    assert f"the check {check} cannot be skipped" in refusal(group)


@pytest.mark.parametrize("topic", ["Q", "^Q", ".*"])
def test_replication_42_a_local_queue_cannot_be_replicated(group: Instances, topic: str) -> None:
    """replication.md §26 42, §23: listed by its name, or by an expression that matches it."""
    queue = queue_xml("Q", "T", kind="LocalQueue")
    group.add("A", [To("B", topics=[topic])], topics=(".*",), xml=f"<SOW>{queue}</SOW>")
    group.add("B")
    assert "takes the LocalQueue 'Q'" in refusal(group)


def test_replication_43_two_transports_for_other_instances(group: Instances) -> None:
    """replication.md §26 43"""
    two = [Transport(name=name, type=REPLICATION, message_type=None) for name in ("r1", "r2")]
    group.add("A", accepts=False, transports=[Transport(), *two])
    assert "there is already a transport for replication" in refusal(group)
