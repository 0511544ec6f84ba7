"""`amps context` and its file (client.md §17)."""

import json
import os
import stat
import subprocess
import tomllib
from pathlib import Path

import pytest

from amps.cli import contexts
from amps.cli.contexts import Contexts, contexts_path, load
from tests.unit.cli.running import COMMAND, TIMEOUT_S, environment
from tests.unit.cli.test_command_line import invoke


def file_of(config_home: Path) -> Path:
    return config_home / "amps" / "contexts.toml"


def add(name: str, *arguments: str, password: str | None = None) -> None:
    more = ("-password-stdin",) if password is not None else ()
    done = invoke("context", "add", name, *arguments, *more, input=password)
    assert done.exit_code == 0, done.output


def test_a_context_is_added_used_and_removed(config_home: Path) -> None:
    add("one", "-server", "127.0.0.1:1", "-type", "fix")
    add("two", "-server", "tcp://bob@127.0.0.1:2", "-use")
    assert "bob@127.0.0.1:2/amps/json" in invoke("ping").output
    assert "127.0.0.1:1/amps/fix" in invoke("ping", "-context", "one").output
    assert "127.0.0.1:1/amps/fix" in invoke("ping", env={"AMPS_CONTEXT": "one"}).output
    assert invoke("context", "use", "one").exit_code == 0
    assert "127.0.0.1:1/amps/fix" in invoke("ping").output
    assert json.loads(invoke("context", "list", "-output", "json").stdout) == [
        {"name": "one", "current": True},
        {"name": "two", "current": False},
    ]
    assert invoke("context", "list").stdout == "* one  127.0.0.1:1\n  two  tcp://bob@127.0.0.1:2\n"
    assert invoke("context", "remove", "one").exit_code == 0
    assert invoke("ping").exit_code == 2
    assert load(file_of(config_home)).current is None
    assert invoke("context", "use", "-none").exit_code == 0


def test_the_file_is_for_its_owner_only(config_home: Path) -> None:
    old = os.umask(0)
    try:
        add("one", "-server", "h:1")
    finally:
        os.umask(old)
    assert stat.S_IMODE(file_of(config_home).stat().st_mode) == 0o600
    assert stat.S_IMODE(file_of(config_home).parent.stat().st_mode) == 0o700
    assert [path.name for path in file_of(config_home).parent.iterdir()] == ["contexts.toml"]


@pytest.mark.parametrize("text", ['password = "p"', 'server = "u:p@h:1"', 'admin = "http://u:p@h:1"'])
def test_a_password_that_others_may_read_is_refused(config_home: Path, text: str) -> None:
    add("one", "-server", "127.0.0.1:1", "-use")
    file = file_of(config_home)
    file.chmod(0o644)
    assert "Unable to connect" in invoke("ping").output  # no password yet
    file.write_text(f"[contexts.one]\n{text}\n")
    done = invoke("ping")
    assert (done.exit_code, f"chmod 600 {file}" in done.output) == (1, True)


def test_passwords_are_never_shown() -> None:
    add("one", "-server", "127.0.0.1:1", "-user", "ana", "-use", password="hidden one\n")
    add("two", "-server", "ana:hidden%20two@127.0.0.1:2", "-admin", "http://ana:hidden-three@h:3")
    shown = [
        invoke("context", *words)
        for words in (
            ("list",), ("list", "-output", "json"), ("show",), ("show", "two"), ("show", "two", "-output", "json"),
            ("add", "two", "-server", "ana:hidden%20two@127.0.0.1:2"), ("remove", "two"),
        )
    ]  # fmt: skip
    shown.append(invoke("ping", "-timeout", "1"))
    for done in shown:
        assert "hidden" not in done.output
    assert "(set, not shown)" in shown[2].output


def test_show_names_the_source_of_each_value() -> None:
    add("one", "-server", "tcps://ana@h:1", "-uriopts", "tcp_nodelay=true")
    done = invoke("context", "show", "one", "-output", "json", env={"AMPS_TYPE": "fix", "AMPS_PASSWORD": "p"})
    settings = json.loads(done.stdout)["settings"]
    assert {name: row["source"] for name, row in settings.items()} == {
        "server": "server of context one",
        "proto": "default",
        "type": "AMPS_TYPE",
        "user": "server of context one",
        "password": "AMPS_PASSWORD",
        "uriopts": "uriopts of context one",
    }
    assert settings["server"]["value"] == "tcps://h:1"


def test_a_chosen_context_that_gives_way_to_the_environment_is_noted() -> None:
    add("one", "-server", "127.0.0.1:1")
    done = invoke("ping", "-context", "one", env={"AMPS_SERVER": "127.0.0.1:2"})
    assert "note: AMPS_SERVER takes precedence over server of context one" in done.stderr
    assert "127.0.0.1:2" in done.stderr
    assert "note" not in invoke("ping", "-context", "one", "-server", "h:1", env={"AMPS_SERVER": "h:2"}).stderr


@pytest.mark.parametrize(
    "words",
    [
        ("add", "one", "-server", "h:2"),
        ("add", "two"),
        ("add", "two", "-server", "no port"),
        ("add", "two", "-server", "tcp://h:1", "-secure", "yes"),
        ("add", "", "-server", "h:1"),
        ("add", "-x", "-server", "h:1"),
        ("use", "two"),
        ("use",),
        ("use", "one", "-none"),
        ("show", "two"),
        ("remove", "two"),
    ],
)
def test_wrong_usage_changes_nothing(config_home: Path, words: tuple[str, ...]) -> None:
    add("one", "-server", "h:1", "-use")
    before = file_of(config_home).read_text()
    assert invoke("context", *words).exit_code == 2
    assert file_of(config_home).read_text() == before


def test_an_unknown_context_is_wrong_usage_for_every_command() -> None:
    add("one", "-server", "h:1")
    for done in (invoke("ping", "-context", "two"), invoke("ping", env={"AMPS_CONTEXT": "two"})):
        assert (done.exit_code, "there is no context 'two'; there are one" in done.output) == (2, True)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("current = [", "is no TOML file"),
        ("servers = 1", "unknown key 'servers'; known: current, contexts"),
        ("[contexts.a]\nsevrer = 'h:1'", "context a has the unknown key 'sevrer'; known: server"),
        ("[contexts.a]\nserver = 1", "server of context a must be a text"),
        ("contexts = 1", "contexts a table"),
        ("[contexts]\na = 1", "contexts.a must be a table"),
    ],
)
def test_a_malformed_file_is_named(config_home: Path, text: str, told: str) -> None:
    file_of(config_home).parent.mkdir(parents=True)
    file_of(config_home).write_text(text)
    for command in (("ping", "-server", "h:1"), ("context", "list"), ("context", "remove", "a")):
        done = invoke(*command)
        assert done.exit_code == 1
        assert told in done.output
        assert str(file_of(config_home)) in done.output
    assert file_of(config_home).read_text() == text


def test_any_text_survives_the_file(tmp_path: Path) -> None:
    odd = 'a"b\\c\n\t\x7f\x01ä€𝄞\u2028'
    path = tmp_path / "contexts.toml"
    written = Contexts(path, odd, {odd: {"server": odd}, "x": {"secure": "true"}})
    assert tomllib.loads(written.to_toml()) == {"current": odd, "contexts": written.settings}


def test_a_failed_change_leaves_the_file(config_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full when the new file is made durable."""
    add("one", "-server", "h:1")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(contexts.os, "fsync", full)
    done = invoke("context", "add", "two", "-server", "h:2")
    assert (done.exit_code, "No space left on device" in done.output) == (1, True)
    assert list(load(file_of(config_home)).settings) == ["one"]
    assert [path.name for path in file_of(config_home).parent.iterdir()] == ["contexts.toml"]


def test_changes_at_the_same_time_are_all_kept(config_home: Path) -> None:
    adding = [
        subprocess.Popen([*COMMAND, "context", "add", f"c{n}", "-server", f"h:{n}"], env=environment())
        for n in range(6)
    ]
    assert [process.wait(TIMEOUT_S) for process in adding] == [0] * 6
    assert sorted(load(contexts_path()).settings) == [f"c{n}" for n in range(6)]


def test_the_path_follows_the_xdg_rules(tmp_path: Path) -> None:
    for given in ({}, {"XDG_CONFIG_HOME": ""}, {"XDG_CONFIG_HOME": "relative"}):
        assert contexts_path(given) == Path.home() / ".config/amps/contexts.toml"
    assert contexts_path({"XDG_CONFIG_HOME": "/x"}) == Path("/x/amps/contexts.toml")


def test_an_unreadable_file_matters_only_if_a_context_is_named(
    config_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service, or a user by sudo, may have a home directory that it may not read."""
    add("one", "-server", "127.0.0.1:1", "-use")

    def denied(self: Path, *arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    assert "cannot connect to" in invoke("ping", "-server", "127.0.0.1:2").output
    for done in (invoke("ping", "-context", "one"), invoke("context", "list"), invoke("context", "remove", "one")):
        assert (done.exit_code, f"{file_of(config_home)} cannot be read: Permission denied" in done.output) == (1, True)


def test_a_user_without_a_home_directory_has_no_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    assert "cannot connect to" in invoke("ping", "-server", "127.0.0.1:2").output
