"""The file of named contexts: sets of connection settings, in TOML.

`$XDG_CONFIG_HOME/amps/contexts.toml` (`~/.config` if the variable is not set) has a table `contexts.NAME` for each
context and, as `current`, the name of the one in use. The file may contain passwords. It is created with mode 0600, and
refused if it contains a password and other users may read it. A change holds a lock on the directory and replaces the
file at once: readers see the old or the new contents, also after a crash. Comments in the file do not survive a change.
"""

import contextlib
import fcntl
import json
import os
import stat
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click

from amps.cli.server_text import ServerText
from amps.client.protocol.command import check_text

SETTING_NAMES = (
    "server", "proto", "type", "user", "password", "password_file", "secure", "urischeme", "uriopts", "authenticator",
    "ca_file", "cert", "key", "admin",
)  # fmt: skip
"""The settings of a connection. `ca_file` is the option `-ca-file` and the environment variable `AMPS_CA_FILE`."""
FILE_MODE = 0o600
DIRECTORY_MODE = 0o700


class Unreadable(click.ClickException):
    """The file cannot be read, for example in a home directory of another user."""


@dataclass
class Contexts:
    """The contents of the file: settings by context, and the name of the current context."""

    path: Path
    current: str | None = None
    settings: dict[str, dict[str, str]] = field(default_factory=dict)

    def named(self, name: str) -> dict[str, str]:
        """The settings of a context. Raises UsageError if there is none of that name."""
        if name not in self.settings:
            there = f"there are {', '.join(sorted(self.settings))}" if self.settings else "there is none yet"
            raise click.UsageError(f"there is no context {name!r}; {there} ({self.path})")
        return self.settings[name]

    def to_toml(self) -> str:
        """The text of the file."""
        lines = [] if self.current is None else [f"current = {_quoted(self.current)}"]
        for name in sorted(self.settings):
            lines += ["", f"[contexts.{_quoted(name)}]"]
            values = self.settings[name]
            lines += [f"{key} = {_quoted(values[key])}" for key in SETTING_NAMES if key in values]
        return "\n".join(lines) + "\n"


def contexts_path(environment: Mapping[str, str] = os.environ) -> Path:
    """The path of the file. The XDG rules: a relative or empty `XDG_CONFIG_HOME` counts as not set."""
    base = Path(environment.get("XDG_CONFIG_HOME", ""))
    if not base.is_absolute():
        try:
            base = Path.home() / ".config"
        except RuntimeError:  # the user has no home directory, as some users of containers
            base = Path("/.config")
    return base / "amps" / "contexts.toml"


def load(path: Path) -> Contexts:
    """Read the file; without one, there are no contexts. Raises ClickException."""
    try:
        with path.open("rb") as file:
            parsed = tomllib.load(file)
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return Contexts(path)
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{path} is no TOML file: {error}") from None
    current, tables = parsed.pop("current", None), parsed.pop("contexts", {})
    if parsed:
        raise click.ClickException(f"{path}: unknown key {min(parsed)!r}; known: current, contexts")
    if not isinstance(current, str | None) or not isinstance(tables, dict):
        raise click.ClickException(f"{path}: current must be a name, and contexts a table")
    settings = {name: _checked(path, name, table) for name, table in tables.items()}
    if mode & 0o077 and any(map(_has_password, settings.values())):
        raise click.ClickException(
            f"{path} contains a password, and other users may read it: run 'chmod 600 {path}'"
        )
    return Contexts(path, current, settings)


def _has_password(values: Mapping[str, str]) -> bool:
    places = [ServerText.parse(values.get(name, "")).credentials or "" for name in ("server", "admin")]
    return "password" in values or any(":" in credentials for credentials in places)


def _checked(path: Path, name: str, table: object) -> dict[str, str]:
    if not isinstance(table, dict):
        raise click.ClickException(f"{path}: contexts.{name} must be a table")
    values: dict[str, str] = {}
    for key, value in table.items():
        if key not in SETTING_NAMES:
            known = ", ".join(SETTING_NAMES)
            raise click.ClickException(f"{path}: context {name} has the unknown key {key!r}; known: {known}")
        if key == "secure" and isinstance(value, bool):
            value = "true" if value else "false"
        if not isinstance(value, str):
            raise click.ClickException(f"{path}: {key} of context {name} must be a text")
        values[key] = value
    return values


@contextlib.contextmanager
def changing(path: Path) -> Iterator[Contexts]:
    """Yield the contexts to change; write them back unless the block raises. Changes of other processes wait.

    Raises ClickException.
    """
    try:
        path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)
            contexts = load(path)
            yield contexts
            _replace(path, contexts.to_toml(), directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise click.ClickException(f"{path} cannot be changed: {error.strerror}") from None


def _replace(path: Path, text: str, directory: int) -> None:
    """Write the file anew, durably; a failure leaves the old one."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), FILE_MODE)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    os.fsync(directory)


def _quoted(text: str) -> str:
    """A basic string of TOML: the escapes of JSON are valid in it; U+007F must be escaped, too."""
    return json.dumps(check_text("a setting", text), ensure_ascii=False).replace("\x7f", "\\u007f")
