"""Refused configurations with message queues, each with its place and the cure (queues.md §2.2)."""

import re
from pathlib import Path

import pytest

from amps.config import Severity, load
from tests.support.queue_configurations import (
    TOPICS,
    configuration,
    element,
    logged,
    read,
    refusal,
    refusals,
)

EXPRESSION_OVER_TOPICS = "<UnderlyingTopic>^T(1|2)$</UnderlyingTopic>"
OWNER = "<InitialOwner>here</InitialOwner>"


# --- rules between elements ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inner", "line", "path", "text"),
    [
        (EXPRESSION_OVER_TOPICS, 7, "UnderlyingTopic", "add DefaultPublishTarget"),
        (
            f"{EXPRESSION_OVER_TOPICS}<DefaultPublishTarget>T3</DefaultPublishTarget>",
            8,
            "DefaultPublishTarget",
            "'T3' is not matched by UnderlyingTopic, '^T(1|2)$'; name a topic that the queue takes",
        ),
        (
            "<Priority>/p</Priority><BarrierExpression>/b = 1</BarrierExpression>",
            7,
            "Priority",
            "Priority cannot be used together with BarrierExpression; remove one of them",
        ),
        (
            "<TargetQueueDepth>999</TargetQueueDepth>",
            7,
            "TargetQueueDepth",
            "'999' is below the minimum of 1000; write 1000 or more",
        ),
        (
            "<TargetQueueDepth>1000</TargetQueueDepth><Priority>/p</Priority>",
            7,
            "TargetQueueDepth",
            "TargetQueueDepth cannot be used together with Priority; remove one of them",
        ),
        (
            "<Filter>/t &lt; UNIX_TIMESTAMP()</Filter>",
            7,
            "Filter",
            "this filter cannot be used: UNIX_TIMESTAMP is not deterministic",
        ),
        (
            "<Semantics>at-most-once</Semantics><FairnessModel>fast</FairnessModel>",
            8,
            "FairnessModel",
            "an at-most-once queue is always round-robin; write that",
        ),
        (
            "<Semantics>at-most-once</Semantics><OrderingKey>/o</OrderingKey>",
            8,
            "OrderingKey",
            "an at-most-once queue has no order per key",
        ),
        (
            "<Semantics>at_least_once</Semantics>",
            7,
            "Semantics",
            "'at_least_once' is not accepted; write one of at-least-once, at-most-once",
        ),
        (
            "<UnderlyingTopic>unrecorded</UnderlyingTopic>",
            7,
            "UnderlyingTopic",
            "the topic 'unrecorded' of the message type json is not recorded; add a Topic for it to TransactionLog",
        ),
    ],
)
def test_behaviour_22_refusals_at_start(inner: str, line: int, path: str, text: str) -> None:
    """queues.md §24, 22; queue_guarantees.md §7, 16."""
    found = refusal(element("Q", inner))
    assert found[:2] == (line, f"Queue/{path}")
    assert text in found[2]


def test_behaviour_22_a_group_local_queue_without_its_owner() -> None:
    """queues.md §24, 22."""
    found = refusal(element("Q", tag="GroupLocalQueue"))
    assert found[:2] == (4, "GroupLocalQueue")
    assert "add it, with the Name of the instance" in found[2]


@pytest.mark.parametrize("tag", ["Queue", "LocalQueue"])
@pytest.mark.parametrize("owned", ["InitialOwner", "GroupLocalQueueDomain"])
def test_elements_of_group_local_queues_on_others(tag: str, owned: str) -> None:
    """queues.md §2.2"""
    found = refusal(element("Q", f"<{owned}>x</{owned}>", tag=tag))
    assert found[:2] == (7, f"{tag}/{owned}")
    assert f"remove it, or make this {tag} one" in found[2]


def test_a_target_depth_excludes_barriers() -> None:
    """queues.md §2.2"""
    inner = "<BarrierExpression>/b</BarrierExpression><TargetQueueDepth>1000</TargetQueueDepth>"
    found = refusal(element("Q", inner))
    assert found[:2] == (8, "Queue/TargetQueueDepth")
    assert "together with BarrierExpression" in found[2]


def test_all_conflicts_between_elements_are_reported() -> None:
    inner = (
        "<BarrierExpression>/b</BarrierExpression><TargetQueueDepth>1000</TargetQueueDepth>"
        "<Priority>/p</Priority>"
    )
    assert len(refusals(configuration(element("Q", inner)))) == 3


def test_proportional_is_not_for_at_most_once_either() -> None:
    """queues.md §2.2"""
    inner = "<FairnessModel>proportional</FairnessModel><Semantics>at-most-once</Semantics>"
    assert refusal(element("Q", inner))[:2] == (7, "Queue/FairnessModel")


# --- expressions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["Filter", "BarrierExpression", "Priority", "OrderingKey"])
@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("LAST_READ() = 1", "LAST_READ is not deterministic"),
        ("UNIX_TIMESTAMP() = 1", "UNIX_TIMESTAMP is not deterministic"),
        ("SUM(/a) = 1", "SUM aggregates"),
        ("/a =", "character 5"),
        ("NOSUCH(/a)", "there is no function NOSUCH"),
        ("/a OF PREVIOUS = 1", "OF PREVIOUS"),
    ],
)
def test_expressions_that_cannot_be_used(place: str, expression: str, reason: str) -> None:
    """queues.md §2.2; expressions.md §10.1"""
    found = refusal(element("Q", f"<{place}>{expression}</{place}>"))
    assert found[:2] == (7, f"Queue/{place}")
    assert "cannot be used: " in found[2]
    assert reason in found[2]


def test_functions_of_the_instance_can_be_used(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def twice(value):\n    return value\n")
    rest = logged(*TOPICS) + (
        f"<Modules><Module><Name>own</Name><Library>{tmp_path / 'own.py'}</Library></Module></Modules>"
        "<UserDefinedFunctions><Function><Name>TWICE</Name><Module>own</Module><Symbol>twice</Symbol></Function>"
        "</UserDefinedFunctions>"
    )
    (queue,) = read(element("Q", "<Priority>TWICE(/p)</Priority>"), rest).config.queues
    assert queue.priority == "TWICE(/p)"


# --- topics and the transaction log -------------------------------------------------------------------------


def test_a_queue_over_its_own_name_must_be_recorded() -> None:
    """queues.md §1.7, §2.2"""
    found = refusal(element("other"))
    assert found[:2] == (4, "Queue")
    assert "the topic 'other' of the message type json is not recorded" in found[2]


def test_a_topic_that_is_recorded_in_another_message_type_is_not_recorded() -> None:
    """queues.md §2: all underlying topics have the queue's message type"""
    found = refusal(element("Q", message_type="fix"))
    assert "the topic 'Q' of the message type fix is not recorded" in found[2]


def test_a_target_must_be_recorded() -> None:
    """queues.md §2.2"""
    inner = "<UnderlyingTopic>^X</UnderlyingTopic><DefaultPublishTarget>X1</DefaultPublishTarget>"
    found = refusal(element("Q", inner))
    assert found[:2] == (8, "Queue/DefaultPublishTarget")
    assert "'X1' of the message type json is not recorded" in found[2]


def test_topics_that_an_expression_will_match_need_not_be_recorded() -> None:
    """queues.md §22, D-01."""
    inner = "<UnderlyingTopic>^(X|T)</UnderlyingTopic><DefaultPublishTarget>T1</DefaultPublishTarget>"
    assert refusals(configuration(element("Q", inner))) == []


def test_the_target_of_a_queue_over_one_topic_is_that_topic() -> None:
    """queues.md §2.2"""
    inner = "<UnderlyingTopic>T</UnderlyingTopic><DefaultPublishTarget>T2</DefaultPublishTarget>"
    found = refusal(element("Q", inner))
    assert found[:2] == (8, "Queue/DefaultPublishTarget")
    assert "'T2' is not the one topic of this queue, 'T'; leave DefaultPublishTarget out" in found[2]


def test_an_invalid_expression_for_topics() -> None:
    inner = "<UnderlyingTopic>^(T</UnderlyingTopic><DefaultPublishTarget>T</DefaultPublishTarget>"
    found = refusal(element("Q", inner))
    assert found[:2] == (7, "Queue/UnderlyingTopic")
    assert "not a regular expression" in found[2]


def test_a_dot_makes_a_name_an_expression() -> None:
    """protocol.md §8"""
    assert "has regex characters" in refusal(element("Q", "<UnderlyingTopic>T.1</UnderlyingTopic>"))[2]


def test_without_a_transaction_log_there_are_no_queues() -> None:
    """queues.md §1.1"""
    found = refusal(element("Q", "<UnderlyingTopic>T</UnderlyingTopic>"), "")
    assert found == (
        4,
        "Queue",
        "a queue is kept in the transaction log; add TransactionLog, with a Topic for 'T'",
    )


@pytest.mark.parametrize(
    "log",
    [
        "<TransactionLog><Topic><Name>X</Name><MessageType>json</MessageType></Topic></TransactionLog>",
        logged("(X"),
    ],
)
def test_a_queue_over_a_broken_log_gives_no_further_error(log: str) -> None:
    (found,) = refusals(configuration(element("Q"), log))
    assert "TransactionLog" in found[1]


def test_names_of_the_server_are_refused_for_queues() -> None:
    found = refusal(element("/AMPS/work", "<UnderlyingTopic>T</UnderlyingTopic>"))
    assert found[:2] == (5, "Queue/Name")
    assert "belong to the server; choose another" in found[2]


def test_no_queue_takes_topics_of_the_server() -> None:
    found = refusal(element("Q", "<UnderlyingTopic>/AMPS/ClientStatus</UnderlyingTopic>"), logged("/AMPS"))
    assert found[1] == "Queue/UnderlyingTopic"


# --- names in SOW -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tag", ["Queue", "LocalQueue", "GroupLocalQueue"])
def test_two_queues_of_one_name_and_message_type(tag: str) -> None:
    """queues.md §2.2, §22, D-32."""
    second = element("Q", OWNER if tag == "GroupLocalQueue" else "", tag=tag)
    found = refusal(element("Q") + second)
    assert found[1] == ("Queue[2]/Name" if tag == "Queue" else f"{tag}/Name")
    assert "'Q' of the message type json is defined at c.xml:4 as well (Queue); give each its own" in found[2]


@pytest.mark.parametrize(
    ("tag", "rest"),
    [
        ("Topic", "<Key>/k</Key>"),
        (
            "View",
            "<UnderlyingTopic>T</UnderlyingTopic><Projection><Field>/a</Field></Projection>"
            "<Grouping><Field>/a</Field></Grouping>",
        ),
        ("ConflatedTopic", "<UnderlyingTopic>T</UnderlyingTopic>"),
    ],
)
@pytest.mark.parametrize("queue_first", [True, False])
def test_a_queue_and_another_definition_of_one_name(tag: str, rest: str, queue_first: bool) -> None:
    """queues.md §2.2, §22, D-32."""
    both = [element("Q"), element("Q", rest, tag=tag)]
    texts = [found[2] for found in refusals(configuration("".join(both if queue_first else both[::-1])))]
    assert any("'Q' of the message type json is defined at c.xml:4 as well" in text for text in texts)
    others = configuration(element("Q") + element("other", rest, tag=tag))
    assert not any("as well" in found[2] for found in refusals(others))


@pytest.mark.parametrize("tag", ["View", "ConflatedTopic"])
@pytest.mark.parametrize(
    ("inner", "path"),
    [
        ("<UnderlyingTopic>T</UnderlyingTopic>", "Queue/UnderlyingTopic"),
        (
            "<UnderlyingTopic>^T</UnderlyingTopic><DefaultPublishTarget>T</DefaultPublishTarget>",
            "Queue/DefaultPublishTarget",
        ),
    ],
)
def test_views_and_conflated_topics_are_no_underlying_topics(tag: str, inner: str, path: str) -> None:
    """queues.md §22, D-03."""
    sow = element("Q", inner) + element("T", tag=tag)
    found = [(path, text) for _, path, text in refusals(configuration(sow)) if "never recorded" in text]
    assert found == [
        (path, f"'T' is a {tag}, which is never recorded; name a topic that publishers write to")
    ]


# --- replication --------------------------------------------------------------------------------------------


def replication(topic: str, message_type: str = "json") -> str:
    return (
        "<Replication><Destination><Name>d</Name><SyncType>sync</SyncType>\n"
        f"<Topic><Name>{topic}</Name><MessageType>{message_type}</MessageType></Topic>\n"
        "<Transport><Type>amps-replication</Type><InetAddr>h:1</InetAddr></Transport></Destination></Replication>"
    )


def replicated(tag: str, topic: str, message_type: str = "json") -> list[str]:
    """The errors about a local queue Q over T that is among the replicated topics."""
    inner = "<UnderlyingTopic>T</UnderlyingTopic>" + (OWNER if tag == "GroupLocalQueue" else "")
    rest = logged("^T") + replication(topic, message_type)
    return [
        text
        for _, path, text in refusals(configuration(element("Q", inner, tag=tag), rest))
        if path.endswith("Destination/Topic/Name") and "LocalQueue" in text
    ]


@pytest.mark.parametrize("topic", ["Q", "^Q", ".*"])
def test_a_local_queue_cannot_be_replicated(topic: str) -> None:
    """queues.md §2.2, §24, 70."""
    (text,) = replicated("LocalQueue", topic)
    assert "takes the LocalQueue 'Q' (c.xml:4), which cannot be replicated" in text
    assert replicated("Queue", topic) == replicated("GroupLocalQueue", topic) == []


@pytest.mark.parametrize(
    ("topic", "message_type"), [("T", "json"), ("^T", "json"), ("Q", "fix"), ("(Q", "json")]
)
def test_the_underlying_topic_of_a_local_queue_can_be_replicated(topic: str, message_type: str) -> None:
    """queues.md §2"""
    assert replicated("LocalQueue", topic, message_type) == []


# --- single elements ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tag", ["Queue", "LocalQueue", "GroupLocalQueue"])
@pytest.mark.parametrize("missing", ["Name", "MessageType"])
def test_name_and_message_type_are_required(tag: str, missing: str) -> None:
    """queues.md §2.2"""
    value = "Q" if missing == "Name" else "json"
    whole = element("Q", OWNER if tag == "GroupLocalQueue" else "", tag=tag)
    found = refusal(whole.replace(f"<{missing}>{value}</{missing}>", ""))
    assert found == (
        4,
        f"{tag}/{missing}",
        f"the required element {missing} is missing; add it to {tag}",
    )


def test_an_unknown_message_type() -> None:
    found = refusal(element("Q", message_type="jsonn"))
    assert found[:2] == (6, "Queue/MessageType")
    assert "unknown message type 'jsonn'" in found[2]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in ("LeasePeriod", "Expiration", "DeferredAckExpiration") for value in (
            "0", "0s", "0.1ns", "-1s", "soon", "5 minutes", "6000w"
        )),
        *((name, value) for name in ("MaxBacklog", "MaxPerSubscriptionBacklog") for value in (
            "0", "-1", "1.5", "many", "2147483648", "10kb"
        )),
        *((name, value) for name in ("MaxDeliveries", "MaxCancels") for value in ("-1", "0.5", "x", "2147483648")),
        *(("TargetQueueDepth", value) for value in ("0", "999", "-1", "x", "2147483648")),
        *(("RecoveryPoint", value) for value in (
            "yesterday", "1|", "|1|", "1|2|3|4|", "18446744073709551616|1|", "[1|2|:3|4|]", "0|1|,5|6|",
            "1|2|,20240301T093000", "20241301T093000", "2024-03-01T09:30:00Z", "20240301T093000+01:00", ","
        )),
        ("Semantics", "exactly-once"),
        ("ExpirationModel", "longest"),
        ("FairnessModel", "round_robin"),
        ("Leasing", "loose"),
        ("FileBackedMetadata", "perhaps"),
        *((name, "") for name in ("UnderlyingTopic", "Filter", "Priority", "LeasePeriod")),
    ],
)  # fmt: skip
def test_values_that_cannot_be_read(name: str, value: str) -> None:
    """queues.md §2.2, §22, D-01."""
    found = refusal(element("Q", f"<{name}>{value}</{name}>"))
    assert found[:2] == (7, f"Queue/{name}")
    assert value in found[2]
    assert re.search(r"\b(write|such as)\b", found[2])


@pytest.mark.parametrize("name", ["HashAffinity", "MaxQueueDepth", "DefaultPublishTopic"])
def test_elements_that_do_not_exist(name: str) -> None:
    """queues.md §2: not elements"""
    assert "unknown element" in refusal(element("Q", f"<{name}>1</{name}>"))[2]


def test_every_problem_of_every_queue_is_reported_at_once() -> None:
    sow = element("Q", "<LeasePeriod>x</LeasePeriod><Filter>/a =</Filter>") + element(
        "nowhere", "<Priority>/p</Priority><BarrierExpression>/b</BarrierExpression>"
    )
    assert [path for _, path, _ in refusals(configuration(sow))] == [
        "Queue/LeasePeriod",
        "Queue/Filter",
        "Queue[2]",
        "Queue[2]/Priority",
    ]


# --- ConfigValidation disabled ------------------------------------------------------------------------------

LENIENT = "<ConfigValidation>disabled</ConfigValidation>" + logged(*TOPICS)


def test_without_validation_an_unreadable_value_is_ignored() -> None:
    loaded = read(element("Q", "<LeasePeriod>0s</LeasePeriod><MaxBacklog>0</MaxBacklog>"), LENIENT)
    assert [finding.severity for finding in loaded.findings] == [Severity.WARNING] * 2
    (queue,) = loaded.config.queues
    assert (queue.lease_period_s, queue.max_backlog) == (None, None)


def test_without_validation_a_queue_without_a_name_is_left_out() -> None:
    loaded = read("<Queue><MessageType>json</MessageType></Queue>" + element("Q"), LENIENT)
    assert [queue.name for queue in loaded.config.queues] == ["Q"]
    assert [finding.severity for finding in loaded.findings] == [Severity.WARNING]


def test_an_owner_is_needed_without_validation() -> None:
    """queues.md §22, D-01."""
    sow = element("Q", "<InitialOwner></InitialOwner>", tag="GroupLocalQueue")
    ((_, path, _),) = refusals(configuration(sow, LENIENT))
    assert path == "GroupLocalQueue"


def test_rules_between_elements_hold_without_validation() -> None:
    """queues.md §22, D-01."""
    sow = element("Q", "<Priority>/p</Priority><BarrierExpression>/b</BarrierExpression>")
    assert len(refusals(configuration(sow, LENIENT))) == 1


def test_findings_name_the_file_that_a_queue_is_included_from(tmp_path: Path) -> None:
    (tmp_path / "queue.xml").write_text(element("Q"))
    main = tmp_path / "main.xml"
    main.write_text(configuration("<Include>queue.xml</Include>"))
    (queue,) = load(main).config.queues
    assert queue.place == f"{tmp_path / 'queue.xml'}:1"


# --- delays of cancelled messages (queue_guarantees.md §2.2) --------------------------------------------------


def test_delays_of_cancels() -> None:
    inner = "<CancelDelay>1s</CancelDelay><CancelDelayFactor>1.5</CancelDelayFactor><CancelDelayMax>5m</CancelDelayMax>"
    (queue,) = read(element("Q", inner)).config.queues
    assert (queue.cancel_delay_s, queue.cancel_delay_factor, queue.cancel_delay_max_s) == (1.0, 1.5, 300.0)


@pytest.mark.parametrize("name", ["CancelDelay", "CancelDelayFactor", "CancelDelayMax"])
def test_delays_of_cancels_need_messages_that_come_back(name: str) -> None:
    values = {"CancelDelay": "1s", "CancelDelayFactor": "2", "CancelDelayMax": "1h"}
    given = {"CancelDelay": "1s", name: values[name]}
    inner = "".join(f"<{tag}>{text}</{tag}>" for tag, text in given.items())
    found = refusals(configuration(element("Q", "<Semantics>at-most-once</Semantics>" + inner)))
    assert f"Queue/{name}" in [path for _, path, _ in found]
    assert all("needs at-least-once" in text and line > 0 for line, _, text in found)


@pytest.mark.parametrize(
    "inner", ["<CancelDelayFactor>2</CancelDelayFactor>", "<CancelDelayMax>1h</CancelDelayMax>"]
)
def test_what_changes_a_delay_needs_one(inner: str) -> None:
    assert "changes CancelDelay, which is missing" in refusal(element("Q", inner))[2]


@pytest.mark.parametrize(
    "inner",
    [
        "<CancelDelay>0s</CancelDelay>",
        "<CancelDelay>3654d</CancelDelay>",
        "<CancelDelay>soon</CancelDelay>",
        "<CancelDelay>1s</CancelDelay><CancelDelayFactor>0.5</CancelDelayFactor>",
        "<CancelDelay>1s</CancelDelay><CancelDelayFactor>101</CancelDelayFactor>",
        "<CancelDelay>1s</CancelDelay><CancelDelayFactor>nan</CancelDelayFactor>",
        "<CancelDelay>1s</CancelDelay><CancelDelayMax>3654d</CancelDelayMax>",
    ],
)
def test_delays_of_cancels_out_of_range(inner: str) -> None:
    line, path, _ = refusal(element("Q", inner))
    assert line > 0
    assert path.startswith("Queue/CancelDelay")
