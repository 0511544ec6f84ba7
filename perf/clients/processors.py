"""The processors of a run: one for the client, the others for the server and the load generator."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

AVAILABLE = sorted(os.sched_getaffinity(0))


def of_client() -> set[int]:
    return set(AVAILABLE[:1])


def of_servers() -> set[int]:
    return set(AVAILABLE[1:]) or set(AVAILABLE)


@contextmanager
def confined_to_servers() -> Iterator[None]:
    """This process, and those that it starts meanwhile, leave the processor of the client alone."""
    os.sched_setaffinity(0, of_servers())
    try:
        yield
    finally:
        os.sched_setaffinity(0, AVAILABLE)


def confine_client() -> None:
    """Confine this process to the processor of the client."""
    os.sched_setaffinity(0, of_client())
