"""Whole files damaged, missing, swapped or foreign: the start is refused with the file's name, and changes nothing.

Index and watermark files are optional: if they are missing or damaged, the log is the same.
"""

import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from amps._core.journal.reader import build_file_header
from amps._core.values.value import publisher_id
from tests.fault.load import replay
from tests.support.peers import Peers
from tests.support.server import ServerProcess, StartServer, numbered_bodies

TOTAL = 2500
BODIES = numbered_bodies(TOTAL, padding_bytes=10_000)
"""25 MB: two full journals, half of a third, and a spare."""
NEWEST = 2

Files = dict[Path, bytes]


@pytest.fixture(scope="module")
def filled(start_module_server: StartServer) -> tuple[ServerProcess, Files]:
    """A stopped server with its files; every body was acknowledged."""
    server = start_module_server(log_topics=("t1",))
    with Peers("writer") as peers:
        peers.logged_on(server).publish_persisted("t1", BODIES, 1)
    server.stop()
    return server, {path: path.read_bytes() for path in server.journal_directory.iterdir() if path.is_file()}


@pytest.fixture
def server(filled: tuple[ServerProcess, Files]) -> Iterator[ServerProcess]:
    """The server. Its files are restored after the test."""
    server, files = filled
    yield server
    server.kill_all()
    for path in server.journal_directory.iterdir():
        if path not in files:
            path.unlink()
    for path, content in files.items():
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)


def journal(server: ServerProcess, number: int) -> Path:
    return server.journal_directory / f"Test.{number:010d}.journal"


def cut_to(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


def zero(path: Path, begin: int, end: int) -> None:
    with path.open("r+b") as file:
        file.seek(begin)
        file.write(bytes(end - begin))


def swap(first: Path, second: Path) -> None:
    contents = first.read_bytes(), second.read_bytes()
    first.write_bytes(contents[1])
    second.write_bytes(contents[0])


def unlink(*paths: Path) -> None:
    for path in paths:
        path.unlink()


def make_empty(path: Path, number: int, *, in_use: bool = False) -> None:
    """Make a spare journal as the server does."""
    size = path.stat().st_size
    header = build_file_header(number, size, 0, 0, 1, publisher_id("Test"), "Test", in_use)
    path.write_bytes(header.ljust(size, b"\0"))


DAMAGES: dict[str, tuple[int, Callable[[ServerProcess], object]]] = {
    "header zeroed, newest": (NEWEST, lambda s: zero(journal(s, NEWEST), 0, 4096)),
    "header zeroed, first": (0, lambda s: zero(journal(s, 0), 0, 4096)),
    "header and first records zeroed, newest": (NEWEST, lambda s: zero(journal(s, NEWEST), 0, 100_000)),
    "first records zeroed, newest": (NEWEST, lambda s: zero(journal(s, NEWEST), 4096, 100_000)),
    "last records zeroed, newest": (NEWEST, lambda s: zero(journal(s, NEWEST), 3_000_000, 10 << 20)),
    "shortened, newest": (NEWEST, lambda s: cut_to(journal(s, NEWEST), 1 << 20)),
    "shortened, first": (0, lambda s: cut_to(journal(s, 0), 1 << 20)),
    "shortened to less than a header": (NEWEST, lambda s: cut_to(journal(s, NEWEST), 100)),
    "emptied": (NEWEST, lambda s: cut_to(journal(s, NEWEST), 0)),
    "lengthened": (1, lambda s: cut_to(journal(s, 1), 11 << 20)),
    "swapped": (0, lambda s: swap(journal(s, 0), journal(s, 1))),
    "a copy of an older one in its place": (
        1,
        lambda s: journal(s, 1).write_bytes(journal(s, 0).read_bytes()),
    ),
    "the newest and the spare removed": (NEWEST, lambda s: unlink(journal(s, NEWEST), journal(s, 3))),
    "the newest removed, the spare left": (NEWEST, lambda s: journal(s, NEWEST).unlink()),
    "one in the middle removed": (1, lambda s: journal(s, 1).unlink()),
    "a spare in place of one in the middle": (
        2,
        lambda s: make_empty(journal(s, 1), 1),
    ),  # the error names the next one
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_fault_a_damaged_file_prevents_the_start(server: ServerProcess, damage: str) -> None:
    """transaction_log.md §20 33, 34: the start is refused, names the place, and leaves the files as they are."""
    number, inflict = DAMAGES[damage]
    inflict(server)
    left = {path: path.read_bytes() for path in server.journals()}
    said = server.start_refused()
    if "removed" in damage and "newest and" in damage:
        assert "acknowledged" in said
    else:
        assert journal(server, number).name in said, said
    assert {path: path.read_bytes() for path in server.journals()} == left


def in_turn(*steps: Callable[[], object]) -> None:
    for step in steps:
        step()


def add_spares(server: ServerProcess) -> None:
    """Add two spares to those that the server has made."""
    journal(server, 4).write_bytes(bytes(10 << 20))
    journal(server, 5).write_bytes(bytes(10 << 20))
    make_empty(journal(server, 4), 4)
    make_empty(journal(server, 5), 5)


SPARE_DAMAGES: dict[str, Callable[[ServerProcess], object]] = {
    "header zeroed": lambda s: zero(journal(s, 4), 0, 4096),
    "header torn": lambda s: journal(s, 4).write_bytes(b"rubbish".ljust(10 << 20, b"\0")),
    "last header torn": lambda s: journal(s, 5).write_bytes(b"rubbish".ljust(10 << 20, b"\0")),
    "shortened": lambda s: cut_to(journal(s, 4), 1 << 20),
    "emptied": lambda s: cut_to(journal(s, 4), 0),
    "removed": lambda s: journal(s, 4).unlink(),
    "removed, and the next one torn": lambda s: in_turn(
        lambda: journal(s, 4).unlink(), lambda: cut_to(journal(s, 5), 9)
    ),
}


@pytest.mark.parametrize("damage", SPARE_DAMAGES)
def test_fault_spares_behind_a_whole_one_are_made_again(server: ServerProcess, damage: str) -> None:
    """transaction_log.md §20 34: files without messages are not damage; the log goes on over all of them."""
    add_spares(server)
    SPARE_DAMAGES[damage](server)
    server.start()
    assert server.log.find("1D-0022")
    more = numbered_bodies(3000, start=TOTAL + 1, padding_bytes=10_000)
    with Peers("writer") as peers:
        peers.logged_on(server).publish_persisted("t1", more, TOTAL + 1)
    server.kill_all()
    server.start()
    assert [body for _, body in replay(server, "t1")] == BODIES + more


NO_SPARES: dict[str, Callable[[ServerProcess], object]] = {
    "bytes behind a torn header": lambda s: journal(s, 4).write_bytes(
        bytes(9 << 20) + b"x" + bytes((1 << 20) - 1)
    ),
    "a used one behind the gap": lambda s: in_turn(
        lambda: journal(s, 4).unlink(), lambda: make_empty(journal(s, 5), 5, in_use=True)
    ),
    "a gap right behind those in use": lambda s: journal(s, 3).unlink(),
}


@pytest.mark.parametrize("damage", NO_SPARES)
def test_fault_a_file_that_may_hold_messages_is_not_removed(server: ServerProcess, damage: str) -> None:
    """transaction_log.md §20 34."""
    add_spares(server)
    NO_SPARES[damage](server)
    left = {path: path.read_bytes() for path in server.journals()}
    server.start_refused()
    assert {path: path.read_bytes() for path in server.journals()} == left


def remove(pattern: str) -> Callable[[ServerProcess], None]:
    def act(server: ServerProcess) -> None:
        for path in server.journal_directory.glob(pattern):
            path.unlink()

    return act


def overwrite(pattern: str, content: Callable[[bytes], bytes]) -> Callable[[ServerProcess], None]:
    def act(server: ServerProcess) -> None:
        for path in server.journal_directory.glob(pattern):
            path.write_bytes(content(path.read_bytes()))

    return act


def flipped(content: bytes) -> bytes:
    image = bytearray(content)
    image[random.Random(5).randrange(len(image))] ^= 1
    return bytes(image)


HELPERS: dict[str, Callable[[ServerProcess], object]] = {
    "no indexes": remove("*.index"),
    "empty indexes": overwrite("*.index", lambda content: b""),
    "torn indexes": overwrite("*.index", lambda content: content[: len(content) // 2]),
    "a byte changed in the indexes": overwrite("*.index", flipped),
    "swapped indexes": lambda s: swap(
        journal(s, 0).with_suffix(".index"), journal(s, 1).with_suffix(".index")
    ),
    "zeros in the indexes": overwrite("*.index", lambda content: bytes(len(content))),
    "no watermark": remove("*.durable"),
    "a torn watermark": overwrite("*.durable", lambda content: content[:8] + struct.pack("<QQ", 1 << 60, 5)),
    "an empty watermark": overwrite("*.durable", lambda content: b""),
    "rubbish of an unfinished journal": lambda s: (
        s.journal_directory / "Test.0000000009.journal.new"
    ).write_bytes(b"x" * 999),
    "no spare": lambda s: journal(s, 3).unlink(),
}


@pytest.mark.parametrize("damage", HELPERS)
def test_fault_helper_files_do_not_matter(server: ServerProcess, damage: str) -> None:
    """transaction_log.md §3, §22 63: replay, bookmarks and duplicate detection are as before."""
    HELPERS[damage](server)
    server.start()
    stored = replay(server, "t1")
    assert [body for _, body in stored] == BODIES
    with Peers("again") as peers:
        client = peers.open(server)
        assert client.logon("writer-1")["s"] == TOTAL
        client.publish_persisted("t1", BODIES[-3:], TOTAL - 2)
    assert replay(server, "t1", start=stored[-1][0]) == [], "a duplicate was recorded"
    # A bookmark in each journal that has an index: before and after a start with indexes that were made again.
    assert replay(server, "t1", start=stored[1800][0]) == stored[1801:]
    server.kill_all()
    server.start()
    assert replay(server, "t1", start=stored[900][0]) == stored[901:]


def test_fault_indexes_of_another_log_are_not_used(server: ServerProcess) -> None:
    """The journals were removed and their indexes left: a new log of the same shape must not use them as its own."""
    remove("*.journal")(server)
    server.start()
    bodies = numbered_bodies(TOTAL, start=5001, padding_bytes=10_000)
    with Peers("other") as peers:
        peers.logged_on(server).publish_persisted("t1", bodies, 1)
    server.kill_all()
    server.start()
    assert [body for _, body in replay(server, "t1")] == bodies
    with Peers("writer") as peers:
        assert peers.open(server).logon("writer-1")["s"] == 0
    with Peers("other") as peers:
        assert peers.open(server).logon("other-1")["s"] == TOTAL


def test_fault_a_changed_journal_size_keeps_the_log_whole(server: ServerProcess) -> None:
    """Spares of the old size are made again, larger and smaller; used journals keep their size."""
    options = server.options
    try:
        for size in ("15MB", "10MB"):
            server.options = type(options)(**{**vars(options), "journal_size": size})
            server.start()
            with Peers(f"size-{size}") as peers:
                peers.logged_on(server).publish_persisted("t1", BODIES[:1200], 1)
            server.kill_all()
    finally:
        server.options = options
    server.start()
    assert [body for _, body in replay(server, "t1")] == BODIES + 2 * BODIES[:1200]
