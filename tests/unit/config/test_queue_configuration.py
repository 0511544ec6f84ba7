"""Elements of message queues, their defaults, and the values they give (queues.md §2)."""

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amps.config import QueueConfig, RecoveryPoint, Severity
from amps.config.elements_queues import read_limit, read_period, read_recovery_point, read_tries
from amps.config.queue_events import QueueEvent, queue_events
from tests.support.queue_configurations import element, logged, read, read_queue, refusal


def test_a_queue_with_nothing_but_its_name_has_the_documented_defaults() -> None:
    """queues.md §2"""
    assert read_queue(element("Q")) == QueueConfig(
        name="Q",
        message_type="json",
        kind="Queue",
        underlying_topic="Q",
        underlying_is_regex=False,
        default_publish_target="Q",
        semantics="at-least-once",
        lease_period_s=None,
        max_backlog=None,
        max_per_subscription_backlog=1,
        expiration_s=None,
        expiration_model="default",
        filter=None,
        recovery_point=RecoveryPoint("epoch", "epoch"),
        fairness_model="proportional",
        leasing="sublet",
        max_deliveries=0,
        max_cancels=0,
        priority=None,
        barrier_expression=None,
        target_queue_depth=None,
        deferred_ack_expiration_s=86400.0,
        place="c.xml:4",
    )


def test_defaults_of_the_dataclass_are_those_of_the_elements() -> None:
    written = read_queue(element("Q"))
    assert written == QueueConfig("Q", "json", "Queue", "Q", False, "Q", place="c.xml:4")


def test_every_element_of_a_queue() -> None:
    """queues.md §2"""
    assert read_queue(
        element(
            "Q",
            "<UnderlyingTopic>^T(1|2)$</UnderlyingTopic><DefaultPublishTarget>T2</DefaultPublishTarget>"
            "<Semantics>at-least-once</Semantics><LeasePeriod>30s</LeasePeriod><MaxBacklog>10k</MaxBacklog>"
            "<MaxPerSubscriptionBacklog>50</MaxPerSubscriptionBacklog><Expiration>2h</Expiration>"
            "<ExpirationModel>latest</ExpirationModel><Filter>/x &gt; 1</Filter>"
            "<RecoveryPoint>now</RecoveryPoint><FairnessModel>fast</FairnessModel><Leasing>strict</Leasing>"
            "<MaxDeliveries>5</MaxDeliveries><MaxCancels>3</MaxCancels><Priority>/price * /qty</Priority>"
            "<FileBackedMetadata>disabled</FileBackedMetadata><DeferredAckExpiration>15m</DeferredAckExpiration>"
            "<InitialOwner>here</InitialOwner>",
            tag="GroupLocalQueue",
        )
    ) == QueueConfig(
        name="Q",
        message_type="json",
        kind="GroupLocalQueue",
        underlying_topic="^T(1|2)$",
        underlying_is_regex=True,
        default_publish_target="T2",
        semantics="at-least-once",
        lease_period_s=30.0,
        max_backlog=10_000,
        max_per_subscription_backlog=50,
        expiration_s=7200.0,
        expiration_model="latest",
        filter="/x > 1",
        recovery_point=RecoveryPoint("now", "now"),
        fairness_model="fast",
        leasing="strict",
        max_deliveries=5,
        max_cancels=3,
        priority="/price * /qty",
        barrier_expression=None,
        target_queue_depth=None,
        deferred_ack_expiration_s=900.0,
        initial_owner="here",
        domain="here",
        place="c.xml:4",
    )


@pytest.mark.parametrize(
    ("inner", "attribute", "value"),
    [
        (
            "<BarrierExpression>/sync IS NOT NULL</BarrierExpression>",
            "barrier_expression",
            "/sync IS NOT NULL",
        ),
        ("<TargetQueueDepth>1000</TargetQueueDepth>", "target_queue_depth", 1000),
        ("<Priority>/p</Priority>", "priority", "/p"),
        ("<OrderingKey>/customer</OrderingKey>", "ordering_key", "/customer"),
        ("<ExpirationModel>earliest</ExpirationModel>", "expiration_model", "earliest"),
        ("<ExpirationModel>queue</ExpirationModel>", "expiration_model", "queue"),
        ("<FairnessModel>round-robin</FairnessModel>", "fairness_model", "round-robin"),
        ("<Leasing>Strict</Leasing>", "leasing", "strict"),
        ("<MaxBacklog>1</MaxBacklog>", "max_backlog", 1),
        ("<MaxDeliveries>0</MaxDeliveries>", "max_deliveries", 0),
        ("<MaxCancels>2147483647</MaxCancels>", "max_cancels", 2**31 - 1),
        ("<CancelDelay>250ms</CancelDelay>", "cancel_delay_s", 0.25),
        ("<CancelDelay>3653d</CancelDelay>", "cancel_delay_s", 3653 * 86400.0),
        ("<LeasePeriod>1ns</LeasePeriod>", "lease_period_s", 1e-9),
        ("<LeasePeriod>250ms</LeasePeriod>", "lease_period_s", 0.25),
        ("<Expiration>1w</Expiration>", "expiration_s", 7 * 86400.0),
        ("<Filter>LAST_UPDATED() > /t</Filter>", "filter", "LAST_UPDATED() > /t"),
    ],
)
def test_values_of_single_elements(inner: str, attribute: str, value: object) -> None:
    """queues.md §2"""
    assert getattr(read_queue(element("Q", inner)), attribute) == value


def test_an_at_most_once_queue_is_round_robin_by_default() -> None:
    """queues.md §2, §6"""
    for inner in ("", "<FairnessModel>round-robin</FairnessModel>"):
        queue = read_queue(element("Q", f"<Semantics>at-most-once</Semantics>{inner}"))
        assert (queue.semantics, queue.fairness_model) == ("at-most-once", "round-robin")


@pytest.mark.parametrize(
    "inner",
    [
        "<LeasePeriod>1s</LeasePeriod>",
        "<Leasing>strict</Leasing>",
        "<MaxDeliveries>2</MaxDeliveries>",
        "<MaxCancels>2</MaxCancels>",
    ],
)
def test_elements_without_effect_at_most_once_give_a_warning(inner: str) -> None:
    (warning,) = read(element("Q", f"<Semantics>at-most-once</Semantics>{inner}")).findings
    assert (warning.severity, warning.line) == (Severity.WARNING, 8)
    assert "has no effect with at-most-once" in warning.text


def test_topic_is_a_synonym_of_name_and_queue_definition_of_queue() -> None:
    """queues.md §2"""
    inner = "<Topic>Q</Topic><MessageType>json</MessageType>"
    queue = read_queue(f"<QueueDefinition>{inner}</QueueDefinition>")
    assert (queue.name, queue.kind) == ("Q", "Queue")
    assert refusal(element("Q", "<Topic>Q2</Topic>"))[1] == "Queue/Topic"


def test_queues_of_all_kinds_are_in_the_order_of_the_file() -> None:
    """queues.md §2"""
    owner = "<InitialOwner>here</InitialOwner>"
    queues = read(
        element("Q3", tag="LocalQueue")
        + element("Q1")
        + element("Q2", owner, tag="GroupLocalQueue")
        + element("Q0", tag="QueueDefinition")
    ).config.queues
    assert [(queue.name, queue.kind) for queue in queues] == [
        ("Q3", "LocalQueue"),
        ("Q1", "Queue"),
        ("Q2", "GroupLocalQueue"),
        ("Q0", "Queue"),
    ]


@pytest.mark.parametrize(
    ("inner", "missing"),
    [
        ("<FileBackedMetadata>enabled</FileBackedMetadata>", "queue.cache"),
    ],
)
def test_elements_of_a_queue_without_effect_give_a_warning(inner: str, missing: str) -> None:
    """queues.md §2, §13: these elements have no effect on a single instance, whose queue state is always in a file."""
    loaded = read(element("Q", "<InitialOwner>here</InitialOwner>" + inner, tag="GroupLocalQueue"))
    (finding,) = loaded.findings
    assert finding.severity is Severity.WARNING
    assert finding.text.startswith("has no effect: ")
    assert missing in finding.text


def test_behaviour_23_a_queue_that_another_instance_owns_needs_replication() -> None:
    """queues.md §24, 23: the owner's existence is not checked. Without replication nobody would deliver messages."""
    owned = element("Q", "<InitialOwner>no-such-instance</InitialOwner>", tag="GroupLocalQueue")
    _, path, text = refusal(owned)
    assert path == "GroupLocalQueue/InitialOwner"
    assert text == (
        "'no-such-instance' owns new messages of the queue, but this instance replicates to no other and from none; "
        "add Replication, or write here, this instance's Name"
    )
    accepts = "<Transport><Name>r</Name><Type>amps-replication</Type><InetAddr>1</InetAddr></Transport>"
    (queue,) = read(owned, logged("^Q") + f"<Transports>{accepts}</Transports>").config.queues
    assert (queue.initial_owner, queue.domain) == ("no-such-instance", "here")
    assert read_queue(element("Q", "<InitialOwner>here</InitialOwner>", tag="GroupLocalQueue")).name == "Q"


def test_the_name_of_a_queue_need_not_be_recorded() -> None:
    """queues.md §22, D-02."""
    queue = read_queue(element("WorkToDo", "<UnderlyingTopic>T</UnderlyingTopic>"))
    assert (queue.underlying_topic, queue.default_publish_target) == ("T", "T")


@pytest.mark.parametrize("written", ["", "<UnderlyingTopic>Q.jobs</UnderlyingTopic>"])
def test_a_queue_over_its_own_name_takes_that_name_as_it_is(written: str) -> None:
    """queues.md §1.6, §2: a name with a dot is a name."""
    queue = read_queue(element("Q.jobs", written))
    assert (queue.underlying_topic, queue.underlying_is_regex) == ("Q.jobs", False)
    assert queue.default_publish_target == "Q.jobs"


def test_a_target_may_have_regex_characters_if_it_is_a_topic_of_the_queue() -> None:
    """queues.md §4: publishes use literal topic names."""
    queue = read_queue(
        element(
            "Q",
            "<UnderlyingTopic>^T[.]</UnderlyingTopic><DefaultPublishTarget>T.direct</DefaultPublishTarget>",
        )
    )
    assert queue.default_publish_target == "T.direct"


def test_a_target_may_repeat_the_one_topic_of_the_queue() -> None:
    inner = "<UnderlyingTopic>T</UnderlyingTopic><DefaultPublishTarget>T</DefaultPublishTarget>"
    assert read_queue(element("Q", inner)).default_publish_target == "T"


def test_without_regex_support_every_underlying_topic_is_a_name() -> None:
    """queues.md §2, protocol.md §8"""
    rest = "<RegexTopicSupport>disabled</RegexTopicSupport>" + logged("^T")
    queue = read_queue(element("Q", "<UnderlyingTopic>^T</UnderlyingTopic>"), rest)
    assert (queue.underlying_topic, queue.underlying_is_regex) == ("^T", False)
    assert queue.default_publish_target == "^T"


def test_one_name_can_be_a_queue_in_each_message_type() -> None:
    """queues.md §22, D-32."""
    rest = logged("Q").replace("</TransactionLog>", "") + (
        "<Topic><Name>Q</Name><MessageType>fix</MessageType></Topic></TransactionLog>"
    )
    queues = read(element("Q") + element("Q", message_type="fix"), rest).config.queues
    assert [queue.message_type for queue in queues] == ["json", "fix"]


def test_a_queue_that_starves_another_one_gives_a_warning() -> None:
    """queues.md §4: a publish to a queue's name is recorded under its target."""
    sow = element("Q1", "<UnderlyingTopic>T</UnderlyingTopic>") + element(
        "Q2", "<UnderlyingTopic>Q1</UnderlyingTopic>"
    )
    (warning,) = read(sow).findings
    assert (warning.severity, warning.path) == (Severity.WARNING, "AMPSConfig/SOW/Queue[2]/UnderlyingTopic")
    assert "recorded as 'T'" in warning.text
    fine = element("Q1") + element("Q2", "<UnderlyingTopic>Q1</UnderlyingTopic>")
    assert read(fine).findings == ()


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("epoch", RecoveryPoint("epoch", "epoch")),
        ("EPOCH", RecoveryPoint("epoch", "EPOCH")),
        ("0", RecoveryPoint("epoch", "0")),
        ("now", RecoveryPoint("now", "now")),
        ("creation", RecoveryPoint("now", "creation")),
        ("0|1", RecoveryPoint("now", "0|1")),
        ("0 | 1 |", RecoveryPoint("now", "0 | 1 |")),
        (
            "13948331409633264000|17|",
            RecoveryPoint("bookmark", "13948331409633264000|17|", ((13948331409633264000, 17),)),
        ),
        ("1|2|, 3|4", RecoveryPoint("bookmark", "1|2|, 3|4", ((1, 2), (3, 4)))),
        ("19700101T000001", RecoveryPoint("time", "19700101T000001", time_ns=10**9)),
        ("20240301T093000Z", RecoveryPoint("time", "20240301T093000Z", time_ns=1709285400 * 10**9)),
        ("19700101T000000.5Z", RecoveryPoint("time", "19700101T000000.5Z", time_ns=5 * 10**8)),
    ],
)
def test_recovery_points(text: str, point: RecoveryPoint) -> None:
    """queues.md §2, §17; bookmarks and times as in transaction_log.md §5"""
    read_as = read_queue(element("Q", f"<RecoveryPoint>{text}</RecoveryPoint>")).recovery_point
    assert read_as == point
    assert read_as.text == text


def test_recovery_points_are_equal_if_they_mean_the_same() -> None:
    """queues.md §17: a changed recovery point resets the queue, so equal points must compare equal."""
    assert read_recovery_point("creation") == read_recovery_point("now")
    assert read_recovery_point("20240301T093000Z") == read_recovery_point("20240301T093000")
    assert read_recovery_point("1|2|") == read_recovery_point("1|2")
    different = [read_recovery_point(text) for text in ("epoch", "now", "1|2|", "1|3|", "20240301T093000")]
    assert len(set(different)) == len(different)


def test_the_flush_interval_of_deliveries_gives_a_warning() -> None:
    """queues.md §2, instance tuning: deliveries are sent at once, so the interval has no effect."""
    rest = "<Tuning><Queue><QueueDeliveryFlushInterval>1us</QueueDeliveryFlushInterval></Queue></Tuning>"
    (finding,) = read("", rest).findings
    assert finding.severity is Severity.WARNING
    assert finding.text.startswith("has no effect: deliveries are not delayed")


def test_a_flush_interval_has_a_minimum() -> None:
    """queues.md §2, instance tuning"""
    rest = "<Tuning><Queue><QueueDeliveryFlushInterval>999ns</QueueDeliveryFlushInterval></Queue></Tuning>"
    assert "below the minimum of 1us" in refusal("", rest)[2]


@pytest.mark.parametrize("reader", [read_period, read_limit, read_tries, read_recovery_point])
@given(text=st.text(max_size=40) | st.text("0123456789|,TZ. -smk", max_size=30))
@example(text="00010101T000000")
@example(text="99991231T235959.999999999Z")
@example(text="1|" * 3)
def test_any_text_is_read_or_refused_with_value_error(reader: Callable[[str], object], text: str) -> None:
    with contextlib.suppress(ValueError):
        reader(text)


# --- configurations from the documents ------------------------------------------------------------------------


def test_the_sample_of_two_queues_over_one_topic() -> None:
    """queues.md §4"""
    sow = "".join(
        element(
            name,
            f"<UnderlyingTopic>^ORD$|^{name}_DIRECT$</UnderlyingTopic>"
            f"<DefaultPublishTarget>{name}_DIRECT</DefaultPublishTarget>",
        )
        for name in ("A", "B")
    )
    loaded = read(sow, logged("^ORD$", "_DIRECT$"))
    assert loaded.findings == ()
    assert [queue.default_publish_target for queue in loaded.config.queues] == ["A_DIRECT", "B_DIRECT"]


def test_the_composed_sample() -> None:
    """queues.md §2.1"""
    jobs = element(
        "Q.jobs",
        "<UnderlyingTopic>^JOB_(NY|LN)$|^JOB_DIRECT$</UnderlyingTopic>"
        "<DefaultPublishTarget>JOB_DIRECT</DefaultPublishTarget><LeasePeriod>30s</LeasePeriod>"
        "<MaxPerSubscriptionBacklog>50</MaxPerSubscriptionBacklog><MaxDeliveries>5</MaxDeliveries>"
        "<Expiration>1d</Expiration>",
    )
    regional = element(
        "Q.regional",
        "<UnderlyingTopic>JOB_LN</UnderlyingTopic><InitialOwner>here</InitialOwner>"
        "<GroupLocalQueueDomain>LN</GroupLocalQueueDomain>",
        tag="GroupLocalQueue",
    )
    loaded = read(jobs + regional, logged("^JOB_", r"^Q\."))
    assert loaded.findings == ()
    assert [(queue.name, queue.domain) for queue in loaded.config.queues] == [
        ("Q.jobs", None),
        ("Q.regional", "LN"),
    ]


def test_a_sample_whose_log_records_the_queue_as_well() -> None:
    """queues.md §22, D-02."""
    inner = "<Semantics>at-most-once</Semantics><UnderlyingTopic>Work</UnderlyingTopic>"
    assert read_queue(element("WorkToDo", inner), logged("Work", "WorkToDo")).underlying_topic == "Work"


def test_a_sample_with_an_unanchored_expression() -> None:
    inner = (
        "<UnderlyingTopic>TASKS_.*</UnderlyingTopic><DefaultPublishTarget>TASKS_DIRECT</DefaultPublishTarget>"
        "<LeasePeriod>60s</LeasePeriod><Expiration>1d</Expiration><MaxBacklog>3</MaxBacklog>"
    )
    assert read_queue(element("MQ", inner), logged("TASKS_.*")).max_backlog == 3


def test_a_dead_letter_queue() -> None:
    """queues.md §15"""
    sow = element("Jobs", "<MaxCancels>3</MaxCancels><MaxDeliveries>10</MaxDeliveries>") + element("Failed")
    action = (
        "<Actions><Action><On><Module>amps-action-on-sow-expire-message</Module><Options><Topic>Jobs</Topic>"
        "<MessageType>json</MessageType></Options></On><Do><Module>amps-action-do-publish-message</Module>"
        "<Options><Topic>Failed</Topic><MessageType>json</MessageType><Data>{{AMPS_DATA}}</Data></Options></Do>"
        "</Action></Actions>"
    )
    log = logged("Jobs", "Failed")
    loaded = read(sow, log + action)
    assert [queue.name for queue in loaded.config.queues] == ["Jobs", "Failed"]
    assert queue_events(loaded.config) == (QueueEvent(True, "json", "Jobs"),)
    assert loaded.findings == ()
