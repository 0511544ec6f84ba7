"""Topics that are expressions, their matches, and the topics that the transaction log records."""

from pathlib import Path

import pytest

from amps.config import LoggedTopic, ServerConfig, TransactionLogConfig
from amps.server.topics import BadTopicExpression, TopicMatcher, has_regex_characters, topic_predicate


def matcher(*topics: tuple[str, str], regex: bool = True) -> TopicMatcher:
    log = TransactionLogConfig(Path("journal"), topics=tuple(LoggedTopic(*topic) for topic in topics))
    return TopicMatcher(ServerConfig("test", "test", transaction_log=log, regex_topic_support=regex))


# --- the rule ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("character", "^$.*?+|()[]{}\\")
def test_each_regex_character_makes_an_expression(character: str) -> None:
    assert has_regex_characters(f"orders{character}")
    assert has_regex_characters(f"{character}orders")


@pytest.mark.parametrize(
    "topic", ["orders", "/orders/eu", "a-b_c:d,e;f=g#h@i!j~k&l%m<n>o'p\"q", "größe", " ", ""]
)
def test_other_characters_make_no_expression(topic: str) -> None:
    assert not has_regex_characters(topic)
    assert topic_predicate(topic, True) is None


def test_without_regex_support_every_topic_is_literal() -> None:
    assert topic_predicate("orders.*", False) is None
    assert topic_predicate("(", False) is None


def test_expressions_are_unanchored_and_case_sensitive() -> None:
    matches = topic_predicate("ord.rs", True)
    assert matches is not None
    assert [name for name in ("orders", "my-orders-eu", "ORDERS", "odrers") if matches(name)] == [
        "orders",
        "my-orders-eu",
    ]


def test_expressions_are_perl_compatible() -> None:
    matches = topic_predicate(r"^(?!secret)(?<word>\w+)/\k<word>$", True)
    assert matches is not None
    assert [name for name in ("a/a", "a/b", "secret/secret") if matches(name)] == ["a/a"]


def test_names_are_matched_by_character_not_by_byte() -> None:
    matches = topic_predicate("^gr..e$", True)
    assert matches is not None
    assert matches("größe")


@pytest.mark.parametrize("topic", ["(", "[", "*", "a{2,1}", "\\", "(?<n>a)(?<n>b)", "(?P<", "a\ud800."])
def test_an_invalid_expression_is_refused_with_its_text(topic: str) -> None:
    with pytest.raises(BadTopicExpression) as raised:
        topic_predicate(topic, True)
    assert str(raised.value).startswith(repr(topic))


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("(a+)+$", "a" * 5000 + "b"),
        (r"^(\w+\s?)*$", "a" * 5000 + "!"),
        ("(a?){60}a{60}$", "a" * 59),
    ],
)
def test_a_catastrophic_expression_gives_up_and_still_works(topic: str, name: str) -> None:
    """A full search would not end in the lifetime of the universe. A name that reaches a limit does not match."""
    matches = topic_predicate(topic, True)
    assert matches is not None
    assert not matches(name)
    assert matches("a" * 120)


# --- the transaction log's topics -------------------------------------------------------------------------


def test_nothing_is_recorded_without_a_transaction_log() -> None:
    found = TopicMatcher(ServerConfig("test", "test"))
    assert not found.records_anything
    assert not found.is_logged("orders", "json")


def test_literal_topics_are_recorded_by_whole_name_and_message_type() -> None:
    found = matcher(("orders", "json"))
    assert found.records_anything
    assert found.is_logged("orders", "json")
    assert not found.is_logged("orders", "xml")
    assert not found.is_logged("orders-eu", "json")


def test_expressions_are_recorded_by_match_and_message_type() -> None:
    found = matcher(("^orders/.*", "json"), ("^trades/", "xml"))
    assert found.records_anything
    assert found.is_logged("orders/eu", "json")
    assert found.is_logged("trades/eu", "xml")
    assert not found.is_logged("orders/eu", "xml")
    assert not found.is_logged("my/orders/eu", "json")


def test_without_regex_support_a_pattern_is_recorded_as_a_name() -> None:
    found = matcher(("orders.*", "json"), regex=False)
    assert found.is_logged("orders.*", "json")
    assert not found.is_logged("orders-eu", "json")


@pytest.mark.parametrize("topic", ["/AMPS/devnull", "/AMPS/anything", "/AMPS"])
def test_topics_of_the_server_are_never_recorded(topic: str) -> None:
    assert not matcher((".*", "json"), (topic, "json")).is_logged(topic, "json")
