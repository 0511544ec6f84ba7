"""Parsing of options and help texts of the `amps` command, without a server."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from amps.cli.connection import Connection
from amps.cli.layouts import NAMES, Format
from amps.cli.main import amps
from amps.cli.options import MOMENT, once_each
from amps.client import Message
from amps.version import VERSION


def invoke(*arguments: str, **more: object) -> "click.testing.Result":
    return CliRunner().invoke(amps, list(arguments), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ("-server", "tcps://h:1", "-urischeme", "tcp"),
            "-server has the scheme tcps, and -urischeme tcp: leave one of them",
        ),
        (
            ("-server", "tcp://h:1", "-secure", "yes"),
            "-secure yes is TLS, and -server has the scheme tcp: write tcps://",
        ),
        (
            ("-server", "tcp://h:1/amps/fix", "-type", "json"),
            "-type is json, and -server has fix: leave one of",
        ),
        (("-server", "wss://h:1"), "WebSocket is not available; use tcp or tcps"),
        (("-server", "tpcs://h:1"), "unknown scheme 'tpcs'; known: tcp, tcps, unix"),
    ],
)
def test_a_wrong_scheme_is_refused(arguments: tuple[str, ...], told: str) -> None:
    """client.md §17: wrong usage is reported before any connection is made."""
    done = invoke("ping", *arguments)
    assert done.exit_code == 2
    assert told in done.output


def test_client_17_without_a_command_banner_usage_and_commands_are_shown() -> None:
    """client.md §17."""
    result = invoke()
    assert result.exit_code == 0
    assert VERSION in result.output
    for command in ("serve", "publish", "subscribe", "ping", "demo", "help"):
        assert f"  {command} " in result.output


@pytest.mark.parametrize("command", ["publish", "subscribe", "ping"])
def test_client_17_help_shows_required_parameters_options_and_an_example(command: str) -> None:
    """client.md §17."""
    output = invoke("help", command).output
    required, options, example = (
        output.index(title) for title in ("Required Parameters:", "Options:", "Example:")
    )
    assert required < output.index("-server") < options < output.index("-type") < example
    assert ("-topic" in output[required:options]) == (command != "ping")
    assert f"amps {command} -server" in output[example:]


def test_help_for_an_unknown_command_lists_the_known_ones() -> None:
    result = invoke("help", "sow_dump")
    assert result.exit_code == 2
    assert "publish" in result.output


@pytest.mark.parametrize("dashes", ["-", "--"])
def test_client_17_options_take_one_dash_or_two(dashes: str) -> None:
    """client.md §17. The port is closed, so each spelling ends with a failed connection."""
    result = invoke("ping", f"{dashes}server", "127.0.0.1:1", f"{dashes}timeout", "1")
    assert result.exit_code == 1
    assert "Unable to connect to AMPS (" in result.output


def test_an_option_and_its_value_may_be_joined_by_an_equals_sign() -> None:
    assert invoke("ping", "-server=127.0.0.1:1", "--timeout=1").exit_code == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("ping",),
        ("publish", "-server", "localhost:1"),
        ("publish", "-server", "localhost:1", "-topic", "t", "-rate", "0"),
        ("publish", "-server", "localhost:1", "-topic", "t", "-delimiter", "256"),
        ("publish", "-server", "localhost:1", "-topic", "t", "-delay", "11y"),
        ("publish", "-server", "localhost:1", "-topic", "t", "-delay", "1s", "-not-before", "2027-01-31"),
        ("publish", "-server", "localhost:1", "-topic", "t", "-file", "no such file"),
        ("subscribe", "-server", "localhost:1", "-topic", "t", "-count", "0"),
        ("ping", "-server", "localhost:1", "-secure", "perhaps"),
        ("no_such_command",),
    ],
)
def test_client_17_wrong_usage_exits_with_2(arguments: tuple[str, ...]) -> None:
    """client.md §17, exit codes."""
    assert invoke(*arguments).exit_code == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2027-01-31T09:30:00.5+01:00", 1_801_384_200.5),
        ("2027-01-31T08:30:00Z", 1_801_384_200),
        ("2027-01-31 08:30", 1_801_384_200),
        ("2027-01-31", 1_801_353_600),
        (" 1801384200.25 ", 1_801_384_200.25),
    ],
)
def test_client_75_a_time_as_people_write_it(text: str, expected: float) -> None:
    """client.md §21, 75 and §17: UTC without a zone."""
    assert MOMENT.convert(text, None, None).timestamp() == expected


@pytest.mark.parametrize("text", ["", "soon", "20270131", "1801384200500", "2027-02-30", "-1801384200", "1e9", "10:00"])
def test_client_75_what_is_no_time(text: str) -> None:
    """client.md §21, 75: a short number may be a date, a long one milliseconds."""
    result = invoke("publish", "-server", "localhost:1", "-topic", "t", "-not-before", text)
    assert result.exit_code == 2
    assert "is no time, such as 2027-01-31T09:30:00Z" in " ".join(result.output.split())


@pytest.mark.parametrize("given", ["-ack", "--backlog=2"])
def test_client_17_a_replay_has_nothing_to_acknowledge(given: str) -> None:
    """queues.md §14.4: with a bookmark there are no leases, so `-ack` and `-backlog` are refused."""
    result = invoke("subscribe", "-server", "localhost:1", "-topic", "q", "-bookmark", "epoch", given)
    assert result.exit_code == 2
    assert "without -bookmark" in result.output


def test_an_unknown_option_is_named_whole_with_similar_ones() -> None:
    result = invoke("subscribe", "-server", "-topc", "-topc", "t")
    assert result.exit_code == 2
    assert "'-topc'" in result.output
    assert "'-topic'" in result.output
    assert "'--topic'" not in result.output


def test_client_17_an_unknown_tag_is_wrong_usage() -> None:
    """client.md §17, option format."""
    result = invoke("subscribe", "-server", "localhost:1", "-topic", "t", "-format", "{data} {bogus}")
    assert result.exit_code == 2
    assert "there is no tag {bogus}" in result.output
    for name in NAMES:
        assert f"{{{name}}}" in result.output


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("{data}", b'{"a":1}'),
        ("", b""),
        ('{"topic":"{topic}","body":{data}}', b'{"topic":"t/1","body":{"a":1}}'),
        (r"\{topic} \{data\} {topic}", b"{topic} {data} t/1"),
        ("{} {0} { topic } }{", b"{} {0} { topic } }{"),
        ("{length}:{sowkey}:{bookmark}", b"7::1|2|"),
        (r"C:\dir\{topic}", rb"C:\dir{topic}"),
        ("ä{topic}ö", "ät/1ö".encode()),
    ],
)
def test_client_17_format(text: str, printed: bytes) -> None:
    """client.md §17: tags are replaced, all other text is literal."""
    message = Message(b'{"c":"p","t":"t/1","bm":"1|2|"}{"a":1}')
    assert Format().convert(text, None, None)(message) == printed


def test_serve_takes_a_configuration_or_defaults_but_not_both(tmp_path: Path) -> None:
    config = tmp_path / "config.xml"
    config.write_text("<AMPSConfig/>")
    assert invoke("serve", str(config), "-port", "1").exit_code == 2
    assert invoke("serve", "-D", "A=b").exit_code == 2


def test_client_17_the_user_is_the_login_name_unless_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """client.md §17."""
    monkeypatch.setenv("LOGNAME", "ana")
    assert Connection("localhost:9007").uri == "tcp://ana@localhost:9007/amps/json"
    assert Connection("bob:secret@localhost:9007").uri == "tcp://bob:secret@localhost:9007/amps/json"


def test_client_17_the_password_is_never_shown() -> None:
    """client.md §17."""
    result = invoke("ping", "-server", "bob:secret@127.0.0.1:1", "-timeout", "1")
    assert "secret" not in result.output
    assert Connection("bob:secret@h:1").safe_uri == "tcp://bob@h:1/amps/json"


def test_client_17_scheme_and_uri_options() -> None:
    """client.md §17: secure means tcps, urischeme beats it, uriopts is the query string."""
    assert Connection("u@h:1", secure=True).uri.startswith("tcps://")
    assert Connection("u@h:1", secure=True, scheme="tcp").uri.startswith("tcp://")
    assert Connection("tcps://u:p@h:1").uri == "tcps://u:p@h:1/amps/json"
    assert Connection("tcps://u@h:1/", secure=True, message_type="fix").uri == "tcps://u@h:1/amps/fix"
    assert Connection("tcp://u@h:1/amps/nvfix").uri == "tcp://u@h:1/amps/nvfix"
    assert Connection("tcp://u@h:1?tcp_nodelay=false", uri_options="pretty=true").uri == (
        "tcp://u@h:1/amps/json?tcp_nodelay=false&pretty=true"
    )
    assert Connection("u@h:1", uri_options="tcp_nodelay=true").uri.endswith("/amps/json?tcp_nodelay=true")
    assert Connection("u@h:1", protocol="json", message_type="nvfix").uri == "tcp://u@h:1/json/nvfix"


@pytest.mark.parametrize("authenticator", ["no.such:thing", "json", "json:", ":x", "os:getcwd", "os:kill"])
def test_an_authenticator_that_cannot_be_made_is_wrong_usage(authenticator: str) -> None:
    result = invoke("ping", "-server", "localhost:1", "-authenticator", authenticator)
    assert result.exit_code == 2
    assert "package.module:factory" in result.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("-server", "bob:secret@localhost"), "no port"),
        (("-server", "bob:se/cret@localhost:1"), "no port"),
        (("-server", "bob:secret@localhost:port"), "no port number"),
        (("-server", "bob:secret@localhost:1", "-urischeme", "foo"), "unknown scheme"),
        (("-server", "bob:secret@localhost:1", "-uriopts", "nosuch=1"), "nosuch"),
    ],
)
def test_client_17_an_invalid_server_is_wrong_usage(arguments: tuple[str, ...], told: str) -> None:
    """client.md §17: exit status 2, and the error does not show the password."""
    for command in (("ping",), ("publish", "-topic", "t"), ("subscribe", "-topic", "t")):
        result = invoke(*command, *arguments)
        assert result.exit_code == 2
        assert told in result.output
        assert "cret" not in result.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("-ca-file", __file__), "write -server tcps://HOST:PORT, or add -secure yes"),
        (("-cert", __file__), "add -secure yes"),
        (("-secure", "yes", "-ca-file", __file__), "no usable certificate"),
        (("-secure", "yes", "-cert", __file__), "cannot be used"),
        (("-secure", "yes", "-cert", __file__, "-key", __file__), "cannot be used"),
        (("-secure", "yes", "-key", __file__), "-cert, which is missing"),
    ],
)
def test_client_17_tls_options_that_cannot_be_used_are_wrong_usage(
    arguments: tuple[str, ...], told: str
) -> None:
    """client.md §17: no connection is made, in particular none without TLS."""
    for command in (("ping",), ("publish", "-topic", "t"), ("subscribe", "-topic", "t")):
        result = invoke(*command, "-server", "localhost:1", *arguments)
        assert result.exit_code == 2
        assert told in result.output


@pytest.mark.parametrize("text", ["", "\udcff"])
@pytest.mark.parametrize("command", ["publish", "subscribe"])
def test_a_topic_is_text(command: str, text: str) -> None:
    result = invoke(command, "-server", "localhost:1", "-topic", text)
    assert result.exit_code == 2
    assert "-topic" in result.output


def test_java_options_are_ignored_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    """operations.md §11.1."""
    monkeypatch.setenv("AMPS_SPARK_OPTS", "-Dx=y")
    assert "AMPS_SPARK_OPTS is ignored" in invoke("help").output


def test_a_second_spelling_is_not_shown() -> None:
    assert once_each("-topic, --topic TEXT") == "-topic TEXT"
    assert once_each("-proto, --proto, -prot, --prot [amps|json]") == "-proto, -prot [amps|json]"


@pytest.mark.parametrize(
    "arguments",
    [("publish", "-topic", "t", "-rate"), ("ping", "-timeout"), ("subscribe", "-topic", "t", "-timeout")],
)
@pytest.mark.parametrize("number", ["0", "-1", "nan", "inf", "x", "1e10", "1e300", "1e-12", "1e-300"])
def test_numbers_that_cannot_be_timeouts_or_rates_are_refused(
    arguments: tuple[str, ...], number: str
) -> None:
    result = invoke(arguments[0], "-server", "127.0.0.1:9", *arguments[1:], number)
    assert result.exit_code == 2, result.output
    assert "positive number" in result.output or "does not lie between" in result.output
