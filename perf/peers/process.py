"""What works on the messages of a corpus in one process of its own: this server's delivery path, or a library.

Each repetition is a fresh process with a single thread, so that messages per second of its processor time are messages
per second and core. Before anything is timed, a process of its own checks that the peer finds exactly the messages that
match.
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
"""Between two looks at the clock."""
WARM_UP_S = 0.5


class Work(ABC):
    """A peer that is ready, in its process."""

    count: int
    """How many of the corpus' messages it works on, from the first one."""

    @abstractmethod
    def run(self, first: int, end: int) -> None:
        """Work on the messages from number `first` to before `end`: what is timed."""

    @abstractmethod
    def verify(self, corpus: Corpus) -> None:
        """Work on all of its messages. PeerError: not exactly those were found that should be."""

    def facts(self) -> dict[str, float]:
        """What else is to be told, once it is timed."""
        return {}


class ProcessPeer(Peer):
    """Who works in a process of its own. It is sent there pickled."""

    format_name: str = "json"
    """Of the messages it works on."""

    @abstractmethod
    def prepare(self, corpus: Corpus) -> Work:
        """Called in the process: read messages, compile what can be compiled."""


def in_own_process(function: Callable[A, R], *args: A.args, **kwargs: A.kwargs) -> R:
    """The result of a function in a fresh interpreter."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:
        return executor.submit(function, *args, **kwargs).result()


def verify(peer: ProcessPeer, corpus: Corpus) -> None:
    """PeerError: the peer does not find what it should."""
    peer.prepare(corpus).verify(corpus)


def measure(peer: ProcessPeer, corpus: Corpus, seconds: float) -> Measurement:
    """Work on the messages from the first to the last, again and again for so many seconds."""
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
    """Once over all messages, unless that takes long: pages are mapped then, and code is loaded."""
    clock = time.perf_counter()
    for first in range(0, work.count, STEP_MESSAGES):
        work.run(first, min(first + STEP_MESSAGES, work.count))
        if time.perf_counter() - clock > WARM_UP_S:
            return
