"""The queues and topics that a topic or an expression names, if there are queues."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amps.config import LoggedTopic, ServerConfig, TransactionLogConfig
from amps.server.shared.queue_names import QueueNames
from amps.server.topics import BadTopicExpression, topic_predicate
from tests.support.queue_worker import queue

TOPICS = ["T", "T.x", "Tyx", "T_1", "T_2", "Q1", "Q.2", "Q-2", "aa", "ab", "a/a", "größe"]
QUEUES = (
    queue("Q1", "T"),
    queue("Q.2", "T.x"),
    queue("Q-2", "^T_", underlying_is_regex=True, default_publish_target="T_1"),
    queue("aa", "aa"),
    queue("Q5", r"^(a)/\1$", underlying_is_regex=True, default_publish_target="a/a"),
    queue("Q6", "größe"),
)


def names(regex: bool = True) -> QueueNames:
    log = TransactionLogConfig(Path("j"), topics=(LoggedTopic(".*", "json"),))
    return QueueNames(ServerConfig("i", "i", transaction_log=log, queues=QUEUES, regex_topic_support=regex))


@pytest.mark.parametrize(
    ("topic", "literal", "expected"),
    [
        ("Q1", False, (0,)),
        ("Q.2", False, (1, 2)),
        ("Q.2", True, (1,)),
        ("^Q", False, (0, 1, 2, 4, 5)),
        ("^Q", True, ()),
        ("T", False, ()),
        ("aa", False, (3,)),
        ("a", False, ()),
        (".*", False, (0, 1, 2, 3, 4, 5)),
    ],
)
def test_queue_names_of_a_topic(topic: str, literal: bool, expected: tuple[int, ...]) -> None:
    assert names().matching(topic, "json", literal) == expected
    assert names().matching(topic, "nvfix", literal) == ()


def test_queue_names_without_regex_support_are_literal() -> None:
    assert names(regex=False).matching("Q.2", "json", False) == (1,)
    assert names(regex=False).matching("^Q", "json", False) == ()


def test_queue_names_a_bad_expression_is_an_error() -> None:
    with pytest.raises(BadTopicExpression):
        names().matching("(", "json", False)
    assert QueueNames(ServerConfig("i", "i")).matching("(", "json", False) == ()


def test_queue_names_of_acknowledgements_are_literal() -> None:
    """Deliveries carry the queue's name, whatever characters it contains."""
    assert names().acknowledged("Q.2", "json") == 1
    assert names().acknowledged("^Q", "json") is None
    assert names().acknowledged("Q.2", "nvfix") is None


def matched(topic: str, literal: bool) -> set[str]:
    predicate = topic_predicate(topic, not literal)
    return {name for name in TOPICS if (name == topic if predicate is None else predicate(name))}


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(
        ["Q1", "Q.2", "Q-2", "aa", "Q5", "Q6", "T", "^Q", "a", "(.)x", r"^(Q)(.)\2*", "Q[16]", "a|b"]
    ),
    st.booleans(),
)
def test_queue_names_a_bookmark_means_the_underlying_topics(topic: str, literal: bool) -> None:
    """queues.md §14.4: a name is replaced by the underlying topics; an expression gets them in addition."""
    known = names()
    queues = known.matching(topic, "json", literal)
    found, is_name = known.bookmark_topic(topic, literal, queues)
    underlying = set()
    for number in queues:
        each = known.queues[number]
        underlying |= matched(each.underlying_topic, not each.underlying_is_regex)
    by_name = literal or topic_predicate(topic, True) is None
    expected = underlying if by_name and queues else matched(topic, literal) | underlying
    assert matched(found, is_name) == expected
