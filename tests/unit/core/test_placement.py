"""The core leaves the processor of a transport that is awake, if another processor is available."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from amps._core.shm.memory import MOVE_INTERVAL_NS, ControlPage, InstanceView, Placement, Ring
from amps.server.core.process import Core

Run = Callable[[Callable[[], None]], None]

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")


@pytest.fixture
def run() -> Iterator[Run]:
    """Run in a separate thread, whose affinity is changed."""
    with ThreadPoolExecutor(1) as thread:
        yield lambda body: thread.submit(body).result()


def processor() -> int:
    """The processor of this thread."""
    return int(Path("/proc/thread-self/stat").read_text().rpartition(")")[2].split()[36])


class Transports:
    """Two transports that are awake and alive, and the core's placement."""

    def __init__(self) -> None:
        self.control = ControlPage()
        self.views = [InstanceView(self.control, Ring(65536), Ring(65536), index) for index in range(2)]
        for index in range(2):
            self.control.set_transport_alive(index, True)
        self.placement = Placement(self.control, 2)

    def are_on(self, *processors: int) -> None:
        """Set the processor of each transport, and move this thread to the first one."""
        allowed = os.sched_getaffinity(0)
        for view, number in zip(reversed(self.views), reversed(processors), strict=True):
            os.sched_setaffinity(0, {number})
            view.read()
        os.sched_setaffinity(0, allowed)


def test_it_leaves_a_transport_and_stays_free(run: Run) -> None:
    def body() -> None:
        transports = Transports()
        allowed = os.sched_getaffinity(0)
        left = 0
        for attempt in range(40):
            here = sorted(allowed)[attempt % 2]
            transports.are_on(here, here)
            moved = transports.placement.keep_apart(attempt * MOVE_INTERVAL_NS)
            left += moved and processor() != here
            assert os.sched_getaffinity(0) == allowed
        # Between the steps the kernel may move this thread as well.
        assert left >= 20
        assert transports.placement.moves >= left

    run(body)


def test_the_core_looks_after_each_turn_with_work() -> None:
    class LookedError(Exception):
        """Ends the core's loop."""

    def look(now_ns: int) -> bool:
        assert now_ns > 0
        raise LookedError

    worked = iter([True, True, True])
    core = SimpleNamespace(
        turns=None,
        turn=lambda: next(worked),
        _runtime=SimpleNamespace(control=SimpleNamespace(core_beat=lambda now_ns: None)),
        _placement=SimpleNamespace(keep_apart=look),
    )
    with pytest.raises(LookedError):
        Core._serve(core)  # type: ignore[arg-type]
    assert len(list(worked)) == 2


def test_it_does_not_move_again_at_once(run: Run) -> None:
    def body() -> None:
        transports = Transports()
        here = min(os.sched_getaffinity(0))
        for now_ns in range(1, MOVE_INTERVAL_NS, MOVE_INTERVAL_NS // 10):
            transports.are_on(here, here)
            transports.placement.keep_apart(now_ns)
        assert transports.placement.moves == 1

    run(body)


@pytest.mark.parametrize("how", ["asleep", "dead", "elsewhere"])
def test_a_transport_that_sleeps_is_no_reason_to_move(run: Run, how: str) -> None:
    def body() -> None:
        transports = Transports()
        here, other = sorted(os.sched_getaffinity(0))[:2]
        for attempt in range(1, 20):
            transports.are_on(here, here)
            if how == "elsewhere":
                transports.are_on(other, other)
                os.sched_setaffinity(0, {here})  # it could leave this processor, too
            for index, view in enumerate(transports.views):
                if how == "dead":
                    transports.control.set_transport_alive(index, False)
                if how == "asleep":
                    assert view.fall_asleep()
            assert not transports.placement.keep_apart(attempt * MOVE_INTERVAL_NS)
            os.sched_setaffinity(0, {here, other})
        assert transports.placement.moves == 0

    run(body)


def test_it_stays_where_it_must_or_where_other_processors_are_no_better(run: Run) -> None:
    def body() -> None:
        transports = Transports()
        here, other = sorted(os.sched_getaffinity(0))[:2]
        transports.are_on(here, here)
        os.sched_setaffinity(0, {here})
        assert not transports.placement.keep_apart(1)
        assert os.sched_getaffinity(0) == {here}
        os.sched_setaffinity(0, {here, other})
        transports.are_on(here, other)
        assert not transports.placement.keep_apart(2 + MOVE_INTERVAL_NS)
        assert os.sched_getaffinity(0) == {here, other}
        assert transports.placement.moves == 0

    run(body)
