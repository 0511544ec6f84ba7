"""Credentials of outgoing connections, and the decisions about incoming ones (replication.md §15)."""

import asyncio
import os
from pathlib import Path

import pytest

from amps.config import ModuleUse, ServerConfig, TransportConfig
from amps.config.model_replication import DestinationTransport
from amps.server.replication import credentials
from amps.server.replication.credentials import Credentials, make_credentials
from amps.server.replication.gate import TransportGate

DEFAULT = "amps-default-authenticator-module"
EXEC = "libamps_exec_authenticator"
MULTI = "libamps_multi_authenticator"


def made(module: str, **options: str) -> Credentials:
    """The credentials by the Authenticator of a transport. A `__` in an option stands for a dot."""
    use = ModuleUse(module, {name.replace("__", "."): text for name, text in options.items()})
    transport = DestinationTransport(name="t", type="amps-replication", authenticator=use)
    return make_credentials(ServerConfig(name="a", group="a"), transport)


def first(module: str, **options: str) -> tuple[str, str]:
    words = asyncio.run(made(module, **options).first())
    assert words["method"] == "password"
    return words["user"], words["password"]


def test_the_default_is_the_user_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """replication.md §15: without options no password."""
    monkeypatch.setenv("LOGNAME", "someone")
    assert first(DEFAULT) == ("someone", "")


def test_the_passwords_of_the_default_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """replication.md §15, §26 48: a file is read at each logon, so that a corrected one needs no restart."""
    assert first(DEFAULT, User="u", Password=" p w ") == ("u", " p w ")
    file = tmp_path / "password"
    made_once = made(DEFAULT, User="u", PasswordFileName=str(file))
    with pytest.raises(OSError, match="No such file"):
        asyncio.run(made_once.first())
    for text in ("wrong", "right"):
        file.write_text(f"{text}\n")
        assert asyncio.run(made_once.first())["password"] == text
    with pytest.raises(ValueError, match="the environment variable AMPS_TEST_WORD"):
        first(DEFAULT, PasswordEnvironmentVariable="AMPS_TEST_WORD")
    monkeypatch.setenv("AMPS_TEST_WORD", "w")
    assert first(DEFAULT, User="u", PasswordEnvironmentVariable="AMPS_TEST_WORD") == ("u", "w")


def test_a_file_that_is_no_password_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"\xff")
    with pytest.raises(ValueError, match="is no UTF-8 text"):
        first(DEFAULT, PasswordFileName=str(file))
    monkeypatch.setattr(credentials, "PASSWORD_BYTES_MAX", 4)
    file.write_bytes(b"12345")
    with pytest.raises(ValueError, match="is too long for a password"):
        first(DEFAULT, PasswordFileName=str(file))


def test_the_credentials_for_ldap(tmp_path: Path) -> None:
    """replication.md §15"""
    file = tmp_path / "password"
    file.write_text("secret\r\n")
    assert first(MULTI, LDAP__Username="u", LDAP__PasswordFile=str(file)) == ("u", "secret")


def test_a_command_prints_the_password() -> None:
    """replication.md §15: `{{AMPS_USER_NAME}}` is replaced, the line break at the end is not part of it."""
    assert first(EXEC, Command="printf '%s-%s\\n' {{AMPS_USER_NAME}} x", UserName="a b") == ("a b", "a b-x")


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("false", "the command false ended with status 1, so there is no password"),
        ("printf '%1025s'", "prints more than 1024 bytes; give MaxLength"),
        ("printf '\\377'", "the output of the command printf is no UTF-8 text"),
        ("''", "is empty; write the path of a program"),
        ("", "is empty; write the path of a program"),
        ("no-such-program-at-all", "No such file"),
        ("' '", "No such file"),
        ("printf 'x", "No closing quotation"),
    ],
)
def test_a_command_that_gives_no_password(command: str, problem: str) -> None:
    """replication.md §15: the connection is not made, and the log tells why."""
    with pytest.raises((OSError, ValueError), match=problem):
        first(EXEC, Command=command, UserName="u")


def test_the_length_of_a_password_can_be_set() -> None:
    """replication.md §15: `MaxLength`, default 1024 bytes, without the line break."""
    assert len(first(EXEC, Command="printf '%1024s\\n'", UserName="u")[1]) == 1024
    assert len(first(EXEC, Command="printf '%1025s'", UserName="u", MaxLength="2kb")[1]) == 1025
    with pytest.raises(ValueError, match="prints more than 3 bytes"):
        first(EXEC, Command="echo abcd", UserName="u", MaxLength="3")


def test_a_command_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With all that it has started; the event loop goes on meanwhile."""
    monkeypatch.setattr(credentials, "COMMAND_TIMEOUT_S", 0.2)
    script, note = tmp_path / "script", tmp_path / "pid"
    script.write_text(f"#!/bin/sh\nsleep 1000 &\necho $! >{note}\nwait\n")
    script.chmod(0o755)
    with pytest.raises(ValueError, match="has not ended after 0 seconds"):
        first(EXEC, Command=str(script), UserName="u")
    pid = int(note.read_text())

    def state() -> str:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return "gone"

    for _ in range(1000):
        if state() in ("Z", "gone"):
            break
        os.sched_yield()
    assert state() in ("Z", "gone", "X")


def test_no_module_answers_a_challenge() -> None:
    """replication.md §24.3: the logon then fails with a reason."""
    assert made(DEFAULT).answer("why") is None


def test_the_authenticator_of_the_instance_is_the_default() -> None:
    """replication.md §15"""
    config = ServerConfig(name="a", group="a", authenticator=ModuleUse(DEFAULT, {"User": "all"}))
    transport = DestinationTransport(name="t", type="amps-replication")
    assert asyncio.run(make_credentials(config, transport).first())["user"] == "all"


# --- incoming -----------------------------------------------------------------------------------------------


def gate(entitlement: ModuleUse | None = None, authentication: ModuleUse | None = None) -> TransportGate:
    transport = TransportConfig(
        name="r", type="amps-replication", authentication=authentication, entitlement=entitlement
    )
    return TransportGate(ServerConfig(name="a", group="a"), transport)


def simple(**options: str) -> ModuleUse:
    return ModuleUse("libamps_simple_access_entitlement", options)


def test_the_default_modules_let_everybody_replicate() -> None:
    """replication.md §15"""
    everybody = gate()
    assert everybody.authenticate("u", "p") == (True, "", "")
    assert everybody.may_replicate("u")
    assert everybody.allows_all
    assert everybody.allows_topic("u", "t")


def test_modules_that_refuse() -> None:
    """replication.md §15"""
    nobody = gate(
        ModuleUse("amps-default-no-entitlement-module"), ModuleUse("amps-default-no-authentication-module")
    )
    assert nobody.authenticate("u", "p") == (False, "", "auth failure")
    assert not nobody.may_replicate("u")
    assert not nobody.allows_topic("u", "t")


def test_replication_49_topics_that_may_come_by_replication() -> None:
    """replication.md §26 49, 25.53: refused topics do not stop the link."""
    some = gate(simple(AllowedTopics="^u"))
    assert some.may_replicate("x")
    assert not some.allows_all
    assert (some.allows_topic("x", "u1"), some.allows_topic("x", "t")) == (True, False)
    assert not gate(simple(DeniedTopics="^t")).allows_topic("x", "t")
    assert gate(simple(AllowedTopics="^u", GrantedPermissions="write")).allows_topic("x", "u1")
    assert not gate(simple(AllowedTopics="^u", GrantedPermissions="read")).allows_topic("x", "u1")


def test_a_flow_that_comes_back_has_the_modules_of_its_destination() -> None:
    """replication.md §5, §24.3"""
    transport = DestinationTransport(
        name="t", type="amps-replication", entitlement=ModuleUse("amps-default-no-entitlement-module")
    )
    assert not TransportGate(ServerConfig(name="a", group="a"), transport).may_replicate("u")
