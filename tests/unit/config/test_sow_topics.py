"""The definitions that a topic of a command means (sow.md §§2, 7)."""

import pytest

from amps.config.sow_topics import SowTopics
from amps.topic_expressions import BadTopicExpression
from tests.support.queue_configurations import element, read
from tests.unit.config.test_sow_configuration import topic


def of(*names: str, rest: str | None = None, message_type: str = "json") -> SowTopics:
    """Topics, those beginning with a blank as `container` with the rest as pattern."""
    parts = []
    for number, name in enumerate(names):
        inner = "<Key>/k</Key><Durability>transient</Durability>"
        if name.startswith(" "):
            inner += f"<Pattern>{name[1:]}</Pattern>"
            name = f"container{number}"
        parts.append(topic(inner, message_type, name=name))
    return SowTopics(read("".join(parts), rest).config)


def found(topics: SowTopics, name: str, message_type: str = "json") -> str | None:
    definition = topics.find(name, message_type)
    return None if definition is None else definition.name


def test_a_topic_is_found_by_its_name_and_message_type() -> None:
    topics = of("a", "b")
    assert [found(topics, name) for name in ("a", "b", "c", "")] == ["a", "b", None, None]
    assert found(topics, "a", "nvfix") is None


def test_names_come_before_patterns_and_patterns_in_order() -> None:
    """sow.md §7, §25, 59: a topic that is defined earlier keeps its own."""
    topics = of("/orders/special", " ^/orders/", " s")
    assert found(topics, "/orders/special") == "/orders/special"
    assert found(topics, "/orders/special/x") == "container1"
    assert found(topics, "/customer/orders/z") == "container2"  # unanchored
    assert found(topics, "/customer/x") == "container2"
    assert found(topics, "/nothing") is None
    assert found(topics, "/orders/a", "nvfix") is None


def test_the_name_of_a_container_is_no_topic() -> None:
    """sow.md §2.1: with Pattern it names the physical topic only."""
    assert found(of(" ^/orders/"), "container0") is None


def test_a_queue_keeps_its_name_before_a_pattern() -> None:
    """sow.md §2, §7."""
    container = topic("<Key>/k</Key><Durability>transient</Durability><Pattern>^Q</Pattern>", name="container")
    topics = SowTopics(read(f"{element('Q1')}{container}").config)
    assert found(topics, "Q1") is None
    assert found(topics, "Q2") == "container"


def test_topics_of_the_server_are_in_no_container() -> None:
    assert found(of(" .*"), "/AMPS/ClientStatus") is None


def test_expressions_match_in_the_order_of_the_file() -> None:
    """sow.md §25, 66."""
    topics = of("Topic_B", "Topic_A", "other", " ^/orders/")

    def names(expression: str, **more: bool) -> list[str]:
        return [each.name for each in topics.matching(expression, "json", **more)]

    assert names("^Topic_.*") == ["Topic_B", "Topic_A", "container3"]
    assert names("Topic_A") == ["Topic_A"]
    assert names("/orders/1") == ["container3"]
    assert names("none") == []
    assert names("^Topic_.*", regex_allowed=False) == []
    assert topics.matching("^Topic_.*", "nvfix") == ()
    with pytest.raises(BadTopicExpression):
        topics.matching("(", "json")


def test_without_regex_topics_an_expression_is_a_name() -> None:
    """sow.md §1: RegexTopicSupport."""
    topics = of("a.b", rest="<RegexTopicSupport>false</RegexTopicSupport>")
    assert [each.name for each in topics.matching("a.b", "json")] == ["a.b"]
    assert topics.matching("a.*", "json") == ()
