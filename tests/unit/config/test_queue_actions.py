"""Actions on queues in a configuration: accepted and refused elements, with their places (queues.md §15)."""

import pytest

from amps.config import LoadedConfig, Severity
from amps.config.queue_events import QueueEvent, queue_events, reasons_of
from tests.support.queue_configurations import TOPICS, configuration, element, logged, read, refusals
from tests.support.services import action, do, on

EXPIRE = "sow-expire-message"
DELETE = "sow-delete-message"
QUEUES = element("Q.jobs", "<UnderlyingTopic>T</UnderlyingTopic>") + element(
    "Q2", "<UnderlyingTopic>T</UnderlyingTopic>"
)


def actions(*made: str) -> str:
    return logged(*TOPICS) + f"<Actions>{''.join(made)}</Actions>"


def accepted(*made: str) -> LoadedConfig:
    """Read a configuration that gives no findings."""
    loaded = read(QUEUES, actions(*made))
    assert loaded.findings == ()
    return loaded


def refused(*made: str) -> list[tuple[str, str]]:
    """The path below `Actions/Action` and the text of each error."""
    prefix = "AMPSConfig/Actions/Action"
    return [
        (path.removeprefix(prefix).lstrip("/"), text)
        for _, path, text in refusals(configuration(QUEUES, actions(*made)))
    ]


def event(name: str = EXPIRE, topic: str = "Q.jobs", message_type: str = "json", **more: str) -> str:
    return on(name, Topic=topic, MessageType=message_type, **more)


def publish(count: int = 1) -> str:
    return do("publish-message", Topic="T_DEAD", MessageType="json", Data="{{AMPS_DATA}}") * count


def test_events_are_found_once_in_their_order() -> None:
    """Several `On` may share one `Do`. The name of a queue is taken literally, including dots."""
    loaded = accepted(
        action(event(), event(topic="Q2"), publish()),
        action(event(DELETE), publish()),
        action(event(Reason="max_cancels , forced_expire"), publish()),
    )
    assert queue_events(loaded.config) == (
        QueueEvent(True, "json", "Q.jobs"),
        QueueEvent(True, "json", "Q2"),
        QueueEvent(False, "json", "Q.jobs"),
    )


def test_an_event_of_a_queue_has_a_name_for_files_and_one_for_the_engine() -> None:
    made = QueueEvent(False, "json", "a queue")
    assert made.key == ("sow-delete-message", "json", "a queue")
    assert made.which == "json a queue"


def test_reasons_in_the_order_of_the_documents() -> None:
    """queues.md §22, D-25."""
    assert reasons_of(15) == ("time_limit", "forced_expire", "max_cancels", "max_deliveries")
    assert reasons_of(9) == ("time_limit", "max_deliveries")
    assert reasons_of(16) == ()


@pytest.mark.parametrize("reason", ["time", "", "max_cancels,", "MAX_CANCELS"])
def test_an_unknown_reason(reason: str) -> None:
    ((path, text),) = refused(action(event(Reason=reason), publish()))
    assert path == "On/Options/Reason"
    assert "no reason" in text or "it is empty" in text


def test_a_delete_has_no_reason() -> None:
    ((path, text),) = refused(action(event(DELETE, Reason="max_cancels"), publish()))
    assert (path, text.split(";")[0]) == ("On/Options/Reason", "unknown option")


@pytest.mark.parametrize("name", [EXPIRE, DELETE])
def test_topic_and_message_type_are_required(name: str) -> None:
    found = refused(action(on(name), publish()))
    assert [text.split(" of ")[0] for _, text in found] == ["the option Topic", "the option MessageType"]


@pytest.mark.parametrize("name", [EXPIRE, DELETE])
@pytest.mark.parametrize(
    ("topic", "message_type", "what"),
    [
        ("^Q", "json", "is no queue of message type json; the topic of this event is a name"),
        ("Q.jobs", "xml", "is no queue of message type xml"),
        ("T", "json", "not supported yet: SOW topics"),
        ("Q2", "xml", "not supported yet: SOW topics"),
    ],
)
def test_the_topic_is_a_queue(name: str, topic: str, message_type: str, what: str) -> None:
    """queues.md §15: literal, no regex."""
    ((path, text),) = refused(action(event(name, topic, message_type), publish()))
    assert path == "On/Options/Topic"
    assert what in text


@pytest.mark.parametrize("name", ["alert", "message-condition-timeout"])
def test_queues_have_no_alerts(name: str) -> None:
    """queues.md §22, D-36."""
    found = refused(action(event(name), publish()))
    assert ("On/Options/Topic", "'Q.jobs' is a queue, which has no such event; ") in [
        (path, text[: text.find(";") + 2]) for path, text in found
    ]
    assert len(refused(action(event(name, "other"), publish()))) == 1


def test_the_number_of_publishes_per_message_is_bounded() -> None:
    """Published messages are numbered by the log position of the original, which leaves a limited range of numbers."""
    accepted(action(event(), publish(16)), action(event(), event(DELETE), event(topic="Q2"), publish(16)))
    ((path, text),) = refused(
        action(event(), publish(16)), action(event(), publish(16)), action(event(), publish())
    )
    assert path == "[3]"
    assert "more than 32 messages" in text


STARTUP = on("startup")


@pytest.mark.parametrize("topic", ["Q.jobs", "^Q", "{{TOPIC}}"])
def test_a_step_that_deletes_from_queues(topic: str) -> None:
    """queues.md §22, D-35: its topic may be an expression."""
    accepted(action(STARTUP, do("delete-sow", Topic=topic, MessageType="json", Filter="/a = 1")))


@pytest.mark.parametrize(
    ("topic", "text", "option", "what"),
    [
        ("T", "/a = 1", "Topic", "'T' is neither a SOW topic nor a queue of message type json"),
        ("^T", "/a = 1", "Topic", "'^T' is neither a SOW topic nor a queue of message type json"),
        ("^(", "/a = 1", "Topic", "this expression for topics cannot be used"),
        ("^Q", "/a = ", "Filter", "this filter cannot be used"),
    ],
)
def test_topics_and_filters_that_a_delete_refuses(topic: str, text: str, option: str, what: str) -> None:
    ((path, said),) = refused(action(STARTUP, do("delete-sow", Topic=topic, MessageType="json", Filter=text)))
    assert path == f"Do/Options/{option}"
    assert said.startswith(what)


@pytest.mark.parametrize("verb", ["enable", "disable"])
def test_proxied_transfer_has_no_effect_without_replication(verb: str) -> None:
    """queues.md §15, §16.4: no other instance owns a message."""
    loaded = read(
        QUEUES, actions(action(STARTUP, do(f"{verb}-proxied-transfer", Topic="Q.jobs", MessageType="json")))
    )
    assert [(finding.severity, finding.text) for finding in loaded.findings] == [
        (
            Severity.WARNING,
            "has no effect: without replication no message is owned by another instance; add Replication",
        )
    ]


def test_proxied_transfer_needs_a_queue() -> None:
    """queues.md §16.4: the topic is the name of a queue."""
    ((path, text),) = refused(action(STARTUP, do("enable-proxied-transfer", Topic="T1", MessageType="json")))
    assert path == "Do/Options/Topic"
    assert text == "'T1' is no queue of message type json; name a Queue or GroupLocalQueue"
