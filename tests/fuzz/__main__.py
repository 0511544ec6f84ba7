"""`python -m tests.fuzz --forever`: random seeds until one has a finding; prints it, exit code 1.

`python -m tests.fuzz --seed N --target server` repeats one finding.
"""

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.fuzz import codec, documents, queues, replication, transactions
from tests.fuzz.server import OPTIONS, Witness, attack
from tests.support.server import ServerProcess

REPORT_INTERVAL_S = 10.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--forever", action="store_true", help="go on until something is found")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long without --forever (default 10)")
    parser.add_argument("--seed", type=int, help="try this seed only")
    parser.add_argument("--first-seed", type=int, default=time.time_ns() // 1000 % 10**12)
    parser.add_argument(
        "--target",
        choices=["codec", "documents", "transactions", "replication", "server", "queues", "both"],
        default="both",
    )
    arguments = parser.parse_args()
    seeds = [arguments.seed] if arguments.seed is not None else itertools.count(arguments.first_seed)
    end = float("inf") if arguments.forever else time.monotonic() + arguments.seconds
    if arguments.target == "codec":
        return _search(seeds, end, codec.run)
    if arguments.target == "documents":
        return _search(seeds, end, documents.run)
    if arguments.target == "transactions":
        return _search(seeds, end, transactions.run)
    if arguments.target == "replication":
        return _search(seeds, end, replication.run)
    with tempfile.TemporaryDirectory() as directory:
        settings = queues.OPTIONS if arguments.target == "queues" else OPTIONS
        server = ServerProcess(Path(directory), **settings).start()
        witness = Witness(server)

        def try_seed(seed: int) -> None:
            if arguments.target == "both":
                for offset in range(50):
                    codec.run(seed * 50 + offset)
            if arguments.target == "queues":
                queues.attack_queues(server, seed)
            else:
                attack(server, seed)
            witness.check()

        try:
            return _search(seeds, end, try_seed)
        finally:
            witness.close()
            server.close()


def _search(seeds: "itertools.count[int] | list[int]", end: float, try_seed: Callable[[int], None]) -> int:
    tried = 0
    next_report = time.monotonic() + REPORT_INTERVAL_S
    for seed in seeds:
        try:
            try_seed(seed)
        except Exception as error:
            print(f"FOUND with seed {seed}: {type(error).__name__}: {error}", flush=True)
            return 1
        tried += 1
        now = time.monotonic()
        if now > next_report:
            print(f"{tried} seeds tried, last {seed}", flush=True)
            next_report = now + REPORT_INTERVAL_S
        if now > end:
            break
    print(f"{tried} seeds tried, nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
