"""Credentials of the connections that this instance opens, by the module of its `Authenticator` (replication.md §15).

The modules of the documented distribution are built in: a fixed name and password, a name and password for LDAP, and
the output of a command. A password is fetched at each logon, so that a changed file or variable needs no restart.
Nothing here blocks the event loop but the reading of a small file.
"""

import asyncio
import contextlib
import getpass
import os
import shlex
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from amps.config import ModuleUse, ServerConfig
from amps.config.model_replication import DestinationTransport
from amps.config.modules import (
    DEFAULT_AUTHENTICATOR,
    EXEC_AUTHENTICATOR,
    MULTI_AUTHENTICATOR,
    TOKEN_BYTES,
)
from amps.config.units import read_size

COMMAND_TIMEOUT_S: Final = 30.0
PASSWORD_BYTES_MAX: Final = 1 << 20
_USER_VARIABLE: Final = "{{AMPS_USER_NAME}}"


class Credentials(Protocol):
    """What a flow logs on with."""

    async def first(self) -> dict[str, str]:
        """Return the content of the first AUTH: `user`, `password`, `method`. Raises OSError; ValueError."""

    def answer(self, challenge: str) -> dict[str, str] | None:
        """Return the content of the AUTH after a challenge; None: there is no answer to it."""


class _WithoutChallenges:
    """None of the built-in modules can answer a challenge."""

    def answer(self, challenge: str) -> dict[str, str] | None:
        """There is no answer."""
        return None


class FixedCredentials(_WithoutChallenges):
    """`amps-default-authenticator-module`: a user, and a password given in one of three ways, or none."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    async def first(self) -> dict[str, str]:
        """Return user and password."""
        return {"method": "password", "user": self._user(), "password": self._password()}

    def _user(self) -> str:
        configured = self._options.get("User")
        if configured is not None:
            return configured
        try:
            return getpass.getuser()
        except (KeyError, OSError, ImportError):  # a user without an entry, and no USER in the environment
            raise ValueError(
                "this process has no user name; give User in the Options of Authenticator"
            ) from None

    def _password(self) -> str:
        path, variable = (
            self._options.get("PasswordFileName"),
            self._options.get("PasswordEnvironmentVariable"),
        )
        if path is not None:
            return read_password(Path(path))
        if variable is not None:
            value = os.environ.get(variable)
            if value is None:
                raise ValueError(
                    f"the environment variable {variable}, which PasswordEnvironmentVariable names, is not set"
                )
            return value
        return self._options.get("Password", "")


class LdapCredentials(_WithoutChallenges):
    """`libamps_multi_authenticator` with LDAP: the user, and the password from a file."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    async def first(self) -> dict[str, str]:
        """Return user and password."""
        password = read_password(Path(self._options["LDAP.PasswordFile"]))
        return {"method": "password", "user": self._options["LDAP.Username"], "password": password}


class CommandCredentials(_WithoutChallenges):
    """`libamps_exec_authenticator`: the output of a command is the password.

    The command is started without a shell, with the server's rights, in its working directory.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._user = options["UserName"]
        self._command = options["Command"]
        self._bytes_max = read_size(options["MaxLength"]) if "MaxLength" in options else TOKEN_BYTES

    async def first(self) -> dict[str, str]:
        """Run the command, and return user and password."""
        words = [word.replace(_USER_VARIABLE, self._user) for word in shlex.split(self._command)]
        if not words or not words[0]:
            raise ValueError("Command of the Authenticator is empty; write the path of a program")
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(COMMAND_TIMEOUT_S):
                output = await self._output(process)
                status = await process.wait()
        except TimeoutError:
            raise ValueError(
                f"the command {words[0]} has not ended after {COMMAND_TIMEOUT_S:.0f} seconds"
            ) from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # with all that it has started
                await process.wait()
        if status != 0:
            raise ValueError(f"the command {words[0]} ended with status {status}, so there is no password")
        try:
            text = output.decode()
        except UnicodeDecodeError:
            raise ValueError(f"the output of the command {words[0]} is no UTF-8 text") from None
        return {"method": "password", "user": self._user, "password": text.rstrip("\r\n")}

    async def _output(self, process: asyncio.subprocess.Process) -> bytes:
        assert process.stdout is not None
        output = b""
        while data := await process.stdout.read(self._bytes_max + 1 - len(output)):
            output += data
            if len(output) > self._bytes_max:
                break
        if len(output.rstrip(b"\r\n")) > self._bytes_max:
            raise ValueError(
                f"the command prints more than {self._bytes_max} bytes; give MaxLength in the Options of Authenticator"
            )
        return output


def make_credentials(config: ServerConfig, transport: DestinationTransport) -> Credentials:
    """Return the credentials for a connection: by its own Authenticator, else the instance's, else the default."""
    use = transport.authenticator or config.authenticator or ModuleUse(DEFAULT_AUTHENTICATOR)
    options = {name: value for name, value in use.options.items() if isinstance(value, str)}
    if use.module == EXEC_AUTHENTICATOR:
        return CommandCredentials(options)
    if use.module == MULTI_AUTHENTICATOR:
        return LdapCredentials(options)
    return FixedCredentials(options)


def read_password(path: Path) -> str:
    """Read a password from a file, without the line break at its end. Raises OSError; ValueError."""
    with path.open("rb") as file:
        content = file.read(PASSWORD_BYTES_MAX + 1)
    if len(content) > PASSWORD_BYTES_MAX:
        raise ValueError(f"the file {path} is too long for a password; write the password alone into it")
    try:
        return content.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError(f"the file {path} is no UTF-8 text; write the password into it") from None
