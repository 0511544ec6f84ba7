"""Subscriptions that fail, and their options: protocol.md §10, and the behaviours 26, 27 and 44 of §21."""

import pytest

from tests.support.peer import RawClient
from tests.support.peers import Peers
from tests.support.server import ServerProcess, wait_until


@pytest.fixture
def client(peers: Peers, plain_server: ServerProcess) -> RawClient:
    return peers.logged_on(plain_server)


def test_protocol_26_without_an_ack_request_a_failed_subscription_is_silent(
    client: RawClient, topic: str
) -> None:
    """protocol.md §21 26"""
    client.send({"c": "subscribe", "t": topic, "f": "/a >"})
    client.send({"c": "subscribe", "t": f"^{topic}("})
    client.publish(topic, b'{"a":1}')
    client.expect_silence()


@pytest.mark.parametrize("expression", ["^ord(", "ord)", "[a", "*a", "a{2,1}", "(?<n", "\\"])
def test_protocol_26_a_malformed_topic_expression_fails(client: RawClient, expression: str) -> None:
    """protocol.md §21 26, §13; as a literal topic it is valid."""
    for bookmark in ({}, {"bm": "0"}, {"bm": "0|1|"}):
        ack = client.try_subscribe(expression, "bad", **bookmark)
        assert (ack["status"], ack.reason) == ("failure", "bad regex topic")
    client.subscribe(expression, "good", o="non_regex_topic")
    client.publish(expression, b"1")
    delivered = client.receive()
    assert (delivered["t"], delivered["sids"], delivered.body) == (expression, "good", b"1")


@pytest.mark.parametrize(
    "options",
    ["bogus", "bogus=1", "TIMESTAMP", "timestamp,bogus", "timestamp bookmark", "max_backlog=many", "start,5",
     "fully_durable", "bookmark_not_found=epoch", "conflation_key=[/id", "ack_conflation=1s", "bogus=[a,b]"],
)  # fmt: skip
def test_protocol_27_invalid_options_fail(client: RawClient, topic: str, options: str) -> None:
    """protocol.md §21 27, §10 D12: unknown, malformed or without a required option; nothing is subscribed."""
    ack = client.try_subscribe(topic, "s", o=options)
    assert (ack["status"], ack.reason) == ("failure", "invalid options")
    client.publish(topic, b"1")
    client.expect_silence()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        *((option, "invalid sub id") for option in ("pause", "resume")),
        *(
            (option, "invalid options")
            for option in (
                "rate=10",
                "rate_max_gap=1s",
                "conflation_key=[/id]",
                "skip_n=1",
                "top_n=1",
                "replace,pause",
            )
        ),
    ],
)
def test_protocol_27_options_without_what_they_need_fail(
    client: RawClient, topic: str, options: str, reason: str
) -> None:
    """protocol.md §10 D12: a bookmark, another option, or an existing subscription."""
    ack = client.try_subscribe(topic, "s", o=options)
    assert (ack["status"], ack.reason) == ("failure", reason)
    client.publish(topic, b"1")
    client.expect_silence()


@pytest.mark.parametrize(
    "options",
    ["", "none", "timestamp,", ",,timestamp, ,", " timestamp , bookmark ", "none,timestamp", "oof",
     "no_sowkey", "max_backlog= 7", "live", "bookmark", "non_regex_topic", "conflation=250ms,conflation_key= [/id]",
     "conflation=auto,conflation_key=[/a,/b]"],
)  # fmt: skip
def test_protocol_27_empty_items_and_blanks_are_fine(client: RawClient, topic: str, options: str) -> None:
    """protocol.md §21 27, §10: options that have no effect here are accepted as well (D35)."""
    client.subscribe(topic, "s", o=options)
    client.publish(topic, b"1")
    assert client.receive().body == b"1"


@pytest.mark.parametrize(
    "command", ["subscribe", "delta_subscribe", "sow_and_subscribe", "sow_and_delta_subscribe"]
)
def test_protocol_44_malformed_select_lists_are_refused(client: RawClient, topic: str, command: str) -> None:
    """protocol.md §10.1, sow.md D30: a malformed list fails the command."""
    for text in ("select=[id]", "select=[+/id,]", "select=[+/a + 1]", "select=[-/a[0]]", "select"):
        ack = client.request({"c": command, "t": topic, "sub_id": "s", "o": text})
        assert (ack["status"], ack.reason) == ("failure", "invalid options")
    client.publish(topic, b"1")
    client.expect_silence()


@pytest.mark.parametrize(
    "said", [{"o": "send_keys"}, {"send_keys": True}, {"send_keys": "true"}, {"send_empty": False}]
)
def test_protocol_27_keys_in_bodies_are_not_for_subscribe(
    client: RawClient, topic: str, said: dict[str, str | bool]
) -> None:
    """protocol.md §10: not supported there, as an option or as the equivalent header (§3.1)."""
    ack = client.request({"c": "subscribe", "t": topic, "sub_id": "s", **said})
    assert (ack["status"], ack.reason) == ("failure", "invalid options")
    client.publish(topic, b"1")
    client.expect_silence()


@pytest.mark.parametrize("command", ["delta_subscribe", "sow_and_subscribe", "sow_and_delta_subscribe"])
@pytest.mark.parametrize("said", [{"o": "send_keys"}, {"send_keys": True}, {"send_oof": True}])
def test_protocol_27_keys_in_bodies_are_for_the_others(
    client: RawClient, topic: str, command: str, said: dict[str, str | bool]
) -> None:
    """protocol.md §10, §3.1: valid, without effect where there are no keys (D35)."""
    assert client.request({"c": command, "t": topic, "sub_id": "s", **said}).succeeded
    client.publish(topic, b"1")
    while (message := client.receive()).command != "p":
        assert message.command in ("group_begin", "group_end")
    assert message.body == b"1"


def test_protocol_27_a_legacy_header_is_the_option_that_it_says(client: RawClient, topic: str) -> None:
    """protocol.md §3.1, §10: `send_oof` is `oof`, whose filter must be deterministic; a header that says off is off."""
    filtered = {"c": "subscribe", "t": topic, "f": "UNIX_TIMESTAMP() > 0"}
    assert client.request({**filtered, "sub_id": "oof", "send_oof": True}).reason == "bad filter"
    off = {"send_oof": False, "send_keys": False, "send_empty": True}
    assert client.request({**filtered, "sub_id": "s", **off}).succeeded


def test_protocol_27_an_unknown_option_is_logged(
    plain_server: ServerProcess, client: RawClient, topic: str
) -> None:
    """protocol.md §10, transaction_log.md §15: at level error, with an ack request or without."""
    client.send({"c": "subscribe", "t": topic, "o": "bogus"})
    client.expect_silence()
    wait_until(lambda: bool(plain_server.log.search(client.client_name, "invalid options")), 10, "not logged")
    found = plain_server.log.search(client.client_name, "invalid options")
    assert {record.level for record in found} == {"error"}
