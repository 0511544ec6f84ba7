"""Random deaths without a fixed end: `python -m tests.fault --minutes N`. Every seed is printed before it runs.

Without an option, the server's processes die or freeze under load. With `--applications`, applications that use the
client library with stores in files are killed, too. With `--replicated`, instances that replicate to each other, and
the network between them, their disks and clocks, have faults.
"""

import argparse
import random
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.fault.application_storm import application_storm
from tests.fault.replicated_storm import group_storm, make_group, make_hosts
from tests.fault.storm import LOGGED, storm
from tests.support.server import ServerProcess

STRIKES = 12


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fault", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long (default 5)")
    parser.add_argument(
        "--seed", type=int, help="run this seed alone; the moments are the same, not the schedule"
    )
    parser.add_argument("--strikes", type=int, default=STRIKES, help=f"deaths per seed (default {STRIKES})")
    parser.add_argument(
        "--applications", action="store_true", help="kill applications, and the server with them"
    )
    parser.add_argument("--replicated", action="store_true", help="faults of a pair or a triangle of instances")
    options = parser.parse_args()
    end_s = time.monotonic() + options.minutes * 60
    failed: list[int] = []
    count = 0
    while count == 0 or (options.seed is None and time.monotonic() < end_s):
        seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
        count += 1
        print(f"seed {seed}", flush=True)
        if options.replicated:
            succeeded = run_group(seed, options.strikes)
        else:
            succeeded = run(seed, options.strikes, options.applications)
        if not succeeded:
            failed.append(seed)
    print(f"{count} seeds, {len(failed)} failed {failed}")
    return 1 if failed else 0


def run(seed: int, strikes: int, applications: bool) -> bool:
    """Run one storm on one server. Return False if a check fails; the log is printed then."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="fault-") as directory:
        ready = chance.choice([1, 2, 4])
        server = ServerProcess(
            Path(directory) / "server",
            log_topics=(LOGGED,),
            transport_workers=chance.choice([1, 2, 3]),
            journal_xml=f"<PreallocatedJournalFiles>{ready}</PreallocatedJournalFiles>",
        )
        try:
            server.start()
            if applications:
                application_storm(server, Path(directory), seed, [None] * strikes)
            else:
                storm(server, seed, [None] * strikes)
            server.stop()
        except Exception:
            traceback.print_exc()
            print(server.excerpt(100), flush=True)
            return False
        finally:
            server.close()
    return True


def run_group(seed: int, strikes: int) -> bool:
    """Run one storm on a pair or a triangle. Return False if a check fails; the logs are printed then."""
    names = random.Random(seed).choice(["AB", "ABC"])
    with tempfile.TemporaryDirectory(prefix="fault-") as directory:
        hosts = make_hosts(Path(directory), names)
        group = make_group(Path(directory), len(names), hosts)
        try:
            group.start()
            group_storm(group, names, seed, [None] * strikes, hosts)
            group.stop()
        except Exception:
            traceback.print_exc()
            for name in names:
                print(f"--- {name}", group[name].excerpt(100), sep="\n", flush=True)
            return False
        finally:
            group.close()
            for host in hosts.values():
                host.clock.close()
    return True


if __name__ == "__main__":
    sys.exit(main())
