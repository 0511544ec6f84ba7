"""Clients after a fork: in the child, clients created before the fork raise UsageException.

The child has copies of the clients and of their sockets, but none of their threads, and perhaps locks that
will never be released. Bytes that it wrote would end up in the middle of its parent's frames. So every client is
disowned when the child starts: its lock is replaced by a RefusingLock, which costs the calls of
the parent nothing. Only `close` stays allowed in the child: it closes the child's copy of the socket and does not
affect the parent's connection.
"""

import os
import weakref
from typing import NoReturn, Protocol

from amps.client.errors import UsageException


class Forkable(Protocol):
    """An object that must not be used in a forked child."""

    def disown(self) -> None:
        """Make the object unusable in a forked child. No other thread exists there, and no old lock may be taken."""


class RefusingLock:
    """Replaces a lock in a forked child: each attempt to acquire it raises UsageException."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> NoReturn:
        raise forked()

    def __enter__(self) -> NoReturn:
        raise forked()

    def __exit__(self, *exception: object) -> None:
        """Never entered."""

    def release(self) -> None:
        """Never acquired."""


def forked() -> UsageException:
    """Return the exception that each use in the child raises."""
    return UsageException("this client was made before a fork: make a new one in the child process")


_known: weakref.WeakSet[Forkable] = weakref.WeakSet()


def watch(client: Forkable) -> None:
    """Disown this client in every child that this process forks."""
    _known.add(client)


def _disown_all() -> None:
    for client in list(_known):
        client.disown()
    _known.clear()


os.register_at_fork(after_in_child=_disown_all)
