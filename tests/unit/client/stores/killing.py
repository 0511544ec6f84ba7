"""Start publishers and kill them."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("publisher.py")


class Publisher:
    """A publishing process."""

    def __init__(self, uri: str, name: str, path: Path, turn: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), uri, name, str(path), str(turn)], stdout=subprocess.PIPE
        )
        self.told: list[tuple[int, int]] = []

    def read(self, count: int) -> None:
        """Wait until so many publishes have returned."""
        assert self.process.stdout is not None
        while len(self.told) < count:
            line = self.process.stdout.readline()
            assert line, "the publisher has ended"
            at, sequence = line.split()
            self.told.append((int(at), int(sequence)))

    def kill(self) -> list[tuple[int, int]]:
        """Kill it with SIGKILL; return what it told: the index in its round, and the number."""
        self.process.kill()
        rest = self.process.communicate()[0].decode()
        for line in rest.splitlines(keepends=True):
            if line.endswith("\n"):
                at, sequence = line.split()
                self.told.append((int(at), int(sequence)))
        return self.told
