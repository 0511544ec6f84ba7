"""How much output waits for slow clients, in all workers together (operations.md §2.1: `MessageMemoryLimit`).

An instance has one pool, and one more for each transport that sets a limit of its own. Each worker publishes here how
much of each pool its clients use, and how much the largest of them uses; a pool's use is the sum over the workers. For
the measures when a pool is full see transport/slow_clients.py.

Invariants: each word has one writer, the worker, and workers write different cache lines. The words of a worker that
died belong to the supervisor until another worker replaces it; the supervisor clears them, so that they no longer
count. Readers see a worker's two words at slightly different times; no decision depends on that. There are as many
words as the configuration needs: two for each worker and pool.
"""

import contextlib
import fcntl
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from amps.config import ServerConfig

_WORD_BYTES = 8
_LINE_BYTES = 64


def pool_limits(config: ServerConfig) -> dict[str | None, int]:
    """The limits of all pools in bytes, ordered by the pools' numbers: the instance's (None), then by transport."""
    limits: dict[str | None, int] = {None: config.message_memory_limit_bytes}
    for transport in config.transports:
        if transport.message_memory_limit_bytes is not None:
            limits[transport.name] = transport.message_memory_limit_bytes
    return limits


class MemoryUse:
    """Published memory use, in memory that all processes of an instance share."""

    def __init__(self, workers: int, pools: int) -> None:
        self._workers = workers
        row_bytes = -(-2 * _WORD_BYTES * pools // _LINE_BYTES) * _LINE_BYTES
        self._row_words = row_bytes // _WORD_BYTES
        self._memory = mmap.mmap(-1, workers * row_bytes)
        self._words = memoryview(self._memory).cast("Q")

    def reset(self) -> None:
        """Clear all words, because the tree of processes is started again."""
        self._memory[:] = bytes(len(self._memory))

    def clear(self, worker: int) -> None:
        """Clear the words of a worker that has died, and whose connections are closed."""
        for word in range(worker * self._row_words, (worker + 1) * self._row_words):
            self._words[word] = 0

    def publish(self, worker: int, pool: int, used_bytes: int, largest_bytes: int) -> None:
        """Publish how much of a pool a worker's clients use, and how much the largest of them uses."""
        word = worker * self._row_words + 2 * pool
        self._words[word] = used_bytes
        self._words[word + 1] = largest_bytes

    def used_bytes(self, pool: int) -> int:
        """How much of a pool the clients of all workers use."""
        return sum(self._words[2 * pool :: self._row_words])

    def largest(self, pool: int) -> tuple[int, int]:
        """The worker with a pool's largest client, and how much that uses; of equal ones the first worker."""
        sizes = self._words[2 * pool + 1 :: self._row_words].tolist()
        largest_bytes = max(sizes)
        return sizes.index(largest_bytes), largest_bytes


class Deciding:
    """Lets one worker at a time decide which client to disconnect: two at once would disconnect one too many.

    The system releases the lock when its holder dies.
    """

    def __init__(self, path: Path) -> None:
        """Each worker needs an object of its own, opened after the fork: processes that inherit a lock share it."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @contextlib.contextmanager
    def tried(self) -> Iterator[bool]:
        """Try to take the lock. True: this worker may decide. Never waits."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        try:
            yield True
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
