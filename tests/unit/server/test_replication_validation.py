"""The checks of two configurations before one replicates to the other (replication.md §16)."""

import json
from typing import Any

import pytest

from amps.config import ServerConfig, load
from amps.server.replication.instance_config import (
    BadConfigFrame,
    InstanceConfig,
    SowTopic,
    config_frame,
    own_config,
    read_config_frame,
)
from amps.server.replication.topic_cover import Topics, covers, may_overlap
from amps.server.replication.validation import VIOLATIONS_MAX, Violation, result_frame, validate

JSON = "<MessageType>json</MessageType>"


def topic(name: str = "t", *, exclude: str = "", filter: str = "") -> str:
    inner = f"<Filter>{filter}</Filter>" if filter else ""
    inner += f"<ExcludeValidation>{exclude}</ExcludeValidation>" if exclude else ""
    return f"<Topic><Name>{name}</Name>{JSON}{inner}</Topic>"


def to(name: str, *topics: str, group: str = "", passes: str = ".*") -> str:
    return (
        f"<Destination><Name>{name}</Name>{f'<Group>{group}</Group>' if group else ''}<SyncType>sync</SyncType>"
        + (f"<PassThrough>{passes}</PassThrough>" if passes else "")
        + "".join(topics or (topic(),))
        + "<Transport><Type>amps-replication</Type><InetAddr>h:1</InetAddr></Transport></Destination>"
    )


def configured(
    name: str, *destinations: str, group: str = "", logged: str = "t", sow: str = ""
) -> ServerConfig:
    entries = "".join(f"<Topic><Name>{one}</Name>{JSON}</Topic>" for one in logged.split())
    return load(
        f"{name}.xml",
        text=f"<AMPSConfig><Name>{name}</Name>{f'<Group>{group}</Group>' if group else ''}"
        f"<TransactionLog><JournalDirectory>j</JournalDirectory>{entries}</TransactionLog><SOW>{sow}</SOW>"
        f"<Replication>{''.join(destinations)}</Replication></AMPSConfig>",
    ).config


def seen(config: ServerConfig) -> InstanceConfig:
    """A configuration as the other instance gets it: through the frame."""
    return read_config_frame(json.loads(json.dumps(config_frame(config))), config.name, config.group)


def instance(name: str, *destinations: str, **more: Any) -> InstanceConfig:
    return seen(configured(name, *destinations, **more))


def checks(here: InstanceConfig, there: InstanceConfig, destination: int = 0) -> list[str]:
    """The failed checks of a destination."""
    return [violation.check for violation in validate(here, destination, there)]


A = instance("A", to("B"))
B = instance("B", to("A"))


def test_a_pair_with_equal_configurations_is_valid() -> None:
    """replication.md §16"""
    assert validate(A, 0, B) == validate(B, 0, A) == []


def test_replication_37_txlog() -> None:
    """replication.md §26 37: the topic is not recorded there."""
    there = instance("B", to("A", topic("u")), logged="u")
    here = instance("A", to("B", topic(exclude="replicate,cascade")))
    assert validate(here, 0, there) == [
        Violation(
            "txlog",
            "t",
            "json",
            "B does not record it; add a Topic for it to TransactionLog there, or add txlog to ExcludeValidation",
        )
    ]
    assert checks(instance("A", to("B", topic(exclude="txlog,replicate,cascade"))), there) == []


def test_replication_38_replicate() -> None:
    """replication.md §26 38: no destination there, none for this instance, or not with this topic."""
    alone = instance("B")
    (violation,) = validate(A, 0, alone)
    assert violation.check == "replicate"
    assert violation.detail == (
        "B has no Replication/Destination for A or the group A; add one there, with this Topic, or add replicate to "
        "ExcludeValidation"
    )
    assert checks(A, instance("B", to("C"))) == ["replicate"]
    (violation,) = validate(A, 0, instance("B", to("A", topic("u")), logged="t u"))
    assert violation.detail.startswith("B does not replicate it back; add this Topic to its Destination A")
    assert checks(instance("A", to("B", topic(exclude="replicate,cascade"))), alone) == []


def test_a_destination_leads_back_by_name_or_group() -> None:
    """replication.md 25.1: a group, if given, decides; a name alone may be that of the group."""
    here = instance("A", to("B"), group="g")
    assert checks(here, instance("B", to("x", group="g"))) == []
    assert checks(here, instance("B", to("A", group="h"))) == ["replicate"]
    assert checks(here, instance("B", to("g"))) == []
    assert checks(here, instance("B", to("A"))) == []


def test_several_destinations_lead_back_together() -> None:
    """replication.md §16: the topics of all of them come back."""
    here = instance("A", to("B", topic("t"), topic("u")), logged="t u")
    there = instance("B", to("A", topic("t")), to("x", topic("u"), group="A"), logged="t u")
    assert checks(here, there) == []


def with_sow(config: InstanceConfig, *keys: str) -> InstanceConfig:
    topics = (SowTopic("t", "json", keys),)
    return InstanceConfig(
        config.name, config.group, config.logged, topics, config.queues, config.destinations
    )


CHAINING = (
    "<KeyGenerator><Module>libamps_id_chaining_key_generator</Module><Options>{}</Options></KeyGenerator>"
)


@pytest.mark.parametrize(
    ("here", "there", "failed"),
    [
        ("<Key>/a</Key><Key>/b</Key>", "<Key>/a</Key><Key>/b</Key>", []),
        ("<Key>/a</Key><Key>/b</Key>", "<Key>/b</Key><Key>/a</Key>", ["keys"]),
        ("", "", []),
        ("", "<Key>/a</Key>", ["keys"]),
        (CHAINING.format("<Key>/a</Key><Key>/b</Key>"), "", ["keys"]),
        (CHAINING.format("<Key>/a</Key><Key>/b</Key>"), "<Key>/a</Key><Key>/b</Key>", ["keys"]),
        (
            CHAINING.format("<Key>/a</Key><Key>/b</Key>"),
            CHAINING.format("<Key>/b</Key><Primary>/a</Primary>"),
            [],
        ),
        (
            CHAINING.format("<Key>/a</Key><Key>/b</Key>"),
            CHAINING.format("<Key>/a</Key><Key>/c</Key>"),
            ["keys"],
        ),
        ("<Key>/a</Key>", None, ["sow", "keys"]),
        (None, "<Key>/a</Key>", []),
    ],
)
def test_replication_39_sow_topics_of_two_configurations(
    here: str | None, there: str | None, failed: list[str]
) -> None:
    """replication.md §26 39; sow.md §4: the same Key list downstream."""

    def defined(inner: str | None) -> str:
        if inner is None:
            return ""
        return f"<Topic><Name>t</Name>{JSON}<Durability>transient</Durability>{inner}</Topic>"

    one, other = instance("A", to("B"), sow=defined(here)), instance("B", to("A"), sow=defined(there))
    assert checks(one, other) == failed


def test_replication_39_sow_and_keys() -> None:
    """replication.md §26 39: excluding `sow` alone is not enough; different keys are another check."""
    here = with_sow(A, "/id")
    assert checks(here, B) == ["sow", "keys"]
    assert checks(with_sow(instance("A", to("B", topic(exclude="sow"))), "/id"), B) == ["keys"]
    assert checks(with_sow(instance("A", to("B", topic(exclude="sow,keys"))), "/id"), B) == []
    (violation,) = validate(here, 0, with_sow(B, "/id", "/part"))
    assert violation.check == "keys"
    assert violation.detail.startswith("the keys of t are /id on A, but /id, /part on B; make them equal")
    assert checks(with_sow(instance("A", to("B", topic(exclude="keys"))), "/id"), with_sow(B, "/x")) == []
    assert checks(here, with_sow(B, "/id")) == []
    assert checks(A, with_sow(B, "/id")) == []


def test_replication_40_replicate_filter() -> None:
    """replication.md §26 40: the filter back is the same."""
    here = instance("A", to("B", topic(filter="/x = 1")))
    (violation,) = validate(here, 0, B)
    assert violation.check == "replicate_filter"
    assert violation.detail.startswith(
        "the filter here is /x = 1, but B replicates t back with no filter; make them equal"
    )
    assert checks(here, instance("B", to("A", topic(filter="/x = 2")))) == ["replicate_filter"]
    assert checks(here, instance("B", to("A", topic(filter="/x = 1")))) == []
    assert checks(instance("A", to("B", topic(filter="/x = 1", exclude="replicate_filter"))), B) == []
    assert checks(A, instance("B", to("A", topic(filter="/x = 1")))) == []


def test_replication_40_cascade() -> None:
    """replication.md §26 40: there is not less strict towards its own destinations."""
    there = instance("B", to("A"), to("C", topic(exclude="replicate,sow")))
    (violation,) = validate(A, 0, there)
    assert violation.check == "cascade"
    assert violation.detail.startswith(
        "B excludes replicate, sow for t to its Destination C; remove that from ExcludeValidation there, or add it here"
    )
    assert checks(instance("A", to("B", topic(exclude="sow"))), there) == ["cascade"]
    assert checks(instance("A", to("B", topic(exclude="sow,replicate"))), there) == []
    assert checks(instance("A", to("B", topic(exclude="cascade"))), there) == []
    other = instance("B", to("A"), to("C", topic("u", exclude="replicate")), logged="t u")
    assert checks(A, other) == []


def test_excluding_only_cascade_makes_nothing_less_strict() -> None:
    """replication.md §16: such a fabric still counts as fully valid."""
    assert checks(A, instance("B", to("A", topic(exclude="cascade")))) == []


QUEUE = f"<Queue><Name>q</Name>{JSON}<UnderlyingTopic>t</UnderlyingTopic></Queue>"
BOTH = (topic(), topic("q"))


def queue_here(**more: Any) -> InstanceConfig:
    return instance("A", to("B", *BOTH), sow=more.pop("sow", QUEUE), **more)


def test_replication_41_queue() -> None:
    """replication.md §26 41: a queue here is a queue of the same kind there."""
    there = instance("B", to("A", topic(), topic("q")), logged="t q")
    assert checks(queue_here(), there) == ["queue"]
    local = QUEUE.replace("Queue>", "LocalQueue>")
    kinds = seen(configured("B", to("A", topic()), sow=local))
    (violation,) = [one for one in validate(queue_here(), 0, kinds) if one.check == "queue"]
    assert violation.detail == "q is a Queue on A, but a LocalQueue on B; make both the same"
    same = instance("B", to("A", *BOTH), sow=QUEUE)
    assert checks(queue_here(), same) == []


@pytest.mark.parametrize(
    ("other", "detail"),
    [
        (QUEUE.replace(">t<", ">u<"), "UnderlyingTopic of q is t on A, but u on B; make them equal"),
        (
            QUEUE.replace("</Queue>", "<Filter>/x = 1</Filter></Queue>"),
            "Filter of q is absent on A, but /x = 1 on B; make them equal",
        ),
    ],
)
def test_replication_41_queue_underlying(other: str, detail: str) -> None:
    """replication.md §26 41, §14.5"""
    there = instance("B", to("A", *BOTH, topic("u")), logged="t u", sow=other)
    (violation,) = validate(queue_here(), 0, there)
    assert (violation.check, violation.detail) == ("queue_underlying", detail)


def test_the_owner_of_a_group_local_queue_is_the_same() -> None:
    """replication.md §14.1, §14.5: unless they are different queues, of different domains."""
    owned = QUEUE.replace("Queue>", "GroupLocalQueue>").replace(
        "</Group", "<InitialOwner>{}</InitialOwner></Group"
    )
    here = queue_here(sow=owned.format("A"), group="g")
    there = instance("B", to("A", *BOTH, group="g"), sow=owned.format("B"), group="g")
    (violation,) = validate(here, 0, there)
    assert (violation.check, violation.topic) == ("queue_underlying", "q")
    assert violation.detail == "InitialOwner of q is A on A, but B on B; make them equal"
    elsewhere = instance("B", to("A", *BOTH, group="g"), sow=owned.format("B"), group="h")
    assert checks(here, elsewhere) == []


def test_replication_41_queue_passthrough() -> None:
    """replication.md §26 41: there passes messages of this group on to whom it sends the queue."""
    there = instance("B", to("A", *BOTH), to("C", *BOTH, passes="^X$"), sow=QUEUE)
    (violation,) = validate(queue_here(), 0, there)
    assert violation.check == "queue_passthrough"
    assert violation.detail.startswith(
        "B does not pass messages of the group A on to its Destination C, which gets the queue q; let "
        "PassThrough there match A"
    )
    assert checks(queue_here(), instance("B", to("A", *BOTH), to("C", *BOTH, passes=""), sow=QUEUE)) == [
        "queue_passthrough"
    ]
    excluded = instance("A", to("B", topic(), topic("q", exclude="queue_passthrough")), sow=QUEUE)
    assert checks(excluded, there) == []
    assert checks(queue_here(), instance("B", to("A", *BOTH), to("C", *BOTH, passes="A|B"), sow=QUEUE)) == []


def test_the_chain_of_the_rules_for_queues_is_valid() -> None:
    """replication.md §14.5 5, 25.52: Q passes R towards P and P towards R; the way back to P itself need not pass P."""
    p = instance("P", to("Q", *BOTH), sow=QUEUE)
    q = instance("Q", to("P", *BOTH, passes="R"), to("R", *BOTH, passes="P"), sow=QUEUE)
    r = instance("R", to("Q", *BOTH), sow=QUEUE)
    assert validate(p, 0, q) == validate(q, 0, p) == validate(q, 1, r) == validate(r, 0, q) == []


def test_only_the_underlying_topic_is_an_archival_copy() -> None:
    """replication.md §14.5 6: none of the rules for queues apply."""
    assert checks(instance("A", to("B"), sow=QUEUE), B) == []


def test_a_queue_is_found_by_an_expression() -> None:
    """replication.md §16: `.*` takes the queue, too."""
    here = instance("A", to("B", topic(".*")), sow=QUEUE)
    assert checks(here, instance("B", to("A", topic(".*")), logged=".*")) == ["queue"]
    assert checks(here, instance("B", to("A", topic(".*")), logged=".*", sow=QUEUE)) == []


def test_the_shipped_pairs_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """The configurations in conf/ pass the checks in both directions."""
    east, west = (own_config(load(f"conf/pair-{name}.xml").config) for name in ("east", "west"))
    assert validate(east, 0, west) == validate(west, 0, east) == []


def test_the_result_tells_everything_up_to_a_limit() -> None:
    """replication.md §24.4"""
    violations = validate(A, 0, instance("B"))
    assert result_frame(violations) == {
        "ok": False,
        "violations": [
            {"check": "replicate", "topic": "t", "type": "json", "detail": violations[0].detail},
        ],
    }
    assert str(violations[0]).startswith(
        "replicate: topic t, message type json: B has no Replication/Destination"
    )
    assert result_frame([]) == {"ok": True, "violations": []}
    names = [f"t{number}" for number in range(VIOLATIONS_MAX + 1)]
    many = instance("A", to("B", *[topic(name) for name in names]), logged=" ".join(names))
    assert len(validate(many, 0, instance("B"))) == VIOLATIONS_MAX


# --- topics -------------------------------------------------------------------------------------------------


def topics(text: str) -> Topics:
    return Topics(text, "json", any(one in text for one in "^$.*+?|()[]{}\\"))


@pytest.mark.parametrize(
    ("ours", "theirs", "known", "expected"),
    [
        ("t", "t", "", True),
        ("t", "u", "", False),
        ("tt", "^t", "", True),
        ("^t", "t", "", False),
        ("^t|u$", "^t|u$", "", True),
        ("x.*y", ".*", "", True),
        ("x.*y", "^.*$", "", True),
        ("^orders/eu", "^orders/", "", True),
        ("^orders/eu/(a|b)", "^orders/.*", "", False),  # alternatives are not understood
        ("^orders/eu$", "^orders/.*", "", True),
        ("^orders/", "^orders/eu", "", False),
        ("^orders/?", "^orders/", "", False),
        ("^orders*", "^orders", "", False),
        ("^orders{0}", "^orders", "", False),
        ("orders/eu", "^orders/", "", True),
        ("^a|^orders", "^orders", "", False),
        ("^orders|^a", "^orders", "", False),
        ("^t", "u", "t1 u", False),
        ("^t(1|2)$", "t1", "t1", True),
        ("^t(1|2)$", "t1", "t1 t2", False),
        ("^t(1|2)$", "^t[12]", "t1 t2 u", True),
    ],
)
def test_whether_topics_cover_others(ours: str, theirs: str, known: str, expected: bool) -> None:
    """replication.md 25.7, 25.51: the same text, everything, a prefix, or every topic that is known here."""
    assert covers([topics(theirs)], topics(ours), known.split()) is expected


def test_a_name_with_dots_is_literal_without_regex_topic_support() -> None:
    """replication.md §5: each instance tells which of its topics are expressions."""
    literal = Topics("a.*", "json", False)
    assert not covers([literal], Topics("ab", "json"), [])
    assert covers([literal], literal, [])
    assert not covers([Topics("^a", "fix", True)], Topics("ab", "json"), [])


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("t", "t", True),
        ("t", "u", False),
        ("^t", "t1", True),
        ("^t", "u1", False),
        ("^orders", "^quotes", False),
        ("^orders", "^orders/eu", True),
        ("^orders", "eu$", True),
        ("^orders|x", "^quotes", True),
        ("^a?b", "^b", True),
    ],
)
def test_whether_topics_may_overlap(one: str, other: str, expected: bool) -> None:
    """replication.md 25.51: in doubt they do."""
    assert may_overlap(topics(one), topics(other)) is expected
    assert may_overlap(topics(other), topics(one)) is expected
    assert not may_overlap(topics(one), Topics(topics(other).name, "fix", topics(other).is_regex))


# --- the frame ----------------------------------------------------------------------------------------------


def test_the_frame_has_what_the_checks_need() -> None:
    """replication.md §24.4"""
    config = configured(
        "A", to("B", topic(filter="/x = 1", exclude="sow,keys"), passes="^A"), sow=QUEUE, logged="t ^u"
    )
    frame = config_frame(config)
    assert frame["txlog"] == [
        {"name": "t", "type": "json", "regex": False},
        {"name": "^u", "type": "json", "regex": True},
    ]
    assert frame["queues"] == [
        {
            "kind": "Queue",
            "name": "q",
            "type": "json",
            "underlying": "t",
            "regex": False,
            "filter": None,
            "initial_owner": None,
            "domain": None,
        }
    ]
    assert frame["destinations"] == [
        {
            "name": "B",
            "group": None,
            "pass_through": "^A",
            "topics": [
                {"name": "t", "type": "json", "regex": False, "filter": "/x = 1", "exclude": ["keys", "sow"]}
            ],
        }
    ]
    assert own_config(config) == seen(config)


def test_unknown_keys_and_checks_of_a_newer_release_are_ignored() -> None:
    frame = config_frame(configured("B", to("A")))
    frame["more"] = 1
    frame["destinations"][0]["topics"][0]["exclude"] = ["spelling"]
    assert checks(A, read_config_frame(frame, "B", "B")) == []
    assert read_config_frame({}, "B", "B") == InstanceConfig("B", "B", (), (), (), ())


@pytest.mark.parametrize(
    "frame",
    [
        {"txlog": 1},
        {"txlog": [1]},
        {"txlog": [{"name": "t"}]},
        {"txlog": [{"name": 1, "type": "json"}]},
        {"txlog": [{"name": "t", "type": "json", "regex": "yes"}]},
        {"txlog": [{"name": "(", "type": "json", "regex": True}]},
        {"txlog": [{"name": "x" * 70_000, "type": "json"}]},
        {"txlog": [{}] * 100_001},
        {"sow": [{"name": "t", "type": "json", "keys": "id"}]},
        {"queues": [{"kind": "Stack", "name": "q", "type": "json", "underlying": "t"}]},
        {"destinations": [{"name": "d", "topics": {}}]},
        {"destinations": [{"name": "d", "topics": [{"name": "t", "type": "json", "exclude": [1]}]}]},
    ],
)
def test_a_frame_that_breaks_the_protocol_is_refused(frame: dict[str, Any]) -> None:
    """What comes from the network is hostile."""
    with pytest.raises(BadConfigFrame):
        read_config_frame(frame, "B", "B")


def test_a_hostile_expression_does_not_stop_the_checks() -> None:
    """An expression that exceeds the limits of the engine passes nothing."""
    there = instance("B", to("A", *BOTH), to("C", *BOTH), sow=QUEUE)
    frame = config_frame(configured("B", to("A", *BOTH), to("C", *BOTH), sow=QUEUE))
    frame["destinations"][1]["pass_through"] = "("
    assert checks(queue_here(), there) == []
    assert checks(queue_here(), read_config_frame(frame, "B", "B")) == ["queue_passthrough"]
