"""`python -m perf` in a checkout, built in place or not."""

import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[3]


def test_scenarios_are_listed_in_the_checkout() -> None:
    """If the checkout was not built, the installed package is used."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    done = subprocess.run(
        [sys.executable, "-m", "perf"], cwd=CHECKOUT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "spark-read" in done.stdout
