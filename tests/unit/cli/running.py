"""Run the `amps` command in a separate process."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.server import ServerProcess, package_path

COMMAND = [sys.executable, "-P", "-m", "amps.cli.main"]
TIMEOUT_S = 60.0


def environment(*paths: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, paths), package_path()]), "COLUMNS": "200"}


def run(
    *arguments: object, stdin: bytes = b"", paths: tuple[Path, ...] = ()
) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=TIMEOUT_S,
        env=environment(*paths),
        check=False,
    )


def server_option(server: ServerProcess) -> tuple[str, str]:
    return "-server", f"127.0.0.1:{server.port()}"
