"""Programs of documents, run as a reader would run them: saved as a file, with the port of a server under test."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.documents import block
from tests.support.server import package_path, wait_until

WAIT_S = 60.0


class Program:
    """A running program. Its standard output and standard error are one text."""

    def __init__(self, command: list[str], directory: Path, output: Path) -> None:
        self._output = output
        with output.open("wb") as file:
            self.process = subprocess.Popen(
                command,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=directory,
                env={
                    "PYTHONPATH": package_path(),
                    "PATH": os.environ["PATH"],
                    "COLUMNS": "200",
                    "AMPS_RUNTIME_DIRECTORY": str(directory),  # a killed server leaves files in it
                },
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def lines(self, beginning: str = "") -> list[str]:
        """The complete lines of the output that begin with a text."""
        whole = self.output.rpartition("\n")[0]
        return [line for line in whole.splitlines() if line.startswith(beginning)]

    def until(self, *words: str) -> None:
        """Wait for each of these texts in the output."""
        wait_until(lambda: all(word in self.output for word in words), WAIT_S, lambda: self.output)

    def until_lines(self, count: int, beginning: str = "") -> list[str]:
        """Wait for a number of lines that begin with a text; return those that there are."""
        wait_until(lambda: len(self.lines(beginning)) >= count, WAIT_S, lambda: self.output)
        return self.lines(beginning)

    def kill(self) -> None:
        """Kill the process, as `kill -9` does."""
        self.process.kill()
        self.process.wait(WAIT_S)

    def close(self) -> None:
        """Kill all of its processes that still run."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(WAIT_S)

    def end(self) -> str:
        """Ask the program to end, as a service manager does; it must succeed. Returns its output."""
        self.process.send_signal(signal.SIGTERM)
        return self.finished()

    def finished(self) -> str:
        """Wait until the program has ended by itself; it must succeed. Returns its output."""
        assert self.process.wait(WAIT_S) == 0, self.output
        return self.output


class Programs:
    """Runs the programs of one document in one directory.

    replaced: texts of the document and what stands for them here, such as the address of the server.
    """

    def __init__(self, document: str, directory: Path, replaced: dict[str, str]) -> None:
        self.directory = directory
        self._document = document
        self.replaced = replaced
        self._running: list[Program] = []

    def text(self, containing: str, language: str = "python") -> str:
        """The block that contains a text, adapted to this run."""
        return self.adapted(block(self._document, containing, language))

    def adapted(self, text: str) -> str:
        """A text of the document, as it is in this run."""
        for old, new in self.replaced.items():
            text = text.replace(old, new)
        return text

    def start(self, containing: str) -> Program:
        """Start the program of a block."""
        script = self.directory / f"program_{len(self._running)}.py"
        script.write_text(self.text(containing))
        return self.start_command([sys.executable, "-P", str(script)])

    def start_command(self, command: list[str]) -> Program:
        """Start another command."""
        program = Program(command, self.directory, self.directory / f"output-{len(self._running)}")
        self._running.append(program)
        return program

    def run(self, containing: str) -> str:
        """Run the program of a block to its end; return its output."""
        return self.start(containing).finished()

    def close(self) -> None:
        for program in self._running:
            program.close()


@contextlib.contextmanager
def programs(document: str, directory: Path, port: int) -> Iterator[Programs]:
    """Run programs of a document with `localhost:9007` replaced by this port; end those that still run."""
    running = Programs(document, directory, {"localhost:9007": f"127.0.0.1:{port}"})
    try:
        yield running
    finally:
        running.close()
