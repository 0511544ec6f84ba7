"""Value types of the client: connection strings, options, commands, messages, codecs. No connection is made."""

import contextlib
import inspect
from datetime import UTC, datetime
from typing import Any

import pytest

import amps.client
from amps.client import (
    AckType,
    BadFilter,
    BadFilterException,
    Client,
    Command,
    CommandException,
    InvalidTransportOptionsException,
    InvalidUriException,
    Message,
    PublishStore,
    TimedOutException,
    TransportTypeException,
    UnknownException,
    UsageException,
)
from amps.client.errors import ConnectionException, exception_for
from amps.client.payloads.bson import decode_bson, encode_bson
from amps.client.payloads.codecs import codec_for
from amps.client.protocol.options import option_names, split_keywords
from amps.client.uri import parse_uri


@pytest.mark.parametrize(
    ("uri", "error"),
    [
        ("tcp://h:1/amps/json?tcp_nodelay=maybe", InvalidTransportOptionsException),
        ("tcp://h:1/amps/json?nosuch=1", InvalidTransportOptionsException),
        ("tcp://h:1/amps/json?compression=zlib", InvalidTransportOptionsException),
        ("tcp://h:1/amps/json?tcp_sndbuf=-1", InvalidTransportOptionsException),
        ("tcp://h:1/amps/json?bind=nowhere", InvalidTransportOptionsException),
        ("unix://localhost:0/amps/json", InvalidTransportOptionsException),
        ("tcp://h:1/amps/json?path=/tmp/x", InvalidTransportOptionsException),
        ("tcp:/bad", InvalidUriException),
        ("tcp://h/amps/json", InvalidUriException),
        ("tcp://h:99999/amps/json", InvalidUriException),
        ("tcp://:1/amps/json", InvalidUriException),
        ("tcp://[::1/amps/json", InvalidUriException),
        ("tcp://h:1", InvalidUriException),
        ("tcp://h:1/nvfix", InvalidUriException),
        ("tcp://h:1/nvfix/json", InvalidUriException),
        ("tcp://h:1/proxy/amps/json", InvalidUriException),
        ("foo://h:1/amps/json", TransportTypeException),
        ("ws://h:1/amps/json", TransportTypeException),
    ],
)
def test_client_5_bad_connection_strings_are_refused_before_connecting(
    uri: str, error: type[Exception]
) -> None:
    """client.md §21 5"""
    client = Client("tester", uri)
    with pytest.raises(error):
        client.connect()
    assert not client.connected


def test_connection_string_parts() -> None:
    uri = parse_uri("tcps://a%40b:p%3Aw@[::1]:9007/some/proxy/amps/nvfix?&http_preflight=true&&tcp_nodelay=1")
    assert (uri.scheme, uri.host, uri.port) == ("tcps", "::1", 9007)
    assert (uri.user, uri.password) == ("a@b", "p:w")
    assert (uri.proxy_path, uri.protocol, uri.message_type) == ("some/proxy", "amps", "nvfix")
    assert uri.http_preflight
    assert uri.tcp_nodelay is True


@pytest.mark.parametrize(
    ("text", "user", "password"),
    [
        ("tcp://h:1/amps", None, None),
        ("tcp://u@h:1/amps", "u", None),
        ("tcp://u:@h:1/amps", "u", ""),
        ("tcp://u:p@h:1/amps", "u", "p"),
        ("tcp://u:p@q@h:1/amps", "u", "p@q"),
    ],
)
def test_connection_string_credentials(text: str, user: str | None, password: str | None) -> None:
    uri = parse_uri(text)
    assert (uri.user, uri.password, uri.message_type) == (user, password, None)
    assert "p@q" not in uri.safe_text
    assert ":p@" not in uri.safe_text


def test_options_keep_their_order() -> None:
    """client.md §19.2: the token order does not depend on the order of the keywords"""
    settings = split_keywords(
        {
            "options": "extra=1,",
            "max_backlog": 7,
            "conflation": 0.25,
            "select": ["-/", "+/id"],
            "with_bookmarks": True,
            "timestamp": True,
            "replace": True,
            "top_n": 3,
            "rate": "2X",
            "rate_max_gap": 3.0,
        },
        query=False,
        call="subscribe",
    )
    assert settings.options == (
        "replace,timestamp,bookmark,conflation=250ms,rate_max_gap=3s,select=[-/,+/id],max_backlog=7,rate=2X,extra=1"
    )
    assert settings.headers == {"top_n": 3}


def test_query_top_n_is_an_option() -> None:
    settings = split_keywords({"top_n": 0, "skip_n": 4}, query=True, call="sow")
    assert settings.options == "skip_n=4,top_n=0"
    assert settings.headers == {}


@pytest.mark.parametrize(
    ("query", "keyword"),
    [
        (True, "max_backlog"),
        (True, "rate_max_gap"),
        (False, "order_by"),
        (False, "skip_n"),
        (False, "nosuch"),
    ],
)
def test_unknown_keywords_are_type_errors(query: bool, keyword: str) -> None:
    with pytest.raises(TypeError, match=keyword):
        split_keywords({keyword: 1}, query=query, call="call")


@pytest.mark.parametrize(
    ("seconds", "text"), [(1, "1s"), (0.25, "250ms"), (0.0005, "500us"), (1.5, "1500ms"), ("auto", "auto")]
)
def test_intervals_take_the_largest_exact_unit(seconds: Any, text: str) -> None:
    settings = split_keywords({"conflation": seconds}, query=False, call="subscribe")
    assert settings.options == f"conflation={text}"


def test_option_names_are_found_despite_brackets() -> None:
    assert option_names("replace, select=[-/,+/oof],max_backlog= 7,") == {"replace", "select", "max_backlog"}


def test_ack_types_are_sets() -> None:
    both = AckType.parse("completed, processed,none")
    assert both == AckType.PROCESSED | AckType.COMPLETED
    assert str(both) == "processed,completed"
    assert str(AckType.NONE) == ""
    with pytest.raises(ValueError, match="nosuch"):
        AckType.parse("nosuch")


@pytest.mark.parametrize(
    "command",
    [
        Command("publish", "t", correlation_id="a b"),
        Command("publish", "t", sow_key="ä"),
        Command("sow_delete", "t", filter="1=1", sow_keys=["1"]),
        Command("sow_delete", "t", filter="1=1", data=b"{}"),
        Command("subscribe", "t", top_n=-1),
        Command("subscribe", ""),
        Command("publish"),
    ],
)
def test_impossible_commands_are_value_errors(command: Command) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        command.validate()


TEXT_FIELDS = (
    "topic", "filter", "order_by", "options", "sub_id", "query_id", "command_id", "bookmark", "sow_key",
    "sow_keys", "correlation_id",
)  # fmt: skip
NUMBER_FIELDS = ("expiration", "batch_size", "top_n", "sequence")


@pytest.mark.parametrize("name", ["command", *TEXT_FIELDS])
def test_no_header_field_takes_text_that_utf8_cannot_express(name: str) -> None:
    command = Command("subscribe", "t")
    setattr(command, name, "x\ud800")
    with pytest.raises(ValueError, match=name):
        command.validate()


@pytest.mark.parametrize("name", TEXT_FIELDS)
@pytest.mark.parametrize("value", [b"bytes", 5])
def test_header_texts_are_str(name: str, value: Any) -> None:
    command = Command("subscribe", "t")
    setattr(command, name, value)
    with pytest.raises(TypeError, match=name):
        command.validate()


@pytest.mark.parametrize("name", NUMBER_FIELDS)
@pytest.mark.parametrize(
    ("value", "error"),
    [(-1, ValueError), (2**63, ValueError), (1.5, TypeError), ("1", TypeError), (True, TypeError)],
)
def test_header_numbers_are_whole_and_not_negative(name: str, value: Any, error: type[Exception]) -> None:
    command = Command("publish", "t")
    setattr(command, name, value)
    with pytest.raises(error, match=name):
        command.validate()


def test_an_expiration_fits_its_place_in_the_log() -> None:
    Command("publish", "t", expiration=2**32 - 2).validate()
    with pytest.raises(ValueError, match="expiration"):
        Command("publish", "t", expiration=2**32 - 1).validate()


@pytest.mark.parametrize("value", [5, None, {"a": 1}])
def test_the_data_of_a_command_is_bytes_or_text(value: Any) -> None:
    with pytest.raises(TypeError, match="bytes-like or str"):
        Command("publish", "t", data=value).encode()


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"max_depth": -1}, ValueError, "max_depth"),
        ({"max_depth": 1.5}, ValueError, "max_depth"),
        ({"on_full": "wait"}, ValueError, "pause, drop_oldest, raise"),
        ({"batch_size": 0}, ValueError, "batch_size"),
        ({"ack_batch_size": -1}, ValueError, "ack_batch_size"),
        ({"max_message_size": 0}, ValueError, "max_message_size"),
        ({"codec": "yaml"}, ValueError, "json, msgpack"),
        ({"timeout": "5"}, TypeError, "number of seconds"),
        ({"timeout": float("nan")}, TypeError, "number of seconds"),
        ({"http_headers": "Cookie: a=1"}, TypeError, "list of lines"),
        ({"heartbeat": 0}, ValueError, "heartbeat"),
        ({"dispatch": "pool"}, ValueError, "inline"),
    ],
)
def test_invalid_settings_are_refused_when_the_client_is_made(
    options: dict[str, Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        Client("x", **options)


def test_a_connection_string_in_the_place_of_the_name_is_refused() -> None:
    with pytest.raises(InvalidUriException, match="first argument is the client's name"):
        Client("tcp://localhost:9007/amps/json").connect()
    with pytest.raises(TypeError, match="connection string"):
        Client("x", b"tcp://localhost:9007/amps/json").connect()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "tcp://bob:secret@h/amps/json",
        "tcp://bob:se@cret@h/amps/json",
        "tcp://bob:se/cret@h:1/amps/json",
        "foo://bob:secret@h:1/amps/json",
        "tcp://bob:secret@h:1/amps/a/b",
        "tcp://bob:secret@h:1/amps/js\non",
        "unix://bob:secret@h:1/amps/json",
    ],
)
def test_errors_do_not_show_passwords(text: str) -> None:
    with pytest.raises(ConnectionException) as raised:
        parse_uri(text)
    assert "bob:***@" in str(raised.value)
    assert "cret" not in str(raised.value)


def test_messages_have_a_telling_repr() -> None:
    assert repr(Message(b'{"c":"p","t":"ord","pw":"secret"}{}')) == (
        "Message({'cmd': 'publish', 'topic': 'ord'}, 2 bytes)"
    )


@pytest.mark.parametrize("text", ["tcp://u\ud800@h:1/amps/json", "tcp://h:1/amps/js\non", "tcp://h:1/amps\0"])
def test_unprintable_connection_strings_are_refused(text: str) -> None:
    with pytest.raises(InvalidUriException, match="%XX"):
        parse_uri(text)


def test_command_setters_chain_and_copies_are_independent() -> None:
    command = (
        Command("sow").set_topic("t").set_filter("/a = 1").set_ack_type("stats").add_ack_type("completed")
    )
    command.set_sow_keys(["1", "2"]).set_options("oof,").set_data("é")
    other = command.copy().set_topic("u")
    assert command.topic == "t"
    assert other.header() == {
        "cmd": "sow", "topic": "u", "filter": "/a = 1", "sow_keys": "1,2", "opts": "oof",
        "ack_type": "completed,stats",
    }  # fmt: skip
    assert other.encode().endswith("}é".encode())
    assert command.reset("flush").header() == {"cmd": "flush"}


def test_message_fields_are_lazy_and_absent_fields_none() -> None:
    message = Message(b'{"c":"p","t":"ord","sids":"a,b","bm":"1|2|","l":2,"x":"abc="}{}')
    assert message.data == b"{}"  # found without parsing the header
    assert message._header is None
    assert (message.command, message.topic, message.bookmark) == ("publish", "ord", "1|2|")
    assert message.sub_ids == ("a", "b")
    assert message.is_content
    assert message.header["cmd"] == "publish"
    assert message.reason is None
    assert message.sequence is None
    assert message.ack_type == AckType.NONE
    assert message.to_dict()["data"] == b"{}"
    assert message.json() == {}
    message.ack()  # a message without a client, so the call has no effect


def test_message_body_begins_after_braces_in_strings() -> None:
    message = Message(rb'{"c":"p","t":"a}\"}","l":1}{"x":"}"}')
    assert message.topic == 'a}"}'
    assert message.data == b'{"x":"}"}'
    assert bytes(message.view) == message.data


def test_messages_with_damaged_text_raise_an_error_that_names_it() -> None:
    with pytest.raises(UnicodeDecodeError):
        _ = Message(b'{"c":"p","t":"t"}\xff').text


def test_failure_reasons_become_exceptions() -> None:
    """client.md §19.9, and the server's reasons for features that do not exist yet"""
    error = exception_for("Bad Filter: at 3", "subscribe", command_id="7")
    assert type(error) is BadFilterException
    assert isinstance(error, BadFilter)
    assert (error.reason, error.command_id) == ("Bad Filter: at 3", "7")
    unknown = exception_for("not supported yet: content filters", "subscribe")
    assert type(unknown) is UnknownException
    assert isinstance(unknown, CommandException)
    assert "content filters" in str(unknown)
    assert issubclass(ConnectionException, ConnectionError)
    assert issubclass(TimedOutException, TimeoutError)
    assert issubclass(UsageException, RuntimeError)
    assert str(TimedOutException("late")) == "late"


@pytest.mark.parametrize(
    ("message_type", "value", "encoded"),
    [
        ("json", {"a": [1, None, "é"]}, '{"a":[1,null,"é"]}'.encode()),
        ("fix", {35: "D", 44: "1.5"}, b"35=D\x0144=1.5\x01"),
        ("nvfix", {"px": "1", "qty": "2"}, b"px=1\x01qty=2\x01"),
    ],
)
def test_codecs_encode_as_documented(message_type: str, value: Any, encoded: bytes) -> None:
    codec = codec_for(message_type)
    assert codec.encode(value) == encoded
    assert codec.decode(encoded) == value


_DOCUMENT = {
    "text": "é", "int": 7, "long": 2**40, "negative": -1, "double": 1.5, "yes": True, "nothing": None,
    "bytes": b"\x00\x01", "list": [1, {"a": []}], "map": {"b": {"c": "d"}},
    "when": datetime(2024, 3, 1, 9, tzinfo=UTC),
}  # fmt: skip


def test_bson_documents_are_decoded_as_they_were_encoded() -> None:
    assert decode_bson(encode_bson(_DOCUMENT)) == _DOCUMENT
    # The example in the BSON specification.
    assert encode_bson({"hello": "world"}) == (b"\x16\x00\x00\x00\x02hello\x00\x06\x00\x00\x00world\x00\x00")
    assert codec_for("bson").decode(codec_for("bson").encode({"a": 1})) == {"a": 1}


def test_damaged_bson_raises_value_error_only() -> None:
    whole = encode_bson(_DOCUMENT)
    for at in range(len(whole)):
        with pytest.raises(ValueError, match=r"\w"):
            decode_bson(whole[:at])
        damaged = bytearray(whole)
        damaged[at] ^= 0xFF
        with contextlib.suppress(ValueError, OverflowError):  # any other exception fails the test
            decode_bson(bytes(damaged))


def test_msgpack_and_raw_codecs() -> None:
    codec = codec_for("msgpack")
    assert codec.decode(codec.encode({"a": [1, b"x", "y"]})) == {"a": [1, b"x", "y"]}
    assert codec_for("protobuf").decode(b"\x01") == b"\x01"
    with pytest.raises(TypeError, match="no codec"):
        codec_for("binary").encode({"a": 1})
    with pytest.raises(TypeError, match="mapping"):
        codec_for("bson").encode([1])
    with pytest.raises(ValueError, match="negative"):
        codec_for("fix").encode({-1: "x"})
    for key in ("id", None):
        with pytest.raises(ValueError, match=f"a fix body has numbers for keys, not {key!r}; names are for nvfix"):
            codec_for("fix").encode({key: "x"})


def test_everything_public_is_documented() -> None:
    undocumented = []
    for name in amps.client.__all__:
        public = getattr(amps.client, name)
        if not inspect.isclass(public):
            continue
        for member, value in inspect.getmembers(public):
            if not member.startswith("_") and (callable(value) or isinstance(value, property)):
                function = value.fget if isinstance(value, property) else value
                if not inspect.getdoc(function) and not inspect.getdoc(getattr(PublishStore, member, None)):
                    undocumented.append(f"{name}.{member}")
    assert undocumented == []
