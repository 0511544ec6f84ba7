"""Queues fed by a topic, compared with a model that checks each queue in turn."""

import re
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amps.config import QueueConfig, ServerConfig, queue_topics
from amps.config.queue_topics import QueueTopics
from amps.topic_expressions import BadTopicExpression, topic_predicate
from tests.support.queue_configurations import element, logged, read


def queue(name: str, underlying: str, target: str = "", message_type: str = "json") -> QueueConfig:
    """A queue with a target has an expression as its underlying topic."""
    return QueueConfig(name, message_type, "Queue", underlying, bool(target), target or underlying)


def topics_of(*queues: QueueConfig) -> QueueTopics:
    return QueueTopics(ServerConfig("n", "n", queues=queues))


TABLE = topics_of(
    queue("A", "^ORD$|^A_DIRECT$", "A_DIRECT"),
    queue("B", "^ORD$|^B_DIRECT$", "B_DIRECT"),
    queue("C", "C"),
    queue("D", "ORD", message_type="fix"),
)


@pytest.mark.parametrize(
    ("published", "recorded_as", "fed"),
    [
        ("ORD", "ORD", (0, 1)),
        ("A", "A_DIRECT", (0,)),
        ("A_DIRECT", "A_DIRECT", (0,)),
        ("B", "B_DIRECT", (1,)),
        ("B_DIRECT", "B_DIRECT", (1,)),
        ("C", "C", (2,)),
        ("XORD", "XORD", ()),
    ],
)
def test_behaviour_15_where_a_publish_goes(published: str, recorded_as: str, fed: tuple[int, ...]) -> None:
    """queues.md §24, 15; the table of §4."""
    topic = TABLE.publish_target(published, "json") or published
    assert topic == recorded_as
    assert TABLE.feeds(topic, "json") == fed


def test_message_types_are_apart() -> None:
    assert TABLE.feeds("ORD", "fix") == (3,)
    assert TABLE.publish_target("A", "fix") is None
    assert TABLE.queue("D", "json") is None
    assert TABLE.queue("D", "fix") == 3


def test_behaviour_16_a_publish_to_a_queue_without_a_target_goes_to_its_topic() -> None:
    """queues.md §24, 16."""
    assert topics_of(queue("Q", "T")).publish_target("Q", "json") == "T"
    assert topics_of(queue("Q", "T")).publish_target("T", "json") is None


def test_a_queue_is_its_own_topic_only_by_name() -> None:
    """queues.md §1.6"""
    found = topics_of(
        queue("T", "T"), queue("Q", "T2"), queue("ORD_Q", "^ORD_", "ORD_X"), queue("^X", "^X", "^X")
    )
    assert [found.is_own_topic(index) for index in range(4)] == [True, False, False, False]


def test_names_with_regex_characters_are_names() -> None:
    found = topics_of(queue("Q.jobs", "Q.jobs"))
    assert found.feeds("Q.jobs", "json") == (0,)
    assert found.feeds("Q-jobs", "json") == ()
    assert found.queue("Q-jobs", "json") is None
    assert found.is_own_topic(0)


def test_topics_of_the_server_feed_nothing() -> None:
    assert topics_of(queue("Q", ".*", "T")).feeds("/AMPS/ClientStatus", "json") == ()


def test_without_queues() -> None:
    found = topics_of()
    assert found.feeds("T", "json") == ()
    assert found.publish_target("T", "json") is None
    assert found.queue("T", "json") is None


def test_a_topic_on_which_an_expression_gives_up_feeds_nothing() -> None:
    assert topics_of(queue("Q", "(a+)+$", "a")).feeds("a" * 5000 + "b", "json") == ()


def test_an_expression_that_was_never_checked_is_refused() -> None:
    with pytest.raises(BadTopicExpression):
        topics_of(queue("Q", "(", "T"))


def test_topics_of_a_configuration_that_is_read() -> None:
    sow = element("Q", "<UnderlyingTopic>^T</UnderlyingTopic><DefaultPublishTarget>T2</DefaultPublishTarget>")
    found = QueueTopics(read(element("T1") + sow, logged("^T")).config)
    assert found.feeds("T1", "json") == (0, 1)
    assert found.feeds("T2", "json") == (1,)
    assert found.publish_target("Q", "json") == "T2"


NAMES = st.text("ab.", min_size=1, max_size=3)
TYPES = st.sampled_from(["json", "fix"])
LITERAL = st.builds(lambda name, topic, kind: queue(name, topic, message_type=kind), NAMES, NAMES, TYPES)
EXPRESSIONS = st.sampled_from([".", "^a", "b$", "^ab?$", "a.b", "^(a|b)+$", "[.]", "^$"])
REGEX = st.builds(
    lambda name, topic, target, kind: queue(name, topic, target, kind), NAMES, EXPRESSIONS, NAMES, TYPES
)
QUEUES = st.lists(LITERAL | REGEX, max_size=6, unique_by=lambda one: (one.name, one.message_type))


@given(QUEUES, NAMES, TYPES)
@example([queue("a", "a"), queue("b", "^a", "a"), queue("ab", "a")], "a", "json")
def test_as_a_model_has_it(queues: list[QueueConfig], topic: str, message_type: str) -> None:
    """queues.md §3, §4: the model checks each queue by itself."""
    found = topics_of(*queues)
    of_type = [(index, one) for index, one in enumerate(queues) if one.message_type == message_type]
    assert found.feeds(topic, message_type) == tuple(
        index
        for index, one in of_type
        if (
            re.search(one.underlying_topic, topic)
            if one.underlying_is_regex
            else one.underlying_topic == topic
        )
    )
    named = [index for index, one in of_type if one.name == topic]
    assert found.queue(topic, message_type) == (named[0] if named else None)
    assert found.publish_target(topic, message_type) == (
        queues[named[0]].default_publish_target if named else None
    )
    for index, one in enumerate(queues):
        own = found.is_own_topic(index)
        assert own == (not one.underlying_is_regex and one.name == one.underlying_topic)
        if own:  # a publish to the queue's name enters the queue again
            assert found.publish_target(one.name, one.message_type) == one.name
            assert index in found.feeds(one.name, one.message_type)


@pytest.mark.parametrize(
    "form",
    [
        "^orders/{}/",
        "desk-{}$",
        "desk.{}.[a-z]+$",
        "(?i)^ORDERS/{}/",
        "^Q{}$|^Q_{}_DIRECT$",
        "^(buy|sell)/{}/",
        "^orders/.*",
    ],
)
def test_a_thousand_queues_and_topics_are_not_multiplied(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """Work at a start and at a topic's first message must not grow with topics times queues."""
    tried = 0

    def counted(topic: str, regex_allowed: bool) -> Callable[[str], bool] | None:
        predicate = topic_predicate(topic, regex_allowed)
        assert predicate is not None

        def matches(name: str) -> bool:
            nonlocal tried
            tried += 1
            return predicate(name)

        return matches

    monkeypatch.setattr(queue_topics, "topic_predicate", counted)
    texts = [form.replace("{}", f"{number:04d}") for number in range(1000)]
    topics = topics_of(*(queue(f"N{number}", text, "T") for number, text in enumerate(texts)))
    names = [
        name.format(f"{number:04d}")
        for name in ("orders/{}/x", "Q{}", "buy/{}/", "desk-{}", "desk/{}/x")
        for number in range(200)
    ]
    fed = [topics.feeds(name, "json") for name in names]
    assert tried < 5 * len(names)
    patterns = [re.compile(text) for text in texts]
    for name, found in list(zip(names, fed, strict=True))[::50]:
        assert found == tuple(number for number, pattern in enumerate(patterns) if pattern.search(name))
