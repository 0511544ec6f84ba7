"""What a fork does to clients: in the child, those made before are unusable, and they say so.

The child has copies of the clients and of their sockets, but none of their threads, and perhaps locks that
will never be released. Anything it wrote would end up in the middle of its parent's frames. So every client is
disowned in the child, once, when it starts: its lock is replaced by one that refuses, which costs the calls of
the parent nothing. `close` alone stays allowed there: it gives up the child's copy of the socket and leaves
the parent's connection alone.
"""

import os
import weakref
from typing import NoReturn, Protocol

from amps.client.errors import UsageException


class Forkable(Protocol):
    """Something that must not be used in a forked child."""

    def disown(self) -> None:
        """The process has become a forked child. No other thread is left, and no old lock may be taken."""


class RefusingLock:
    """Stands where a lock was: whoever wants it learns that this is the wrong process."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> NoReturn:
        raise forked()

    def __enter__(self) -> NoReturn:
        raise forked()

    def __exit__(self, *exception: object) -> None:
        """Never entered."""

    def release(self) -> None:
        """Never acquired."""


def forked() -> UsageException:
    """What every use in the child raises."""
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
