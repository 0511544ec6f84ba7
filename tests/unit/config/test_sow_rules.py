"""Refused configurations with SOW topics, each with its place and the cure (sow.md §§2, 3, 7, 9, 15)."""

import pytest

from tests.support.queue_configurations import configuration, element, refusal, refusals
from tests.unit.config.test_sow_configuration import CHAINING, topic

PERSISTENT = "<FileName>f</FileName>"
KEYED = f"<Key>/k</Key>{PERSISTENT}"
HISTORY = "<History><Window>1h</Window><Granularity>0s</Granularity></History>"


def generator(options: str) -> str:
    return f"<KeyGenerator><Module>chain</Module><Options>{options}</Options></KeyGenerator>{PERSISTENT}"


@pytest.mark.parametrize(
    ("inner", "line", "path", "text"),
    [
        ("<Key>/k</Key>", 4, "", "a persistent topic needs FileName; add it, such as ./sow/%n.sow"),  # §25, 9
        (
            f"{KEYED}{HISTORY}<Expiration>10s</Expiration>",  # §25, 16
            13,
            "Expiration",
            "the records of a topic with History do not expire; remove Expiration or History",
        ),
        (
            f"{KEYED}{HISTORY}<Expiration>enabled</Expiration>",
            13,
            "Expiration",
            "the records of a topic with History do not expire",
        ),
        (
            f"{KEYED}{HISTORY}<Pattern>^a</Pattern>",  # §25, 16
            13,
            "Pattern",
            "a topic with Pattern keeps no History; remove Pattern or History",
        ),
        (
            f"{PERSISTENT}<KeyDomain>d</KeyDomain>",  # §25, 16
            8,
            "KeyDomain",
            "this topic has no Key; add Key, or remove KeyDomain",
        ),
        (f"<Key>k</Key>{PERSISTENT}", 7, "Key", "'k' is no field, such as /id"),
        (f"<Key>/a + /b</Key>{PERSISTENT}", 7, "Key", "'/a + /b' is no field"),
        (f"<Key>/a[1]</Key>{PERSISTENT}", 7, "Key", "is no field"),
        (f"<Key>[t]./a</Key>{PERSISTENT}", 7, "Key", "is no field"),
        (f"<Key>/a OF PREVIOUS</Key>{PERSISTENT}", 7, "Key", "is no field"),
        (f"{KEYED}<HashIndex><Key>1</Key></HashIndex>", 10, "HashIndex/Key", "'1' is no field"),
        (f"{KEYED}<Index>p</Index>", 9, "Index", "'p' is no field"),
        (f"{KEYED}<Index><Key>p</Key></Index>", 10, "Index/Key", "'p' is no field"),
        (f"{KEYED}<Index><Field>/p</Field></Index>", 9, "Index", "Index holds a field, such as /price"),
        (f"{KEYED}<Index>/p<Key>/q</Key></Index>", 9, "Index", "Index holds a field, such as /price"),
        (f"{KEYED}<Index/>", 9, "Index", "Index holds a field, such as /price"),
        (
            f"{KEYED}<Preprocessing><Field>/a OF PREVIOUS AS /a</Field></Preprocessing>",
            10,
            "Preprocessing/Field",
            "this field cannot be used: OF PREVIOUS is allowed only in the enrichment of a SOW topic",
        ),
        (
            f"{KEYED}<Enrichment><Field>/a</Field><Field>SUM(/a) AS /b</Field></Enrichment>",
            11,
            "Enrichment/Field[2]",
            "this field cannot be used: SUM aggregates",
        ),
        (
            f"{KEYED}<Enrichment><Field>/a AS</Field></Enrichment>",
            10,
            "Enrichment/Field",
            "this field cannot be used",
        ),
        (
            f"{KEYED}<Enrichment><Field>[t]./a</Field></Enrichment>",
            10,
            "Enrichment/Field",
            "this field cannot be used",
        ),
        (f"{KEYED}<Pattern>(</Pattern>", 9, "Pattern", "'(' is not a regular expression"),
        (
            f"{KEYED}<RecoveryPoint>1|2|</RecoveryPoint>",
            9,
            "RecoveryPoint",
            "'1|2|' is no point from which a SOW topic is rebuilt; write epoch, now, or a time",
        ),
        (
            f"{KEYED}<RecoveryPoint>soon</RecoveryPoint>",
            9,
            "RecoveryPoint",
            "'soon' is no point from which a SOW topic is rebuilt",
        ),
        (f"{KEYED}<Expiration>0s</Expiration>", 9, "Expiration", "no time at all"),
        (f"{KEYED}<SlabSize>2GB</SlabSize>", 9, "SlabSize", "above the maximum of 1GB"),
        (f"{KEYED}<SlabSize>4095</SlabSize>", 9, "SlabSize", "below the minimum of 4kb"),
        (
            f"{KEYED}<InitialSlabCount>1025</InitialSlabCount>",
            9,
            "InitialSlabCount",
            "above the maximum of 1024",
        ),
        (f"{KEYED}<InitialSlabCount>0</InitialSlabCount>", 9, "InitialSlabCount", "below the minimum of 1"),
        (
            f"{KEYED}<ExpectedKeyCountHint>3G</ExpectedKeyCountHint>",
            9,
            "ExpectedKeyCountHint",
            "above the maximum",
        ),
        (
            f"{KEYED}<KeyGenerator><Module>nothing</Module></KeyGenerator>",
            10,
            "KeyGenerator/Module",
            "no key generator module is called 'nothing'; declare it in Modules",
        ),
    ],
)
def test_a_rule_that_a_topic_breaks(inner: str, line: int, path: str, text: str) -> None:
    found = [each for each in refusals(configuration(topic(inner))) if text in each[2]]
    assert [(each[0], each[1]) for each in found] == [(line, f"Topic/{path}" if path else "Topic")]


@pytest.mark.parametrize(
    ("inner", "path", "text"),
    [
        (
            f"<Key>/k</Key>{generator('<Key>/a</Key><Key>/b</Key>')}",
            "KeyGenerator",
            "a topic makes its keys in one way; remove KeyGenerator or Key",
        ),
        (generator("<Key>/a</Key>"), "KeyGenerator/Options", "chains need one primary field"),
        (
            generator("<Primary>/a</Primary>"),
            "KeyGenerator/Options",
            "chains need one primary field and at least one",
        ),
        (
            generator("<Primary>/a</Primary><Primary>/b</Primary><Key>/c</Key>"),
            "KeyGenerator/Options",
            "chains need",
        ),
        (generator("<Secondary>/a</Secondary>"), "KeyGenerator/Options", "chains need one primary field"),
        (generator("<Key>/a</Key><Key>b</Key>"), "KeyGenerator/Options", "'b' is no field"),
        (generator("<Key>/a</Key><Key>/b</Key><Colour/>"), "KeyGenerator/Options/Colour", "unknown option"),
        (
            generator("<Key>/a</Key><Key>/b</Key><FileName>x</FileName><FileName>y</FileName>"),
            "KeyGenerator/Options",
            "FileName is given more than once",
        ),
        (
            generator("<Key>/a</Key><Key>/b</Key><FileName>f</FileName>"),
            "KeyGenerator/Options",
            "the file 'f' is used at",
        ),
        (
            generator("<Key>/a</Key><Key>/b</Key><Validation>maybe</Validation>"),
            "KeyGenerator/Options/Validation",
            "Validation: ",
        ),
    ],
)
def test_a_rule_that_a_key_generator_breaks(inner: str, path: str, text: str) -> None:
    """sow.md §3.1."""
    found = refusals(configuration(topic(inner), CHAINING))
    assert [each[1] for each in found] == [f"Topic/{path}"]
    assert text in found[0][2]


def test_a_security_module_generates_no_keys() -> None:
    module = CHAINING.replace("id_chaining_key_generator", "simple_access_entitlement")
    (found,) = refusals(configuration(topic(generator("<Key>/a</Key><Key>/b</Key>")), module))
    assert found[1:] == (
        "Topic/KeyGenerator/Module",
        "the module 'chain' serves no key generator; use it where it belongs",
    )


@pytest.mark.parametrize(
    ("inner", "path"),
    [
        (KEYED, "Key"),
        (f"{PERSISTENT}<Index>/a</Index>", "Index"),
        (f"{PERSISTENT}<HashIndex><Key>/a</Key></HashIndex>", "HashIndex/Key"),
    ],
)
def test_binary_messages_have_no_fields(inner: str, path: str) -> None:
    """sow.md §2.1."""
    found = refusal(topic(inner, "binary"))
    assert found[1] == f"Topic/{path}"
    assert "messages of the type binary have no fields; remove" in found[2]


def test_chains_need_fields() -> None:
    found = refusals(configuration(topic(generator("<Key>/a</Key><Key>/b</Key>"), "binary"), CHAINING))
    assert [each[1] for each in found] == ["Topic/KeyGenerator/Module"]


@pytest.mark.parametrize("stage", ["Preprocessing", "Enrichment"])
@pytest.mark.parametrize(
    ("message_type", "declaration"),
    [
        ("binary", ""),
        (
            "tick",
            "<MessageTypes><MessageType><Name>tick</Name><Module>struct</Module><Field>/id = i</Field></MessageType>"
            "</MessageTypes>",
        ),
    ],
)
def test_stages_need_messages_that_the_server_can_write(
    stage: str, message_type: str, declaration: str
) -> None:
    """sow.md §15."""
    inner = f"{PERSISTENT}<{stage}><Field>1 AS /a</Field></{stage}>"
    (found,) = refusals(configuration(topic(inner, message_type), declaration))
    assert found[1] == f"Topic/{stage}"
    assert "messages of this topic cannot have these fields" in found[2]


def test_a_stage_writes_only_fields_that_the_type_can_hold() -> None:
    inner = f"<Key>/1</Key>{PERSISTENT}<Enrichment><Field>/1 AS /a/b</Field></Enrichment>"
    found = refusal(topic(inner, "fix"))
    assert found[1] == "Topic/Enrichment"


def test_an_unknown_message_type() -> None:
    assert "unknown message type 'jsno'" in refusal(topic(KEYED, "jsno"))[2]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("<FileName>a/../f</FileName>", "<FileName>./a/../f</FileName>"),
        ("<FileName>f</FileName>", "<FileName>./f</FileName>"),
    ],
)
def test_two_topics_in_one_file(first: str, second: str) -> None:
    """sow.md §2.1."""
    found = refusal(topic(f"<Key>/k</Key>{first}") + "\n" + topic(f"<Key>/k</Key>{second}", name="T2"))
    assert (found[0], found[1]) == (14, "Topic[2]/FileName")
    assert "is used at c.xml:8 as well; give each its own" in found[2]


@pytest.mark.parametrize("name", ["/AMPS/ClientStatus", "/AMPS/SOWStats"])
def test_event_topics_are_not_built(name: str) -> None:
    assert refusal(topic(KEYED, name=name))[1:] == ("Topic/Name", "not supported yet: event topics")


def test_names_of_the_server() -> None:
    assert "belong to the server; choose another" in refusal(topic(KEYED, name="/AMPS/x"))[2]


# --- names ---


def test_one_name_of_two_topics() -> None:
    found = refusal(topic(KEYED) + topic("<Key>/k</Key><FileName>g</FileName>"))
    assert found[1] == "Topic[2]/Name"
    assert "'T' of the message type json is defined at c.xml:4 as well (Topic); give each its own name" in found[2]


def test_topics_of_two_message_types_may_have_one_name() -> None:
    """sow.md §1."""
    assert refusals(configuration(topic(KEYED) + topic("<Key>/k</Key><FileName>g</FileName>", "nvfix"))) == []


@pytest.mark.parametrize("tag", ["Topic", "Queue"])
def test_a_definition_after_the_pattern_that_matches_it(tag: str) -> None:
    """sow.md §2, §7: it must come before."""
    container = topic(f"<Key>/k</Key>{PERSISTENT}<Pattern>^JOB_</Pattern>", name="bucket")
    inner = "<Key>/k</Key><Durability>transient</Durability>" if tag == "Topic" else ""
    special = element("JOB_x", inner, tag=tag)
    found = refusal(f"{container}\n{special}")
    assert found[1] == f"{tag}{'[2]' if tag == 'Topic' else ''}/Name"
    assert "'JOB_x' is matched by the Pattern at c.xml:9, which keeps its messages" in found[2]
    assert refusals(configuration(f"{special}\n{container}")) == []
    of_another_type = container.replace("json", "nvfix")
    assert refusals(configuration(f"{of_another_type}\n{special}")) == []


def test_views_and_conflated_topics_are_not_built() -> None:
    """They stay refused, while the topics below them are not."""
    view = element(
        "v",
        "<UnderlyingTopic>T</UnderlyingTopic><Projection><Field>/a</Field></Projection>"
        "<Grouping><Field>/a</Field></Grouping>",
        tag="View",
    )
    conflated = element("c", "<UnderlyingTopic>T</UnderlyingTopic>", tag="ConflatedTopic")
    found = refusals(configuration(topic(KEYED) + view + conflated))
    assert [each[2] for each in found] == [
        "not supported yet: views",
        "not supported yet: conflated topics",
    ]
