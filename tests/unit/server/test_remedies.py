"""Every likely failure at a start is reported with a remedy."""

import errno
import socket

import pytest

from amps.server import remedies


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EACCES, "user write there"),
        (errno.EMFILE, "ulimit -n"),
        (errno.EIO, "system's log"),
        (None, "system's log"),
    ],
)
def test_files(number: int | None, words: str) -> None:
    assert words in remedies.for_files(number)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EADDRINUSE, "stop that program"),
        (errno.EACCES, "CAP_NET_BIND_SERVICE"),
        (errno.EMFILE, "ulimit -n"),
        (socket.EAI_NONAME, "correct its InetAddr"),
    ],
)
def test_addresses(number: int, words: str) -> None:
    assert words in remedies.for_addresses(number)
