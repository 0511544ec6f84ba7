"""Running one seed."""

from pathlib import Path

from tests.simulation.world import World

DEFAULT_STEPS = 400


def run_seed(seed: int, directory: Path, step_count: int = DEFAULT_STEPS, echo: bool = False) -> World:
    """Run a seed in an empty directory. A violated invariant raises, with the last events attached."""
    world = World(seed, directory, echo)
    try:
        world.run(step_count)
    except BaseException as failure:
        failure.add_note(f"seed {seed}, {step_count} steps; last events:\n" + "\n".join(world.history[-25:]))
        raise
    return world
