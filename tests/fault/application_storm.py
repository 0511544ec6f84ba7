"""Random deaths of applications and of their server, from one seed.

A publisher and a subscriber run as processes of their own, with stores in files (`applications.py`). They and the
server are killed again and again. Afterwards:

- the log has each accepted message once, in order, and no number is missing;
- the subscriber has handled every message, in order; a life of it begins with the message behind the last one that it
  handled, or with that one again, if it was killed between handling and discarding it.
"""

import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from amps.client import EPOCH, Client
from tests.fault.applications import TOPIC
from tests.support.server import ServerProcess, wait_until

PROGRAM = Path(__file__).with_name("applications.py")
PATIENCE_S = 90.0
KINDS = ("publisher", "subscriber", "server", "both")


class Application:
    """One application, which can be killed and started again."""

    def __init__(self, what: str, server: ServerProcess, directory: Path) -> None:
        self.what = what
        self.told = b""
        """All that its lives wrote to standard output."""
        self._server = server
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None

    def start(self) -> None:
        command = [
            sys.executable,
            "-P",
            str(PROGRAM),
            self.what,
            str(self._server.port()),
            str(self._directory),
        ]
        with (self._directory / "errors").open("ab") as errors:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
        self._reader = threading.Thread(target=self._read, args=[self._process], daemon=True)
        self._reader.start()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        while data := process.stdout.read1(1 << 16):  # type: ignore[attr-defined]
            self.told += data
        process.stdout.close()

    def end(self, number: int) -> None:
        """Send a signal and wait for its end. After SIGTERM it must end without an error."""
        assert self._process is not None
        assert self._reader is not None
        assert self._process.poll() is None, f"the {self.what}r ended by itself"
        self._process.send_signal(number)
        status = self._process.wait(PATIENCE_S)
        self._reader.join()
        assert status == (0 if number == signal.SIGTERM else -number), status

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


class Applications:
    """Both applications, what they have told, and the checks."""

    def __init__(self, server: ServerProcess, directory: Path) -> None:
        self.publisher = Application("publish", server, directory)
        self.subscriber = Application("subscribe", server, directory)
        self._handled = directory / "handled"

    def accepted(self) -> list[int]:
        """The numbers of the messages that publish() accepted; a line that was cut off does not count."""
        return [int(line) for line in self.publisher.told.split(b"\n")[:-1]]

    def lives(self) -> list[list[int]]:
        """The numbers that each life of the subscriber handled."""
        text = self._handled.read_text() if self._handled.exists() else ""
        return [[int(n) for n in re.findall(r"\d+\n", life)] for life in text.split("begins\n")]

    def last_handled(self) -> int:
        return max((life[-1] for life in self.lives() if life), default=0)

    def wait_for_progress(self, messages: int) -> None:
        """Wait until the subscriber has handled so many further messages."""
        wanted = self.last_handled() + messages
        wait_until(
            lambda: self.last_handled() >= wanted,
            PATIENCE_S,
            lambda: f"handled up to {self.last_handled()} of {wanted}",
        )

    def check(self, recorded: list[int]) -> None:
        accepted = self.accepted()
        assert accepted == sorted(set(accepted)), "a number was accepted twice"
        assert recorded == list(range(1, len(recorded) + 1))
        assert len(recorded) >= accepted[-1]
        last = 0
        for life in self.lives():
            for at, number in enumerate(life):
                assert number == last + 1 or (at == 0 and number == last), (last, number)
                last = number
        assert last == len(recorded)


def application_storm(server: ServerProcess, directory: Path, seed: int, kinds: Sequence[str | None]) -> None:
    """Run both applications, one death of each of `kinds` (None: any), and the checks afterwards."""
    chance = random.Random(seed)
    applications = Applications(server, directory)
    publisher, subscriber = applications.publisher, applications.subscriber
    history: list[str] = []
    try:
        publisher.start()
        subscriber.start()
        for kind in kinds:
            applications.wait_for_progress(100)
            time.sleep(chance.random() * 0.2)
            history.append(kind or chance.choice(KINDS))
            strike(history[-1], applications, server, chance)
        applications.wait_for_progress(100)
        told = len(publisher.told)  # the subscriber may have been behind: before its first message, SIGTERM kills it
        wait_until(lambda: len(publisher.told) > told, PATIENCE_S, server.excerpt)
        publisher.end(signal.SIGTERM)
        with Client("reader", f"tcp://127.0.0.1:{server.port()}/amps/json") as reader:
            recorded: list[int] = []
            reader.bookmark_subscribe(TOPIC, EPOCH, handler=lambda m: recorded.append(m.json()["n"]))
            wait_until(
                lambda: len(recorded) >= applications.accepted()[-1],
                PATIENCE_S,
                lambda: f"{len(recorded)} in the log",
            )
            reader.flush()
        wait_until(lambda: applications.last_handled() >= len(recorded), PATIENCE_S, server.excerpt)
        subscriber.end(signal.SIGTERM)
        applications.check(recorded)
    except BaseException as failure:
        failure.add_note(f"seed {seed}, deaths so far: {history}")
        failure.add_note((directory / "errors").read_text()[-4000:])
        raise
    finally:
        publisher.close()
        subscriber.close()


def strike(kind: str, applications: Applications, server: ServerProcess, chance: random.Random) -> None:
    """One death, and what the operator does then."""
    if kind in ("server", "both"):
        server.kill_all()
    victims = {
        "publisher": [applications.publisher],
        "subscriber": [applications.subscriber],
        "both": [applications.publisher, applications.subscriber],
    }.get(kind, [])
    for application in victims:
        application.end(signal.SIGKILL)
    time.sleep(chance.random() * 0.1)
    for application in victims:
        application.start()
    if kind in ("server", "both"):
        server.start()
