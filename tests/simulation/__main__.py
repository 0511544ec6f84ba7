"""Command line that runs seeds; see the package."""

import argparse
import itertools
import random
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.simulation.group_plans import DEFAULT_PLAN_STEPS, Plan, run_plan
from tests.simulation.group_queue_plans import QueuePlan
from tests.simulation.group_topologies import TOPOLOGIES
from tests.simulation.group_world import DEFAULT_GROUP_STEPS, run_group_seed
from tests.simulation.queue_world import QueueWorld
from tests.simulation.run import DEFAULT_STEPS, run_every_call, run_seed
from tests.simulation.sow_world import SowWorld
from tests.simulation.world import World


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this seed alone")
    parser.add_argument("--seeds", type=int, default=100, help="run that many seeds (default 100)")
    parser.add_argument("--first", type=int, default=0, help="first of the seeds (default 0)")
    parser.add_argument(
        "--steps",
        type=int,
        help=f"steps per seed (default {DEFAULT_STEPS}; groups {DEFAULT_GROUP_STEPS}, model {DEFAULT_PLAN_STEPS})",
    )
    parser.add_argument("--forever", action="store_true", help="random seeds until interrupted")
    parser.add_argument(
        "--every-call", action="store_true", help="per seed, let every call of the disk be the last"
    )
    parser.add_argument("--queues", action="store_true", help="with message queues and their consumers")
    parser.add_argument("--sow", action="store_true", help="with SOW topics")
    parser.add_argument("--groups", action="store_true", help="groups of real instances (group_world)")
    parser.add_argument("--topology", choices=sorted(TOPOLOGIES), help="with --groups: this one alone")
    parser.add_argument(
        "--group-model", action="store_true", help="the specification's model of a group (group_plans)"
    )
    parser.add_argument("--trace", action="store_true", help="print everything that happens")
    options = parser.parse_args()
    seeds = (
        [options.seed]
        if options.seed is not None
        else (random.SystemRandom().randrange(1 << 32) for _ in itertools.count())
        if options.forever
        else range(options.first, options.first + options.seeds)
    )
    world_type = world_type_of(options)
    failed: list[int] = []
    began = time.monotonic()
    count = 0
    try:
        for seed in seeds:
            if options.forever:
                print(f"seed {seed}", flush=True)
            count += 1
            with tempfile.TemporaryDirectory(prefix="simulation-", dir=scratch_base()) as directory:
                try:
                    if options.every_call:
                        for machine in (False, True):
                            run_every_call(seed, Path(directory), machine, world_type=world_type)
                    else:
                        run_one(options, seed, Path(directory))
                except Exception:
                    failed.append(seed)
                    traceback.print_exc()
                    print(f"FAILED: {how_again(options, seed)}", flush=True)
    except KeyboardInterrupt:
        pass
    print(f"{count} seeds, {len(failed)} failed {failed[:20]}, {time.monotonic() - began:.1f} s")
    return 1 if failed else 0


def run_one(options: argparse.Namespace, seed: int, directory: Path) -> None:
    """Run one seed of what the options ask for."""
    if options.group_model:
        plan_type = QueuePlan if options.queues else Plan
        run_plan(seed, options.steps or DEFAULT_PLAN_STEPS, plan_type=plan_type)
    elif options.groups:
        topology = TOPOLOGIES.get(options.topology)
        run_group_seed(seed, directory, options.steps or DEFAULT_GROUP_STEPS, options.trace, topology)
    else:
        run_seed(seed, directory, options.steps or DEFAULT_STEPS, options.trace, world_type_of(options))


def world_type_of(options: argparse.Namespace) -> type[World]:
    """The world of one instance that the options ask for."""
    return SowWorld if options.sow else QueueWorld if options.queues else World


def how_again(options: argparse.Namespace, seed: int) -> str:
    """The command that repeats a seed."""
    words = ["python -m tests.simulation --seed", str(seed)]
    words += ["--queues"] if options.queues else []
    words += ["--sow"] if options.sow else []
    words += ["--groups"] if options.groups else []
    words += ["--group-model"] if options.group_model else []
    words += ["--topology", options.topology] if options.topology else []
    words += ["--steps", str(options.steps)] if options.steps else []
    words += ["--every-call"] if options.every_call else ["--trace"]
    return " ".join(words)


def scratch_base() -> str | None:
    """Return a directory in memory if the system has one: the simulation needs no real disk."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


if __name__ == "__main__":
    sys.exit(main())
