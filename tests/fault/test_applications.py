"""Applications with stores in files, killed at random beside their server: a short form of the soak."""

import random
from pathlib import Path

from tests.fault.application_storm import application_storm
from tests.fault.storm import LOGGED
from tests.support.server import StartServer


def test_fault_killed_applications_lose_and_repeat_nothing(start_server: StartServer, tmp_path: Path) -> None:
    """client.md §21 46, 53: a new seed in each run, which is printed."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    application_storm(start_server(log_topics=(LOGGED,)), tmp_path, seed, ["publisher", "subscriber", "both"])
