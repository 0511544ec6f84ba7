"""Where the settings of a connection come from (client.md §17)."""

from pathlib import Path

import click
import pytest

from amps.cli.connection import connection_of
from amps.cli.contexts import SETTING_NAMES, Contexts
from amps.cli.main import amps
from amps.cli.settings import Settings, option_of, resolve, variable_of
from tests.unit.cli.test_command_line import invoke


def settled(
    tmp_path: Path,
    options: dict[str, str] | None = None,
    variables: dict[str, str] | None = None,
    context: dict[str, str] | None = None,
) -> Settings:
    """The settings with these values in the command line, the environment and the current context."""
    path = tmp_path / "contexts.toml"
    if context is not None:
        path.write_text(Contexts(path, "c", {"c": context}).to_toml())
        path.chmod(0o600)
    return resolve(options or {}, environment=variables or {}, path=path)


def uri(
    tmp_path: Path,
    options: dict[str, str] | None = None,
    variables: dict[str, str] | None = None,
    context: dict[str, str] | None = None,
) -> str:
    return connection_of(settled(tmp_path, options, variables, context)).uri


@pytest.mark.parametrize("name", ["server", "type", "user", "urischeme", "uriopts"])
def test_options_precede_variables_which_precede_the_context(tmp_path: Path, name: str) -> None:
    given = {name: "option"}, {variable_of(name): "variable"}, {"server": "h:1", name: "context"}
    for skipped, (value, source) in enumerate(
        [("option", option_of(name)), ("variable", variable_of(name)), ("context", f"{name} of context c")]
    ):
        found = settled(tmp_path, *({} if n < skipped else values for n, values in enumerate(given))).found  # type: ignore[arg-type]
        assert (found[name].value, found[name].source) == (value, source)


def test_every_setting_has_an_option_or_is_secret() -> None:
    options = {spelling for parameter in amps.commands["ping"].params for spelling in parameter.opts}
    assert {name for name in SETTING_NAMES if option_of(name) not in options} == {"password", "admin"}


def test_defaults_have_their_source(tmp_path: Path) -> None:
    found = settled(tmp_path, {"server": "h:1"}).found
    assert (found["type"].value, found["type"].source) == ("json", "default")


def test_an_empty_variable_is_not_set(tmp_path: Path) -> None:
    assert uri(tmp_path, {"server": "u@h:1"}, {"AMPS_TYPE": ""}) == "tcp://u@h:1/amps/json"


@pytest.mark.parametrize(
    ("options", "variables", "expected"),
    [
        # Parts of a server count as settings of its source.
        ({"type": "fix"}, {"AMPS_SERVER": "tcps://u:p@h:1/amps/json"}, "tcps://u:p@h:1/amps/fix"),
        ({"server": "u@h:1/amps/nvfix"}, {"AMPS_TYPE": "json"}, "tcp://u@h:1/amps/nvfix"),
        ({"secure": "false"}, {"AMPS_SERVER": "tcps://u@h:1"}, "tcp://u@h:1/amps/json"),
        ({"server": "tcp://u@h:1"}, {"AMPS_SECURE": "yes"}, "tcp://u@h:1/amps/json"),
        ({"secure": "true"}, {"AMPS_URISCHEME": "tcp", "AMPS_SERVER": "u@h:1"}, "tcps://u@h:1/amps/json"),
        # A password is used with no other user than that of its source.
        ({"server": "h:1"}, {"AMPS_USER": "u", "AMPS_PASSWORD": "a/@:b"}, "tcp://u:a%2F%40%3Ab@h:1/amps/json"),
        ({"server": "h:1", "user": "v"}, {"AMPS_USER": "u", "AMPS_PASSWORD": "p"}, "tcp://v@h:1/amps/json"),
        ({"server": "v@h:1"}, {"AMPS_USER": "u", "AMPS_PASSWORD": "p"}, "tcp://v@h:1/amps/json"),
        ({"server": "h:1", "user": "v"}, {"AMPS_PASSWORD": "p"}, "tcp://v:p@h:1/amps/json"),
        ({"server": "u@h:1"}, {"AMPS_USER": "u", "AMPS_PASSWORD": "p"}, "tcp://u:p@h:1/amps/json"),
        ({"server": "u:@h:1"}, {"AMPS_PASSWORD": "p"}, "tcp://u:@h:1/amps/json"),
    ],
)
def test_values_of_several_sources(
    tmp_path: Path, options: dict[str, str], variables: dict[str, str], expected: str
) -> None:
    assert uri(tmp_path, options, variables) == expected


@pytest.mark.parametrize(("options", "variables"), [({"server": "h:2"}, {}), ({}, {"AMPS_SERVER": "h:2"})])
def test_credentials_of_a_context_are_sent_to_its_server_only(
    tmp_path: Path, options: dict[str, str], variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "me")
    for context in (
        {"server": "h:1", "user": "u", "password": "p", "authenticator": "m:f", "type": "fix"},
        {"server": "u:p@h:1", "type": "fix"},
    ):
        assert uri(tmp_path, {}, {}, context) == "tcp://u:p@h:1/amps/fix"
        assert uri(tmp_path, options, variables, context) == "tcp://me@h:2/amps/fix"
        assert settled(tmp_path, options, variables, context).value("authenticator") is None


@pytest.mark.parametrize(
    ("options", "variables", "told"),
    [
        ({"server": "u@h:1", "user": "v"}, {}, "-server has the user u, and -user v"),
        ({}, {"AMPS_SERVER": "u:p@h:1", "AMPS_PASSWORD": "q"}, "AMPS_SERVER has a password, and AMPS_PASSWORD"),
        ({"server": "h:1"}, {"AMPS_PASSWORD": "p", "AMPS_PASSWORD_FILE": "f"}, "AMPS_PASSWORD and AMPS_PASSWORD_FILE"),
        ({"server": "h:1"}, {"AMPS_SECURE": "perhaps"}, "AMPS_SECURE: 'perhaps' is neither"),
        ({"server": "h:1"}, {"AMPS_PROTO": "soap"}, "AMPS_PROTO is 'soap'"),
        ({"server": "h:1"}, {"AMPS_PASSWORD_FILE": "/no/such"}, "AMPS_PASSWORD_FILE /no/such cannot be read"),
        ({"server": "tcps://h:1"}, {"AMPS_CA_FILE": "/no/such"}, "AMPS_CA_FILE: there is no file /no/such"),
        ({}, {"AMPS_SERVER": "tcps://h:1", "AMPS_URISCHEME": "tcp"}, "AMPS_SERVER has the scheme tcps"),
        ({}, {}, "give -server, set AMPS_SERVER, or add a context"),
    ],
)
def test_contradictions_and_wrong_values_name_their_source(
    tmp_path: Path, options: dict[str, str], variables: dict[str, str], told: str
) -> None:
    with pytest.raises(click.UsageError) as caught:
        uri(tmp_path, options, variables)
    assert told in caught.value.message


def test_a_variable_for_tls_is_ignored_without_tls(tmp_path: Path) -> None:
    assert uri(tmp_path, {"server": "u@h:1"}, {"AMPS_CA_FILE": "/no/such"}) == "tcp://u@h:1/amps/json"
    assert connection_of(settled(tmp_path, {"server": "h:1"}, {"AMPS_CA_FILE": __file__})).tls_context() is None


def test_the_password_is_the_first_line_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("pass word \r\nmore\n")
    found = settled(tmp_path, {"server": "u@h:1", "password_file": str(tmp_path / "password")})
    assert found.password() == "pass word "


def test_the_environment_reaches_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPS_SERVER", "127.0.0.1:1")
    monkeypatch.setenv("AMPS_USER", "ana")
    monkeypatch.setenv("AMPS_PASSWORD", "top-secret")
    done = invoke("ping", "-timeout", "1")
    assert done.exit_code == 1
    assert "tcp://ana@127.0.0.1:1/amps/json" in done.output
    assert "top-secret" not in done.output
