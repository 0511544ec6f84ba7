"""Programs that keep the last value of each key: the base classes of servers and of embedded libraries.

A *state* is such a program while it runs. Servers are driven over sockets by this process. A library is embedded in a
process of its own, which each repetition starts anew, and whose processor time is the library's.

Records of the scenarios about updates are made of templates (`perf.state_load`). Records of the scenarios about queries
are orders (`perf.orders.lines`), which are found by their number, by their symbol, and by a filter of five predicates.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from perf.measurement import CpuTime
from perf.orders.lines import OrderLines
from perf.peers.base import Peer
from perf.state_load import Numbers

Work = Callable[[float], int]
"""Prepared work. It gets the seconds after which it must end, and returns how much was done."""


class State(ABC):
    """The running program. Methods that a scenario needs and a peer cannot do raise NotImplementedError."""

    is_in_this_process = False
    answers_while_updating = True
    """False: its answers are not complete while records are updated."""

    @abstractmethod
    def cpu(self) -> CpuTime:
        """Processor time so far."""

    def memory_bytes(self) -> int:
        """Own memory of its processes, without the page cache."""
        raise NotImplementedError

    def writes(self, templates: Sequence[bytes], numbers: Numbers, version: int) -> Work:
        """Insert or replace the records with these keys; the work counts what is confirmed as stored."""
        raise NotImplementedError

    def deltas(self, templates: Sequence[bytes], numbers: Numbers, version: int) -> Work:
        """Replace fields of orders; the work counts what is confirmed as stored."""
        raise NotImplementedError

    def value(self, number: int) -> bytes | None:
        """The record with this key, as JSON."""
        raise NotImplementedError

    def count(self) -> int:
        """How many records there are."""
        raise NotImplementedError

    def load_orders(self, orders: OrderLines) -> None:
        """Store all orders. Not timed."""
        raise NotImplementedError

    def by_number(self, numbers: Numbers, symbols: Sequence[int]) -> int:
        """Get each of these orders by its number, whose symbol is known as well; returns how many came."""
        raise NotImplementedError

    def by_symbol(self, symbols: Sequence[int], expected: int) -> int:
        """Get all orders of each of these symbols; returns how many came. `expected`: how many there are."""
        raise NotImplementedError

    def scan(self, expected: int) -> int:
        """Get all orders that match the filter; returns how many came. `expected`: how many there are."""
        raise NotImplementedError

    def other_connection(self) -> "State":
        """For writes by another thread."""
        return self


class StatePeer(Peer):
    """A program that keeps states."""

    is_embedded = False

    @abstractmethod
    def opened(self, directory: Path) -> AbstractContextManager[State]:
        """The running program, with its data in `directory`."""
