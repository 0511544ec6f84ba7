"""The first records of a log: process, configuration and host.

The supervisor calls `log_startup` as soon as the log process runs, before any other record. So a log file alone
shows how the instance that wrote it was set up.
"""

import getpass
import os
import platform
import resource

import psutil

from amps.config import LoadedConfig, Severity
from amps.server.eventlog import EventLog
from amps.server.host import version_lines

_PART_BYTES = 32 * 1024

_FINDING_IDS = {Severity.ERROR: "00-0005", Severity.WARNING: "00-0005", Severity.INFO: "00-0006"}


def log_startup(log: EventLog, loaded: LoadedConfig) -> None:
    """Log version, process, host, the expanded configuration and the findings in it."""
    product_line, built_line = version_lines()
    log.log("00-0001", text=product_line)
    log.log("00-0002", text=built_line)
    log.log("00-0054", pid=os.getpid(), user=_user(), directory=_working_directory())
    memory_mib = psutil.virtual_memory().total // 2**20
    log.log(
        "00-0030",
        text=f"{platform.node()}, {platform.system()} {platform.release()} {platform.machine()}, "
        f"{os.cpu_count()} CPUs, {memory_mib} MiB memory, Python {platform.python_version()}",
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    log.log("00-0032", text=f"open files {soft} (at most {hard})")
    log.log("00-0033", path=loaded.path)
    if log.enabled("info"):
        parts = _parts(loaded.expanded_text)
        for number, part in enumerate(parts, start=1):
            log.log("00-0004", part=number, parts=len(parts), data=part)
    for finding in loaded.findings:
        log.log(
            _FINDING_IDS[finding.severity],
            text=f"{finding.file}:{finding.line}: {finding.path}: {finding.text}",
        )


def _parts(text: str) -> list[str]:
    """The text in parts that fit in a record, cut between lines where possible."""
    parts: list[str] = []
    current: list[str] = []
    size = 0
    for line in text.rstrip("\n").split("\n"):
        for start in range(0, max(len(line), 1), _PART_BYTES // 4):
            piece = line[start : start + _PART_BYTES // 4]
            length = len(piece.encode("utf-8", "replace")) + 1
            if current and size + length > _PART_BYTES:
                parts.append("\n".join(current))
                current, size = [], 0
            current.append(piece)
            size += length
    parts.append("\n".join(current))
    return parts


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "removed"
