"""Running the utilities as processes of their own, and the journals on which they are tested."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.peer import RawClient
from tests.support.peers import SOON
from tests.support.server import ServerProcess, package_path

TIMEOUT_S = 60.0
SMALL_COUNT = 5
LARGE_COUNT = 1400
"""Messages of 10,000 bytes: more than one journal of 10 MB holds."""


@dataclass(frozen=True)
class Ran:
    """The result of a command."""

    status: int
    out: bytes
    errors: str

    @property
    def lines(self) -> list[str]:
        return self.out.decode().splitlines()


def run(
    utility: str, *arguments: object, stdin: bytes = b"", environment: Mapping[str, str] | None = None
) -> Ran:
    """Run `amps/cli/utilities/<utility>.py`; a crash is never an expected result."""
    result = subprocess.run(
        [sys.executable, "-P", "-m", f"amps.cli.utilities.{utility}", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=TIMEOUT_S,
        env={**os.environ, "PYTHONPATH": package_path(), "COLUMNS": "120", **(environment or {})},
        check=False,
    )
    errors = result.stderr.decode(errors="replace")
    assert "Traceback" not in errors, errors
    assert result.returncode >= 0, f"killed by signal {-result.returncode}"
    return Ran(result.returncode, result.stdout, errors)


def entries_of(out: bytes) -> list[dict[str, str]]:
    """The entries of a dump by label, as they are printed."""
    blocks = out.decode(errors="replace").split("_" * 80 + "\n")
    found = [dict(_labelled(line) for line in block.splitlines()) for block in blocks]
    return [entry for entry in found if "entry" in entry]


def _labelled(line: str) -> tuple[str, str]:
    label, _, value = line.partition(" : ")
    return label.strip(), value


@dataclass(frozen=True)
class Written:
    """A journal directory that a real server wrote, and its contents as the clients know them."""

    directory: Path
    event_log: Path
    bookmarks: list[str]
    """As delivered, in the order of the log: `SMALL_COUNT` numbered messages of alice on `t1`, then one to `t2`."""
    began_s: float

    @property
    def first(self) -> Path:
        return self.directory / "L1.0000000000.journal"

    @property
    def second(self) -> Path:
        return self.directory / "L1.0000000001.journal"

    @property
    def spare(self) -> Path:
        return self.directory / "L1.0000000002.journal"


def write_journals(directory: Path, instance_xml: str = "") -> Written:
    """Alice publishes `SMALL_COUNT` numbered messages to `t1`, a message without a sequence to `t2`, then
    `LARGE_COUNT` large ones to `t1`, numbered on.
    """
    began_s = time.time()
    server = ServerProcess(directory, name="L1", log_topics=("t1", "t2"), instance_xml=instance_xml).start()
    try:
        with RawClient.tcp(server.port()) as client:
            client.logon("alice", mt="json", o=SOON)
            small = [b'{"n":%d}' % n for n in range(1, SMALL_COUNT + 1)]
            client.publish_persisted("t1", small, 1)
            client.publish("t2", b"free text", x="corr-1", e=60, k="key-1")
            client.flush("persisted")
            large = [
                b'{"n":%d,"pad":"%s"}' % (n, b"x" * 10_000)
                for n in range(SMALL_COUNT + 1, SMALL_COUNT + 1 + LARGE_COUNT)
            ]
            for at in range(0, LARGE_COUNT, 100):
                client.publish_persisted("t1", large[at : at + 100], SMALL_COUNT + 1 + at)
        with RawClient.tcp(server.port()) as client:
            client.logon("reader", mt="json")
            client.subscribe("^t[12]$", "r", bm="0")
            bookmarks = [str(message["bm"]) for message in client.receive_published(SMALL_COUNT + 1)]
        server.stop()
    finally:
        server.close()
    return Written(server.journal_directory, server.log.path, bookmarks, began_s)
