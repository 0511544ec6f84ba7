"""Publishing and subscribing: protocol.md §4, §7, §8, §10, §11 and the behaviours 18 to 31 of §21."""

import itertools
import threading
from collections.abc import Callable

import pytest

from tests.support.peer import RawClient
from tests.support.peers import Peers
from tests.support.server import ServerProcess, StartServer, wait_until


@pytest.fixture
def client(peers: Peers, plain_server: ServerProcess) -> RawClient:
    return peers.logged_on(plain_server)


@pytest.fixture(scope="module")
def literal_server(start_module_server: StartServer) -> ServerProcess:
    return start_module_server(
        instance_xml="<RegexTopicSupport>false</RegexTopicSupport>", log_topics=("LOG_.*",)
    )


# Publishing


def test_protocol_18_the_correlation_id_is_passed_on(client: RawClient, topic: str) -> None:
    """protocol.md §21 18, first part"""
    client.subscribe(topic, "s")
    client.publish(topic, b"1", x="abc+/=")
    client.publish(topic, b"2")
    assert client.receive()["x"] == "abc+/="
    assert "x" not in client.receive()


def test_protocol_19_devnull_swallows(client: RawClient) -> None:
    """protocol.md §21 19 (R), D12"""
    client.subscribe("/AMPS/devnull", "s")
    client.subscribe("devnull$", "expression")
    assert client.request({"c": "p", "t": "/AMPS/devnull"}, b"x").succeeded
    client.expect_silence()


def test_protocol_19_devnull_takes_numbered_messages(
    peers: Peers, logged_server: ServerProcess, recorded_topic: str
) -> None:
    """protocol.md §7.1, D9: a publisher's store drains although the message is discarded."""
    client = peers.logged_on(logged_server)
    client.publish(recorded_topic, b"1", s=1, a="persisted")
    client.publish("/AMPS/devnull", b"2", s=2, a="persisted")
    client.wait_for_persisted(2)


@pytest.mark.parametrize("reserved", ["/AMPS/ClientStatus", "/AMPS/Tx/Checkpoint", "/AMPS/anything"])
def test_protocol_d12_reserved_topics_are_refused(client: RawClient, reserved: str) -> None:
    """protocol.md §7.1 D12"""
    for header in ({"c": "p", "t": reserved}, {"c": "p", "t": reserved, "e": 1}):
        ack = client.request(header, b"x")
        assert (ack["status"], ack.reason) == ("failure", "invalid topic")
        assert ack["detail"] == f"{reserved!r}: names that begin with /AMPS belong to the server"


EVENT_TOPICS = ["/AMPS/ClientStatus", "/AMPS/SOWStats"]


@pytest.mark.parametrize(
    "command", ["subscribe", "delta_subscribe", "sow_and_subscribe", "sow_and_delta_subscribe"]
)
@pytest.mark.parametrize("event_topic", EVENT_TOPICS)
def test_operations_50_event_topics_are_not_silent(client: RawClient, event_topic: str, command: str) -> None:
    """operations.md §7: events are not published yet, so a client must not wait for them in vain."""
    ack = client.request({"c": command, "t": event_topic, "sub_id": "s"})
    assert (ack["status"], ack.reason) == ("failure", "not supported yet: event topics")
    assert client.request({"c": command, "t": event_topic, "sub_id": "s", "o": "non_regex_topic"}).failed
    client.expect_silence()
    client.subscribe("other", "s")


@pytest.mark.parametrize(
    "expression",
    ["^/AMPS/", "^/AMPS/.*", "/AMPS/Client.*", "^/AMPS/(ClientStatus|SOWStats)$", r"^/AMPS/[|]\|(a|(b|c))"],
)
@pytest.mark.parametrize("command", ["subscribe", "sow_and_subscribe"])
def test_operations_50_expressions_for_event_topics_are_not_silent(
    client: RawClient, expression: str, command: str
) -> None:
    """operations.md §7: with such an expression a client waits for events just as with the name."""
    ack = client.request({"c": command, "t": expression, "sub_id": "s"})
    assert (ack["status"], ack.reason) == ("failure", "not supported yet: event topics")
    assert ".+" in str(ack["detail"])
    client.expect_silence()


@pytest.mark.parametrize("expression", ["^/AMPS/Client.*|^{topic}$", "^(/AMPS/.*|{topic})$", ".*", ".+/AMPS/|{topic}"])
def test_operations_50_expressions_for_other_topics_too_are_taken(
    client: RawClient, topic: str, expression: str
) -> None:
    """operations.md §7, protocol.md §8: they match other topics, and event topics once there are some."""
    client.subscribe(expression.format(topic=topic), "s")
    client.publish(topic, b"{}")
    assert client.receive()["t"] == topic


@pytest.mark.parametrize("event_topic", EVENT_TOPICS)
def test_operations_50_event_topics_have_no_state_and_no_log(
    peers: Peers, logged_server: ServerProcess, event_topic: str
) -> None:
    """operations.md §7: not stored unless a SOW topic of that name exists; not in the transaction log."""
    client = peers.logged_on(logged_server)
    for header in (
        {"c": "sow"},
        {"c": "sow_delete", "f": "1=1"},
        {"c": "subscribe", "bm": "0"},
        {"c": "delta_publish"},
    ):
        ack = client.request({**header, "t": event_topic})
        assert (ack["status"], ack.reason) == ("failure", "invalid topic")


@pytest.mark.parametrize("replaced", ["/AMPS/ClientStatus", "/AMPS/SOWStats"])
def test_operations_50_a_replacement_by_an_event_topic_changes_nothing(
    client: RawClient, topic: str, replaced: str
) -> None:
    """operations.md §7, protocol.md §8.2: a refused replacement leaves the subscription unchanged."""
    client.subscribe(topic, "s")
    assert client.request({"c": "subscribe", "t": replaced, "sub_id": "s", "o": "replace"}).failed
    client.publish(topic, b"1")
    assert client.receive().body == b"1"


@pytest.mark.parametrize("command", ["p", "delta_publish", "subscribe", "sow", "sow_and_subscribe"])
@pytest.mark.parametrize("header", [{}, {"t": ""}], ids=["missing", "empty"])
def test_protocol_d12_a_topic_is_required(client: RawClient, command: str, header: dict[str, str]) -> None:
    """protocol.md §7.1 D12, §13: `no topic`."""
    ack = client.request({"c": command, **header})
    assert (ack["status"], ack.reason) == ("failure", "no topic")


def test_protocol_d12_a_late_failure_is_in_the_persisted_ack(client: RawClient) -> None:
    """protocol.md §7.1, §13: the failure is in whichever of the two acks was requested."""
    for wanted in ("processed", "persisted"):
        ack = client.request({"c": "p", "t": "/AMPS/x"}, b"x", ack=wanted)
        assert (ack["a"], ack["status"], ack.reason) == (wanted, "failure", "invalid topic")


def test_protocol_a_publish_topic_is_always_literal(client: RawClient, topic: str) -> None:
    """protocol.md §7.1: regex characters have no meaning."""
    client.subscribe(f"{topic}.*", "all")
    client.publish(f"{topic}.*", b"odd name")
    delivered = client.receive()
    assert (delivered["t"], delivered.body) == (f"{topic}.*", b"odd name")


def test_protocol_46_delta_commands_act_plainly_on_topics_without_state(
    client: RawClient, topic: str
) -> None:
    """protocol.md §21 46, last part; §7.2: full messages."""
    assert client.request({"c": "delta_subscribe", "t": topic, "sub_id": "d"}).succeeded
    client.publish(topic, b'{"id":1,"a":1}')
    client.send({"c": "delta_publish", "t": topic}, b'{"id":1,"b":2}')
    assert [client.receive().body for _ in range(2)] == [b'{"id":1,"a":1}', b'{"id":1,"b":2}']


# Topics


def test_protocol_20_a_topic_with_regex_characters_is_an_expression(client: RawClient, topic: str) -> None:
    """protocol.md §21 20"""
    client.subscribe(f"{topic}/a.*b", "regex")
    client.publish(f"{topic}/a.*b", b"1")
    client.publish(f"{topic}/axxb", b"2")
    assert [client.receive().body for _ in range(2)] == [b"1", b"2"]
    client.unsubscribe("regex")
    client.subscribe(f"{topic}/a.*b", "literal", o="non_regex_topic")
    client.publish(f"{topic}/axxb", b"3")
    client.publish(f"{topic}/a.*b", b"4")
    assert client.receive().body == b"4"
    client.expect_silence()


@pytest.mark.parametrize(
    ("expression", "matching", "other"),
    [
        ("ill", ["ill"], ["fill", "illness", "ILL"]),
        ("^fill$", ["fill"], ["fills", "xfill", "a/fill"]),
        ("fill.log", ["nyc/fill/log", "fill.log", "fillxlog2"], ["fill/lo", "FILL.LOG", "fill\nlog"]),
        ("^a|b$", ["ax", "xb"], ["xa", "bx"]),
        ("^x+y", ["xy", "xxyz"], ["y"]),
        ("^fil{1,2}$", ["fil", "fill"], ["filll"]),
        ("^[ab](c)?$", ["a", "bc"], ["ac2", "c"]),
        ("^a\\.b$", ["a.b"], ["axb"]),
        ("^(?=ab).*z$", ["abz"], ["az"]),
        ("^\\d+$", ["2024"], ["20x"]),
        ("^(?i)fill$", ["FILL", "fill"], ["fills"]),
    ],
)
def test_protocol_21_topic_expressions(
    peers: Peers, plain_server: ServerProcess,
    expression: str, matching: list[str], other: list[str],
) -> None:  # fmt: skip
    """protocol.md §21 21, §8: PCRE, unanchored, case-sensitive; no regex character means exact."""
    client = peers.logged_on(plain_server)
    client.subscribe(expression, "s")
    client.subscribe("fence21", "fence")
    for name in [*matching, *other]:
        client.publish(name, name.encode())
    client.publish("fence21", b"end")
    received = [m for m in client.receive_until(b"end") if "s" in m.subscriptions]
    assert [m["t"] for m in received] == matching


def test_protocol_21_expressions_meet_topics_in_unicode(client: RawClient, topic: str) -> None:
    """protocol.md §8: a character matches as one character, however many bytes it has."""
    client.subscribe(f"^{topic}/Z.rich$", "s")
    client.publish(f"{topic}/Zürich", b"1")
    assert client.receive().body == b"1"


def test_protocol_21_regex_topic_support_can_be_switched_off(
    peers: Peers, literal_server: ServerProcess
) -> None:
    """protocol.md §21 21, last part"""
    client = peers.logged_on(literal_server)
    client.subscribe("fi.*", "s")
    client.subscribe("fence", "f")
    client.publish("fill", b"1")
    client.publish("fi.*", b"2")
    client.publish("fence", b"end")
    assert [m.body for m in client.receive_until(b"end")] == [b"2"]


def test_protocol_22_topics_without_permission(
    peers: Peers, entitled_server: ServerProcess, unique: str
) -> None:
    """protocol.md §21 22 (E): a literal one is refused, a regex skips them."""
    client = peers.logged_on(entitled_server)
    refused = client.try_subscribe(f"deny.{unique}.x", "no")
    assert (refused["status"], refused.reason) == ("failure", "not entitled")
    client.subscribe(f"\\.{unique}\\.x$", "s")
    denied = client.request({"c": "p", "t": f"deny.{unique}.x"}, b"denied")
    assert (denied["status"], denied.reason) == ("failure", "not entitled")
    client.publish(f"ok.{unique}.x", b"allowed")
    assert client.receive().body == b"allowed"
    client.expect_silence()


# Ids


def test_protocol_23_the_command_id_names_the_subscription(client: RawClient, topic: str) -> None:
    """protocol.md §21 23"""
    ack = client.request({"c": "subscribe", "t": topic, "cid": "9"})
    assert ack["sub_id"] == "9"
    client.publish(topic, b"1")
    assert client.receive()["sids"] == "9"
    assert client.unsubscribe("9").succeeded
    client.publish(topic, b"2")
    client.expect_silence()


def test_protocol_ids_the_server_makes_an_id_when_there_is_none(client: RawClient, topic: str) -> None:
    """protocol.md §4: `SAMPS-<text>`, returned in acks."""
    client.send({"c": "subscribe", "t": topic, "a": "processed"})
    ack = client.receive()
    assert ack.succeeded
    assert "cid" not in ack
    sub_id = str(ack["sub_id"])
    assert sub_id.startswith("SAMPS-")
    client.publish(topic, b"1")
    assert client.receive()["sids"] == sub_id
    assert client.unsubscribe(sub_id).succeeded
    client.publish(topic, b"2")
    client.expect_silence()


def test_protocol_24_overlapping_subscriptions_share_one_message(client: RawClient, topic: str) -> None:
    """protocol.md §21 24"""
    client.subscribe(topic, "one")
    client.subscribe(f"^{topic}$", "two")
    client.subscribe(f"^{topic}/other", "three")
    client.publish(topic, b"1")
    delivered = client.receive()
    assert delivered.subscriptions == {"one", "two"}
    assert str(delivered["sids"]).count(",") == 1
    client.expect_silence()


def test_protocol_24_subscription_ids_can_be_left_off(client: RawClient, topic: str) -> None:
    """protocol.md §3.1: `send_matching_ids` false."""
    client.send({"c": "subscribe", "t": topic, "sub_id": "s", "cid": "1", "a": "processed",
                 "send_matching_ids": False})  # fmt: skip
    assert client.receive().succeeded
    client.publish(topic, b"1")
    assert "sids" not in client.receive()


def test_protocol_28_an_active_id_cannot_be_used_again(client: RawClient, topic: str) -> None:
    """protocol.md §21 28, D5: the old subscription goes on."""
    client.subscribe(topic, "s")
    again = client.try_subscribe(f"{topic}/other", "s")
    assert (again["status"], again.reason) == ("failure", "subscription already exists")
    client.publish(f"{topic}/other", b"1")
    client.publish(topic, b"2")
    assert client.receive().body == b"2"
    client.expect_silence()


def test_protocol_28_ids_belong_to_their_connection(
    peers: Peers, plain_server: ServerProcess, topic: str
) -> None:
    """protocol.md §4: the same id elsewhere is another subscription."""
    first, second = peers.logged_on(plain_server), peers.logged_on(plain_server)
    first.subscribe(topic, "s")
    second.subscribe(topic, "s")
    assert first.unsubscribe("s").succeeded
    first.publish(topic, b"1")
    assert second.receive().body == b"1"
    first.expect_silence()


def test_protocol_28_replace_of_an_unknown_id_subscribes(client: RawClient, topic: str) -> None:
    """protocol.md §21 28 (R), D5"""
    client.subscribe(topic, "new", o="replace")
    client.publish(topic, b"1")
    assert client.receive()["sids"] == "new"


# Failures


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
def test_protocol_44_select_lists_are_refused_clearly(client: RawClient, topic: str, command: str) -> None:
    """protocol.md §10: an option that is not supported yet is recognised, never ignored."""
    ack = client.request({"c": command, "t": topic, "sub_id": "s", "o": "select=[-/,+/id]"})
    assert (ack["status"], ack.reason) == ("failure", "not supported yet: select lists")
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


# Replacing and ending


def test_protocol_29_replace_loses_and_doubles_nothing(
    peers: Peers, plain_server: ServerProcess, topic: str
) -> None:
    """protocol.md §21 29, by topic: messages in both scopes arrive once, then only those of the new one."""
    client = peers.logged_on(plain_server)
    client.subscribe(f"^{topic}/[ab]$", "s")
    publisher = peers.logged_on(plain_server)
    stop = threading.Event()

    def publish() -> None:
        for number in itertools.count():
            for letter in "abc":
                publisher.publish(f"{topic}/{letter}", b"%d" % number)
            if stop.is_set():
                break

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        before = client.receive_many(300)
        for wanted in ("[bc]", "[ab]", "[bc]"):
            replacement = {"c": "subscribe", "t": f"^{topic}/{wanted}$", "sub_id": "s", "o": "replace"}
            client.send({**replacement, "a": "processed"})
            while not before[-1].is_ack("processed"):
                before.append(client.receive())
            before.append(client.receive())
        after = client.receive_many(300)
    finally:
        stop.set()
        thread.join()
    both = [int(m.body) for m in [*before, *after] if m.get("t") == f"{topic}/b"]
    assert both == list(range(both[0], both[0] + len(both)))
    assert {m["t"] for m in after} == {f"{topic}/b", f"{topic}/c"}


def test_protocol_30_replace_with_a_denied_topic_delivers_nothing(
    peers: Peers, entitled_server: ServerProcess, unique: str
) -> None:
    """protocol.md §21 30, first part (E)"""
    client = peers.logged_on(entitled_server)
    client.subscribe(f"ok.{unique}", "s")
    assert client.try_subscribe(f"deny.{unique}", "s", o="replace").succeeded
    client.publish(f"ok.{unique}", b"1")
    client.publish(f"deny.{unique}", b"2")
    client.expect_silence()


def test_protocol_31_unsubscribe_needs_an_id(client: RawClient) -> None:
    """protocol.md §21 31"""
    ack = client.request({"c": "unsubscribe"})
    assert (ack["status"], ack.reason) == ("failure", "invalid sub id")


def test_protocol_31_lists_and_all_end_subscriptions(client: RawClient, topic: str) -> None:
    """protocol.md §21 31, §11.1"""
    for name in "abcde":
        client.subscribe(f"{topic}/{name}", name)
    assert client.unsubscribe("a,b").succeeded
    for name in "abc":
        client.publish(f"{topic}/{name}", name.encode())
    assert client.receive().body == b"c"
    client.expect_silence()
    assert client.unsubscribe("all").succeeded
    for name in "abcde":
        client.publish(f"{topic}/{name}", name.encode())
    client.expect_silence()


def test_protocol_31_nothing_follows_the_ack(peers: Peers, plain_server: ServerProcess, topic: str) -> None:
    """protocol.md §21 31: while another client publishes at full speed."""
    client = peers.logged_on(plain_server)
    client.subscribe(topic, "s")
    publisher = peers.logged_on(plain_server)
    stop = threading.Event()

    def publish() -> None:
        while not stop.is_set():
            publisher.publish_all(topic, [b"x"] * 100)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        client.receive_many(100)
        client.send({"c": "unsubscribe", "sub_id": "s", "cid": "u", "a": "processed"})
        while not client.receive().is_ack("processed", "u"):
            pass
        client.expect_silence()
    finally:
        stop.set()
        thread.join()


def test_protocol_31_an_unknown_id_is_no_failure(client: RawClient) -> None:
    """protocol.md §11.1 D19"""
    assert client.unsubscribe("nobody").succeeded
    assert client.request({"c": "unsubscribe", "query_id": "nobody"}).succeeded


def test_protocol_a_disconnect_ends_its_subscriptions(
    peers: Peers, plain_server: ServerProcess, topic: str, unique: str
) -> None:
    """protocol.md §4: ids are free again, and no message is delivered to the next connection."""
    first = peers.logged_on(plain_server, name=unique)
    first.subscribe(topic, "s")
    first.close()
    plain_server.log.wait_for("07-0013", unique)
    second = peers.logged_on(plain_server, name=unique)
    second.publish(topic, b"1")
    second.expect_silence()
    second.subscribe(topic, "s")


# Queries


STATE_COMMANDS = ({"c": "sow"}, {"c": "sow", "f": "/id = 1"}, {"c": "sow_delete", "f": "1=1"})
COUNTERS = ("topic_matches", "matches", "records_returned")


@pytest.mark.parametrize("command", STATE_COMMANDS, ids=["sow", "filtered sow", "sow_delete"])
@pytest.mark.parametrize("setup", ["J", "T"])
@pytest.mark.parametrize("name", ["{}", "{}.new", "orders.{}.eu", "{}(1)"])
def test_protocol_36_a_query_needs_a_topic_with_state(
    peers: Peers, shared_servers: Callable[[str], ServerProcess], unique: str, command: dict[str, str],
    setup: str, name: str,
) -> None:  # fmt: skip
    """protocol.md §21 36, sow.md §1.1: failure and no group, for any name; a name with a dot is valid as well."""
    client = peers.logged_on(shared_servers(setup))
    literal = {"o": "non_regex_topic"} if "(" in name else {}
    ack = client.request({**command, "t": name.format(unique), "query_id": "q", **literal})
    assert (ack["status"], ack.reason, ack["query_id"]) == ("failure", "invalid topic", "q")
    client.expect_silence()


def test_protocol_d15_an_expression_may_match_no_topic_with_state(client: RawClient, topic: str) -> None:
    """protocol.md §9.1 D15: the group is empty, and nothing is deleted."""
    client.send(
        {"c": "sow", "t": f"^{topic}", "cid": "1", "a": "processed,completed,stats", "orderby": "/id"}
    )
    came = client.receive_many(5)
    assert [m.get("a") or m["c"] for m in came] == [
        "processed",
        "group_begin",
        "group_end",
        "completed",
        "stats",
    ]
    assert all(m["query_id"] == "1" for m in came[1:3])
    assert [came[4][name] for name in COUNTERS] == [0, 0, 0]
    client.send(
        {"c": "sow_delete", "t": f"^{topic}", "f": "1=1", "cid": "2", "a": "processed,completed,stats"}
    )
    came = client.receive_many(3)
    assert [m["a"] for m in came] == ["processed", "completed", "stats"]
    assert [came[2][name] for name in ("topic_matches", "matches", "records_deleted")] == [0, 0, 0]


@pytest.mark.parametrize("command", STATE_COMMANDS, ids=["sow", "filtered sow", "sow_delete"])
def test_protocol_26_queries_and_deletions_check_the_expression(
    client: RawClient, topic: str, command: dict[str, str]
) -> None:
    """protocol.md §21 26: a malformed topic expression fails, also where no topic has state."""
    ack = client.request({**command, "t": f"^{topic}("})
    assert (ack["status"], ack.reason) == ("failure", "bad regex topic")


@pytest.mark.parametrize("command", ["sow_and_subscribe", "sow_and_delta_subscribe"])
@pytest.mark.parametrize("recorded", [False, True])
def test_protocol_36_the_counts_of_a_query_of_no_state_come(
    peers: Peers, logged_server: ServerProcess, topic: str, recorded_topic: str, command: str, recorded: bool
) -> None:
    """protocol.md §5.1, §12.3: `stats` after the group, then live messages."""
    client = peers.logged_on(logged_server)
    name = recorded_topic if recorded else topic
    client.send(
        {"c": command, "t": name, "cid": "1", "sub_id": "s", "a": "received,processed,completed,stats"}
    )
    came = client.receive_many(6)
    wanted = ["received", "processed", "group_begin", "group_end", "completed", "stats"]
    assert [m.get("a") or m["c"] for m in came] == wanted
    assert (came[5]["cid"], came[5]["sub_id"], came[5]["status"]) == ("1", "s", "success")
    assert [came[5][counter] for counter in COUNTERS] == [0, 0, 0]
    client.publish(name, b"1")
    assert client.receive().body == b"1"


def test_protocol_36_the_counts_come_with_a_bookmark_too(
    peers: Peers, logged_server: ServerProcess, recorded_topic: str
) -> None:
    """protocol.md §9.2: `sow_and_subscribe` from now on."""
    client = peers.logged_on(logged_server)
    client.send(
        {"c": "sow_and_subscribe", "t": recorded_topic, "cid": "1", "bm": "0|1|", "a": "processed,stats"}
    )
    came = client.receive_many(4)
    assert [m.get("a") or m["c"] for m in came] == ["processed", "group_begin", "group_end", "stats"]
    client.publish(recorded_topic, b"1")
    delivered = client.receive()
    assert (delivered.body, "bm" in delivered) == (b"1", True)


def test_protocol_46_the_counts_of_a_delta_subscription_come(client: RawClient, topic: str) -> None:
    """protocol.md §5.1: `delta_subscribe` has `stats`; it queries nothing."""
    client.send({"c": "delta_subscribe", "t": topic, "cid": "1", "sub_id": "s", "a": "processed,stats"})
    processed, stats = client.receive_many(2)
    assert processed.is_ack("processed", "1")
    assert stats.is_ack("stats", "1")
    assert (stats["status"], stats["sub_id"], [stats[counter] for counter in COUNTERS]) == (
        "success",
        "s",
        [0] * 3,
    )


@pytest.mark.parametrize("command", ["subscribe", "sow_and_subscribe", "delta_subscribe"])
@pytest.mark.parametrize(("message_type", "told"), [("json", True), ("binary", False)])
def test_protocol_d32_opaque_types_have_no_counts(
    peers: Peers, plain_server: ServerProcess, topic: str, command: str, message_type: str, told: bool
) -> None:
    """protocol.md §1, D32; `subscribe` has none either (§5.1, D7)."""
    client = peers.logged_on(plain_server, "any", mt=message_type)
    client.send({"c": command, "t": topic, "cid": "1", "sub_id": "s", "a": "stats"})
    client.send({"c": "flush", "cid": "fence", "a": "completed"})
    kinds = [client.receive().get("a")]
    while kinds[-1] != "completed":
        kinds.append(client.receive().get("a"))
    assert ("stats" in kinds) == (told and command != "subscribe")


@pytest.mark.parametrize("orderby", ["no field", "/id SIDEWAYS"])
def test_protocol_37_an_order_is_checked_where_nothing_is_ordered(
    client: RawClient, topic: str, orderby: str
) -> None:
    """protocol.md §9.4: `invalid orderby`, and nothing is subscribed."""
    ack = client.request({"c": "sow_and_subscribe", "t": topic, "sub_id": "s", "orderby": orderby})
    assert (ack["status"], ack.reason) == ("failure", "invalid orderby")
    client.publish(topic, b"1")
    client.expect_silence()


def test_protocol_36_sow_and_subscribe_on_a_topic_without_state(client: RawClient, topic: str) -> None:
    """protocol.md §21 36, §12.3: empty group, then live messages."""
    client.send({"c": "sow_and_subscribe", "t": topic, "cid": "1", "sub_id": "s", "query_id": "q",
                 "a": "processed,completed"})  # fmt: skip
    processed, begin, end, completed = client.receive_many(4)
    assert processed.is_ack("processed", "1")
    assert processed.succeeded
    assert processed["sub_id"] == "s"
    assert (begin.command, begin["query_id"]) == ("group_begin", "q")
    assert (end.command, end["query_id"]) == ("group_end", "q")
    assert completed.is_ack("completed", "1")
    client.publish(topic, b"1")
    delivered = client.receive()
    assert (delivered.command, delivered["sids"], delivered.body) == ("p", "s", b"1")


@pytest.mark.parametrize("command", ["sow_and_subscribe", "sow_and_delta_subscribe"])
def test_protocol_36_the_group_carries_the_command_id_without_a_query_id(
    client: RawClient, topic: str, command: str
) -> None:
    """protocol.md §4"""
    client.send({"c": command, "t": topic, "cid": "77"})
    begin, end = client.receive_many(2)
    assert [(m.command, m["query_id"]) for m in (begin, end)] == [("group_begin", "77"), ("group_end", "77")]
    client.publish(topic, b"1")
    assert client.receive()["sids"] == "77"


def test_protocol_33_a_batch_size_above_the_limit_fails(client: RawClient, topic: str) -> None:
    """protocol.md §10 D12: more than 10,000."""
    ack = client.request({"c": "sow_and_subscribe", "t": topic, "bs": 10001})
    assert (ack["status"], ack.reason) == ("failure", "invalid options")


# Deleting


def test_protocol_47_sow_delete_needs_exactly_one_selector(client: RawClient, topic: str) -> None:
    """protocol.md §21 47 (R), §11.2 D12"""
    none = client.request({"c": "sow_delete", "t": topic})
    assert (none["status"], none.reason) == ("failure", "no filter or bookmark")
    for selectors in (
        {"f": "1=1", "sow_keys": "1"},
        {"f": "1=1", "bm": "1|1|"},
        {"sow_keys": "1", "bm": "1|1|"},
    ):
        ack = client.request({"c": "sow_delete", "t": topic, **selectors})
        assert (ack["status"], ack.reason) == ("failure", "invalid options")
    ack = client.request({"c": "sow_delete", "t": topic, "sow_keys": "1"}, b'{"id":1}')
    assert (ack["status"], ack.reason) == ("failure", "invalid options")


def test_protocol_47_bookmarks_acknowledge_queue_messages_only(client: RawClient, topic: str) -> None:
    """protocol.md §21 47, §11.2"""
    ack = client.request({"c": "sow_delete", "t": topic, "bm": "1|1|"})
    assert (ack["status"], ack.reason) == ("failure", "invalid topic")


def test_protocol_47_sow_delete_needs_a_topic(client: RawClient) -> None:
    """protocol.md §11.2"""
    ack = client.request({"c": "sow_delete", "sow_keys": "1"})
    assert (ack["status"], ack.reason) == ("failure", "no topic")


# Timestamps


def test_protocol_42_timestamp_on_live_messages(client: RawClient, topic: str) -> None:
    """protocol.md §21 42, publish"""
    client.subscribe(topic, "s", o="timestamp")
    client.publish(topic, b"1")
    stamp = str(client.receive()["ts"])
    assert len(stamp) == len("20240301T093015.123456Z")
    assert stamp[8] == "T"
    assert stamp.endswith("Z")
    assert (stamp[:8] + stamp[9:15] + stamp[16:22]).isdigit()
    client.subscribe(topic, "plain")
    client.publish(topic, b"2")
    assert client.receive().subscriptions == {"s", "plain"}
    client.unsubscribe("s")
    client.publish(topic, b"3")
    assert "ts" not in client.receive()
