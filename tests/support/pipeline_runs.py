"""`amps pipeline …` in processes of its own, which tests can interrupt and kill."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Self

import psutil

from tests.support.server import package_path
from tests.unit.cli.running import COMMAND

TIMEOUT_S = 240.0


class PipelineRun:
    """A command and all processes that it has started; use `with`."""

    def __init__(self, directory: Path, *arguments: object, **environment: str) -> None:
        self._output = directory / "output.log"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [*COMMAND, "pipeline", *map(str, arguments)],
                cwd=directory,
                env={**os.environ, "PYTHONPATH": package_path(), **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def children(self) -> list[psutil.Process]:
        """The JVM, and the processes that it has started."""
        try:
            return psutil.Process(self._process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def kill(self) -> None:
        """SIGKILL all of its processes."""
        processes = self.children()
        self._process.kill()
        for process in processes:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self._process.wait(10)
        psutil.wait_procs(processes, 10)

    def interrupt(self) -> None:
        """Ctrl-C, as from a terminal: to the whole group of processes."""
        os.killpg(self._process.pid, signal.SIGINT)

    def finish(self, status: int = 0) -> str:
        """Wait until it ends with that exit status. Return its output."""
        ended = self._process.wait(TIMEOUT_S)
        assert ended == status, self.output()
        return self.output()

    def output(self) -> str:
        return self._output.read_text(errors="replace")
