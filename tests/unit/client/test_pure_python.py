"""The tests of the protocol engine and of the asyncio client, with the modules in Python instead of the extension."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]
TIMEOUT_S = 200.0


def test_the_client_passes_its_tests_in_pure_python() -> None:
    """AMPS_PURE_PYTHON=1 in a process of its own, because the choice is made at the import."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    environment["AMPS_PURE_PYTHON"] = "1"
    chosen = subprocess.run(
        [
            sys.executable,
            "-P",
            "-c",
            "from amps.client.protocol import framing, traffic; import sys;"
            "print(traffic.COMPILED, framing.parse_header.__module__, 'amps._core' in sys.modules)",
        ],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert chosen.stdout == "False amps.client.protocol.framing_python False\n", chosen.stderr
    tests = [*sorted(HERE.glob("test_engine_*.py")), HERE / "test_aio.py", HERE / "test_aio_streams.py"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *map(str, tests)],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
