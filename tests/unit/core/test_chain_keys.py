"""The key generator for chains of messages, and its file (sow.md §3.1)."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amps._core.sow.shaping import KeyMaker
from amps.journal.disk import Disk
from amps.messages import make_message_types, standard_settings
from amps.server.core.chain_file import BadChainFile, ChainFile
from amps.server.core.chain_keys import NONE, ChainKeys, Link

MISSING = 10**9
JSON = make_message_types(standard_settings().values())["json"]
HEADER_BYTES = 16
LINK_BYTES = 32


def resolved(chains: ChainKeys, *messages: tuple[int, ...]) -> list[int]:
    """The keys of messages: the primary, then the secondaries."""
    return [
        chains.resolve(primary, secondaries, MISSING, txid)
        for txid, (primary, *secondaries) in enumerate(messages, 1)
    ]


# --- the rule ---


def test_a_message_without_secondaries_heads_a_chain_or_belongs_to_its_own() -> None:
    assert resolved(ChainKeys(), (1,), (2, 0), (1,), (2,)) == [1, 2, 1, 2]


def test_messages_that_name_earlier_ones_are_one_record() -> None:
    assert resolved(ChainKeys(), (1, 0), (2, 1), (3, 2), (4, 1), (3, 0), (9, 0)) == [1, 1, 1, 1, 1, 9]


def test_an_unseen_secondary_heads_the_chain() -> None:
    chains = ChainKeys()
    assert resolved(chains, (5, 4), (4, 0), (5,), (6, 5)) == [4, 4, 4, 4]
    assert resolved(ChainKeys(), (5, 4, 3), (3,), (4,), (7, 3)) == [4, 4, 4, 4]


def test_a_message_that_names_two_chains_is_refused_and_changes_nothing() -> None:
    """sow.md §25, 67."""
    for validation in (False, True):
        chains = ChainKeys(validation)
        assert resolved(chains, (1,), (9,)) == [1, 9]
        chains.take_new_links()
        assert chains.resolve(10, (1, 9), MISSING, 3) == NONE
        assert chains.take_new_links() == []
        assert chains.resolve(10, (), MISSING, 4) == 10


def test_secondaries_of_one_chain_are_no_conflict() -> None:
    chains = ChainKeys()
    assert resolved(chains, (1,), (2, 1), (3, 1, 2), (4, 0, 3), (5, 2, 8), (8,)) == [1, 1, 1, 1, 1, 1]


def test_an_own_identifier_of_another_chain() -> None:
    """Option Validation: in another order these would have been one chain."""
    messages = ((1,), (5,), (5, 1), (6, 5))
    assert resolved(ChainKeys(), *messages) == [1, 5, 1, 1]
    chains = ChainKeys(validation=True)
    assert resolved(chains, *messages) == [1, 5, NONE, 5]


def test_messages_without_identifiers() -> None:
    chains = ChainKeys()
    assert chains.resolve(NONE, (), MISSING, 1) == MISSING
    assert chains.resolve(NONE, (NONE, NONE), MISSING, 2) == MISSING
    assert len(chains) == 0
    assert chains.resolve(NONE, (7,), MISSING, 3) == 7
    assert chains.resolve(8, (NONE, 7), MISSING, 4) == 7
    assert [link.identifier for link in chains.take_new_links()] == [7, 8]


def test_links_are_handed_out_once_in_order() -> None:
    chains = ChainKeys()
    resolved(chains, (1,), (3, 2), (3, 2))
    assert chains.take_new_links() == [Link(1, 1, 1), Link(2, 2, 2), Link(3, 2, 2)]
    assert chains.take_new_links() == []


def test_the_example_of_the_specification() -> None:
    """sow.md §3.1, §25, 67."""
    maker = KeyMaker(b"docs", [(b"doc",), (b"parent",), (b"other",)], JSON.extractor(), generator="chaining")
    chains = ChainKeys()

    def key(message: bytes) -> int:
        texts = maker.fields.texts(message)
        assert texts is not None
        primary, *others = (maker.text_key(text) if text else NONE for text in texts)
        return chains.resolve(primary, others, maker.text_key(b""), 1)

    first = key(b'{"doc":1,"s":"new"}')
    assert first == maker.text_key(b"1")
    assert key(b'{"doc":2,"parent":1,"o":"x"}') == first
    assert key(b'{"doc":3,"parent":2,"o":"y"}') == first
    assert key(b'{"doc":4,"parent":1,"s":"wait"}') == first
    assert key(b'{"doc":9}') not in (first, NONE)
    assert key(b'{"doc":10,"parent":1,"other":9}') == NONE


MESSAGES = st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=4).map(tuple), max_size=40)


@given(MESSAGES, st.booleans(), st.data())
def test_a_restart_changes_no_key(
    messages: list[tuple[int, ...]], validation: bool, data: st.DataObject
) -> None:
    """Any part of the links, and the messages from the last of them on, give the same keys and the same state."""
    chains = ChainKeys(validation)
    keys = resolved(chains, *messages)
    links = chains.take_new_links()
    kept = links[: data.draw(st.integers(0, len(links)))]
    begin = kept[-1].txid - 1 if kept else 0
    again = ChainKeys(validation, kept)
    for txid, (primary, *secondaries) in list(enumerate(messages, 1))[begin:]:
        assert again.resolve(primary, secondaries, MISSING, txid) == keys[txid - 1]
    assert [*kept, *again.take_new_links()][-1:] == links[-1:]
    assert len(again) == len(chains)


# --- the file ---


def opened(path: Path, definition: int = 7, up_to: int | None = None, disk: Disk | None = None) -> ChainFile:
    return ChainFile(disk or Disk(), path, definition, up_to)


LINKS = [Link(2**64 - 1, 5, 10), Link(5, 5, 10), Link(6, 5, 12)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with LINKS."""
    file = opened(tmp_path / "chains")
    assert (file.links, file.known_to, file.lost_bytes) == ([], 0, 0)
    file.append(LINKS[:2])
    file.append(LINKS[2:])
    file.sync()
    file.close()
    return file.path


def read(path: Path, up_to: int | None = None) -> tuple[list[Link], int, int]:
    file = opened(path, up_to=up_to)
    file.close()
    return file.links, file.known_to, file.lost_bytes


def test_links_survive(path: Path) -> None:
    assert read(path) == (LINKS, 11, 0)
    assert path.stat().st_size == HEADER_BYTES + 3 * LINK_BYTES


def test_a_mark_tells_that_later_messages_made_no_links(path: Path) -> None:
    file = opened(path)
    file.append([Link(9, 9, 20)], known_to=30)
    assert file.known_to == 30
    file.close()
    assert read(path) == ([*LINKS, Link(9, 9, 20)], 30, 0)


def test_messages_that_the_log_lost_are_forgotten(path: Path) -> None:
    assert read(path, up_to=11) == (LINKS[:2], 9, LINK_BYTES - 4)
    assert read(path) == (LINKS[:2], 9, 0)


def test_the_file_torn_at_any_byte(path: Path) -> None:
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        count = max(0, size - HEADER_BYTES) // LINK_BYTES
        links, _, _ = read(path)
        assert links == LINKS[:count]
        file = opened(path)
        file.append(LINKS[count:])
        file.close()
        assert read(path)[0] == LINKS


def test_any_damaged_byte_cuts_the_file_off_there(path: Path) -> None:
    whole = path.read_bytes()
    for at in range(HEADER_BYTES, len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 0x40
        path.write_bytes(damaged)
        place = (at - HEADER_BYTES) % LINK_BYTES
        if place >= LINK_BYTES - 4:  # the unused zeros
            assert read(path)[0] == LINKS
            continue
        count = (at - HEADER_BYTES) // LINK_BYTES
        links, _, lost_bytes = read(path)
        assert links == LINKS[:count]
        assert lost_bytes > 0
        assert read(path)[2] == 0


def test_links_behind_a_cut_never_come_back(path: Path) -> None:
    """A whole link behind a damaged one must not count when a new link replaces the damaged one."""
    with path.open("r+b") as file:
        file.seek(HEADER_BYTES + LINK_BYTES)
        file.write(b"\xff")
    chains = opened(path)
    assert chains.links == LINKS[:1]
    chains.append([Link(50, 50, 50)])
    chains.close()
    assert read(path)[0] == [LINKS[0], Link(50, 50, 50)]


def test_a_link_counts_only_at_its_place(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: HEADER_BYTES + LINK_BYTES] + whole[HEADER_BYTES : HEADER_BYTES + LINK_BYTES])
    assert read(path)[0] == LINKS[:1]


@pytest.mark.parametrize("content", [b"", b"AMPS", bytes(HEADER_BYTES), bytes(200)])
def test_a_file_whose_creation_was_interrupted_is_begun_again(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "chains"
    path.write_bytes(content)
    file = opened(path)
    file.append(LINKS)
    file.close()
    assert read(path)[0] == LINKS


@pytest.mark.parametrize("at", range(HEADER_BYTES))
def test_a_damaged_beginning_is_an_error_that_changes_nothing(path: Path, at: int) -> None:
    damaged = bytearray(path.read_bytes())
    damaged[at] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(BadChainFile, match=r"chains is no file of chains.*; move it away"):
        opened(path)
    assert path.read_bytes() == damaged


def test_the_file_of_other_keys_is_an_error(path: Path) -> None:
    with pytest.raises(BadChainFile, match="chains of other fields or of another KeyDomain; move it away"):
        opened(path, definition=8)
    assert read(path)[0] == LINKS


def test_a_write_that_failed_can_be_repeated(path: Path) -> None:
    class FullDisk(Disk):
        full = False

        def write(self, descriptor: int, data: memoryview, offset: int, zeros: int = 0) -> None:
            super().write(descriptor, data[: LINK_BYTES + 5] if self.full else data, offset, zeros)
            if self.full:
                raise OSError(28, "No space left on device")

    disk = FullDisk()
    file = opened(path, disk=disk)
    more = [Link(100, 5, 13), Link(101, 5, 14), Link(102, 5, 15)]
    disk.full = True
    with pytest.raises(OSError, match="No space"):
        file.append(more, known_to=16)
    assert file.known_to == 11
    disk.full = False
    file.append(more[1:], known_to=16)
    file.close()
    assert read(path) == ([*LINKS, *more[1:]], 16, 0)


def test_no_descriptor_is_left_behind(path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    file = opened(path)
    file.close()
    file.close()
    with pytest.raises(BadChainFile):
        opened(path, definition=8)
    assert len(os.listdir("/proc/self/fd")) == before
