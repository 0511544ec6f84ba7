"""The requirements of a configuration on the host, for the installer of the Linux service:
`tools/install-amps-daemon.sh`.

The service runs as a user of its own, and its unit lets it write only below its own directory. An edited configuration
may name other places, or a port that only some users may use. The installer calls this module, which reads the
configuration as the server does:

    python -m amps.server.service_needs drop-in CONFIG      lines to add to the unit; none if none are needed
    python -m amps.server.service_needs directories CONFIG  directories in which files are made, one path a line
    python -m amps.server.service_needs owned CONFIG        paths that must belong to the service's user, one a line
    python -m amps.server.service_needs check CONFIG        as that user: what it may not write to; exit code 1 if any

Relative paths refer to the working directory, which the installer sets to that of the service. The unit itself lists it
among the writable paths.
"""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from glob import escape, glob
from pathlib import Path

from amps.config import ConfigError, ServerConfig, load

LOW_PORTS_BELOW = 1024
_HOMES = tuple(Path(path) for path in ("/home", "/root", "/run/user"))
_TEMPORARY = tuple(Path(path) for path in ("/tmp", "/var/tmp"))
_RUN = Path("/run")
_NO_NAME = re.compile(r"[%*?\[{]")
"""Begins a part with a variable meaning, in the mask of a log file or the pattern of an action."""
_HEADING = "# Made by install-amps-daemon.sh from the configuration; it is made again whenever that runs."


def journal_directories(config: ServerConfig) -> list[Path]:
    """The directories of the transaction log's files."""
    log = config.transaction_log
    if log is None:
        return []
    found = [log.journal_directory, log.journal_archive_directory]
    return [_absolute(path) for path in found if path is not None]


def written_directories(config: ServerConfig) -> list[Path]:
    """All directories in which the server makes, changes or removes files; no path twice."""
    found = [
        *journal_directories(config),
        *(_fixed_part(target.file_name) for target in config.logging if target.file_name is not None),
        *(_fixed_part(pattern) for pattern in _file_patterns(config)),
        *_socket_directories(config),
    ]
    return sorted(set(found))


def lasting_directories(config: ServerConfig) -> list[Path]:
    """Those of `written_directories` that the service manager does not make when the service starts."""
    sockets = _socket_directories(config)
    return [path for path in written_directories(config) if path.parent != _RUN or path not in sockets]


def _socket_directories(config: ServerConfig) -> list[Path]:
    files = [transport.file_name for transport in config.transports]
    return [_absolute(path).parent for path in files if path is not None]


def _file_patterns(config: ServerConfig) -> Iterator[str]:
    for action in config.actions:
        for step in action.steps:
            if step.module in ("amps-action-do-compress-files", "amps-action-do-remove-files"):
                yield from step.options.get("Pattern", ())


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))


def _fixed_part(mask: str) -> Path:
    """The directory that contains all paths that a mask or a pattern can stand for."""
    path = _absolute(Path(mask)).parent
    while _NO_NAME.search(str(path)):
        path = path.parent
    return path


def owned_paths(config: ServerConfig) -> list[Path]:
    """Existing journals and log files, and directories that contain nothing else: other directories may contain files
    of other owners.
    """
    directories = journal_directories(config)
    files = {
        path
        for directory in directories
        for path in directory.glob(f"{escape(config.name)}.*")
        if path.is_file()
    }
    files.update(log_files(config))
    directories += [
        _fixed_part(target.file_name) for target in config.logging if target.file_name is not None
    ]
    alone = {path for path in directories if path.is_dir() and files.issuperset(path.iterdir())}
    return sorted(files | alone)


def log_files(config: ServerConfig) -> list[Path]:
    """The existing log files."""
    masks = (target.file_name for target in config.logging if target.file_name is not None)
    # The value of a token never contains a slash.
    patterns = {re.sub(r"%.", "*", str(_absolute(Path(mask)))) for mask in masks}
    return sorted(Path(path) for pattern in patterns for path in glob(f"{pattern}*") if Path(path).is_file())


def _below(path: Path, places: Sequence[Path]) -> bool:
    return any(path.is_relative_to(place) for place in places)


def drop_in(config: ServerConfig, config_path: Path) -> str:
    """Lines to be added to the unit of the service."""
    written = written_directories(config)
    sockets = _socket_directories(config)
    own_run = sorted({path.name for path in sockets if path.parent == _RUN})
    elsewhere = [path for path in lasting_directories(config) if not path.is_relative_to(Path.cwd())]
    lines = []
    if elsewhere:
        lines.append(f"ReadWritePaths={_listed(elsewhere)}")
    if own_run:
        lines.append(f"RuntimeDirectory={' '.join(own_run)}")
    if _below(config_path, _HOMES) and not any(_below(path, _HOMES) for path in written):
        lines.append("ProtectHome=read-only")
    elif any(_below(path, _HOMES) for path in written):
        lines.append("ProtectHome=false")
    if any(_below(path, _TEMPORARY) for path in (*written, config_path)):
        lines.append("PrivateTmp=false")
    if any(0 < port < LOW_PORTS_BELOW for port in _ports(config)):
        lines += [
            "AmbientCapabilities=CAP_NET_BIND_SERVICE",
            "CapabilityBoundingSet=CAP_NET_BIND_SERVICE",
        ]
    if not lines:
        return ""
    mounts = ["[Unit]", f"RequiresMountsFor={_listed(elsewhere)}"] if elsewhere else []
    return "\n".join([_HEADING, *mounts, "[Service]", *lines, ""])


def _ports(config: ServerConfig) -> list[int]:
    transports = [*config.transports, *([config.admin.transport] if config.admin is not None else [])]
    return [transport.port for transport in transports if transport.port is not None]


def _listed(paths: Sequence[Path]) -> str:
    """Paths in a setting of a unit, where blanks separate and a percent sign has a special meaning."""
    texts = (str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") for path in paths)
    return " ".join(f'"{text}"' if re.search(r"[\s\"'\\]", text) else text for text in texts)


def unwritable(config: ServerConfig) -> list[str]:
    """The directories that this user may not write to, or may not make, as texts."""
    problems = []
    for directory in lasting_directories(config):
        there = directory
        while not there.exists() and there != there.parent:
            there = there.parent
        if not os.access(there, os.W_OK | os.X_OK):
            what = "written to" if there == directory else "made"
            problems.append(f"{directory} cannot be {what}")
    return problems


def main(arguments: Sequence[str]) -> int:
    """Run the command. Returns its exit code."""
    if len(arguments) != 2 or arguments[0] not in ("drop-in", "directories", "owned", "check"):
        print(
            "usage: python -m amps.server.service_needs drop-in|directories|owned|check CONFIG",
            file=sys.stderr,
        )
        return 1
    what, config_path = arguments[0], Path(arguments[1])
    try:
        config = load(config_path).config
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    if what == "drop-in":
        print(drop_in(config, _absolute(config_path)), end="")
        return 0
    if what == "directories":
        for directory in lasting_directories(config):
            print(directory)
        return 0
    if what == "owned":
        for path in owned_paths(config):
            print(path)
        return 0
    problems = unwritable(config)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
