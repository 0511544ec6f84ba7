"""Functions that run one seed."""

import shutil
from pathlib import Path

from tests.simulation.world import World

DEFAULT_STEPS = 400


def run_seed(
    seed: int,
    directory: Path,
    step_count: int = DEFAULT_STEPS,
    echo: bool = False,
    world_type: type[World] = World,
) -> World:
    """Run a seed in an empty directory. A violated invariant raises, with the last events attached."""
    world = world_type(seed, directory, echo)
    try:
        world.run(step_count)
    except BaseException as failure:
        failure.add_note(f"seed {seed}, {step_count} steps; last events:\n" + "\n".join(world.history[-25:]))
        raise
    return world


def run_every_call(
    seed: int, directory: Path, machine: bool, stride: int = 1, world_type: type[World] = World
) -> int:
    """Run ordinary work that ends at the disk's first call, again ending at its second call, and so on.

    Return the first number of calls at which the process no longer died.
    """
    calls = 1
    while True:
        scratch = directory / f"call-{calls}"
        scratch.mkdir()
        try:
            died = world_type(seed, scratch).run_to_death(calls, machine)
        except BaseException as failure:
            failure.add_note(f"seed {seed}, {'machine' if machine else 'process'} died at call {calls}")
            raise
        shutil.rmtree(scratch)
        if not died:
            return calls
        calls += stride
