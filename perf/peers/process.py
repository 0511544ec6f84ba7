"""Peers that work on the messages of a corpus in a process of their own: this server's delivery, or a library.

Each repetition is a fresh process with a single thread, so that messages per second of its processor time are messages
per second and core. Before the measurement, another process checks that the peer finds exactly the matching messages.
"""

import multiprocessing
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import ParamSpec, TypeVar

from perf.measurement import CpuTime, Measurement
from perf.orders.corpus import Corpus
from perf.peers.base import Peer

A = ParamSpec("A")
R = TypeVar("R")

STEP_MESSAGES = 200
"""Messages between two readings of the clock."""
WARM_UP_S = 0.5


class Work(ABC):
    """A peer that is ready, in its process."""

    count: int
    """Number of messages of the corpus that it works on, from the first one."""

    @abstractmethod
    def run(self, first: int, end: int) -> None:
        """Work on the messages from number `first` to before `end`. This is the timed part."""

    @abstractmethod
    def verify(self, corpus: Corpus) -> None:
        """Work on all of its messages. Raises PeerError if the matches are wrong."""

    def facts(self) -> dict[str, float]:
        """Further figures for the report, computed after the measurement."""
        return {}


class ProcessPeer(Peer):
    """A peer that works in a process of its own, which gets it pickled."""

    format_name: str = "json"
    """Format of the messages it works on."""

    @abstractmethod
    def prepare(self, corpus: Corpus) -> Work:
        """Read messages and compile expressions. Called in the process."""


def in_own_process(function: Callable[A, R], *args: A.args, **kwargs: A.kwargs) -> R:
    """The result of a function in a fresh interpreter."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:
        return executor.submit(function, *args, **kwargs).result()


def verify(peer: ProcessPeer, corpus: Corpus) -> None:
    """Raises PeerError if the peer does not find exactly the matching messages."""
    peer.prepare(corpus).verify(corpus)


def measure(peer: ProcessPeer, corpus: Corpus, seconds: float) -> Measurement:
    """Work on the messages from the first to the last, again and again, for `seconds`."""
    work = peer.prepare(corpus)
    warm_up(work)
    first = messages = 0
    clock, processor = time.perf_counter(), time.process_time()
    elapsed_s = 0.0
    while elapsed_s < seconds:
        end = min(first + STEP_MESSAGES, work.count)
        work.run(first, end)
        messages += end - first
        first = end if end < work.count else 0
        elapsed_s = time.perf_counter() - clock
    processor_s = time.process_time() - processor
    values = {
        "messages_per_cpu_s": round(messages / processor_s),
        "cpu_us_per_message": round(processor_s / messages * 1e6, 4),
        "messages_per_s": round(messages / elapsed_s),
        **work.facts(),
    }
    return Measurement(values, messages, elapsed_s, CpuTime({peer.name: round(processor_s, 3)}))


def warm_up(work: Work) -> None:
    """Work on all messages once, for WARM_UP_S at most, so that pages are mapped and code is loaded."""
    clock = time.perf_counter()
    for first in range(0, work.count, STEP_MESSAGES):
        work.run(first, min(first + STEP_MESSAGES, work.count))
        if time.perf_counter() - clock > WARM_UP_S:
            return
