"""The bookmark stores in one process: the algorithm, files that are damaged or full, adapters (client.md §7, §19.7)."""

import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from amps.client import (
    FileBookmarkStore,
    MemoryBookmarkStore,
    Message,
    RecoveryPoint,
    RingBookmarkStore,
    StoreCorruptException,
    StoreException,
)

END = "99991231T235959"


def message(bookmark: str | None, sub_id: str = "S") -> Message:
    header = {} if bookmark is None else {"bookmark": bookmark}
    return Message.parsed(b"", header, 0, sub_id=sub_id)


def receive(store: Any, *bookmarks: str, sub_id: str = "S") -> list[int]:
    """Deliver messages as the engine does; return the store numbers of those that are not duplicates."""
    numbers = []
    for bookmark in bookmarks:
        arrived = message(bookmark, sub_id)
        if not store.is_discarded(arrived):
            numbers.append(store.log(arrived))
    return numbers


def numbered(*numbers: int, publisher: int = 7) -> list[str]:
    return [f"{publisher}|{number}|" for number in numbers]


class Points:
    """An adapter that remembers."""

    def __init__(self) -> None:
        self.points: dict[str, str] = {}
        self.error: Exception | None = None
        self.closed = False

    def load(self) -> list[RecoveryPoint]:
        return [RecoveryPoint(*item) for item in self.points.items()]

    def update(self, point: RecoveryPoint) -> None:
        if self.error is not None:
            raise self.error
        self.points[point.sub_id] = point.bookmark

    def purge(self, sub_id: str | None = None) -> None:
        if sub_id is None:
            self.points.clear()
        else:
            self.points.pop(sub_id, None)

    def prune(self) -> None: ...

    def close(self) -> None:
        self.closed = True


@pytest.fixture(params=["memory", "file", "ring"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    made: Any = {
        "memory": MemoryBookmarkStore,
        "file": lambda: FileBookmarkStore(tmp_path / "bookmarks"),
        "ring": lambda: RingBookmarkStore(tmp_path / "bookmarks"),
    }[request.param]()
    yield made
    made.close()


def test_client_47_all_discarded_resumes_from_a_list_of_all_publishers(store: Any) -> None:
    """client.md §21 47"""
    numbers = receive(store, "1|1|", "2|8|", "1|2|", "2|9|")
    for number in numbers:
        store.discard("S", number)
    assert store.get_most_recent("S") == "1|2|,2|9|"
    assert store.get_oldest_seq("S") == 0


def test_discarding_out_of_order_moves_the_point_when_the_oldest_is_discarded(store: Any) -> None:
    """client.md §19.7: `discard` marks, then moves every leading discarded entry into the point"""
    numbers = receive(store, *numbered(1, 2, 3, 4))
    assert numbers == [1, 2, 3, 4]
    store.discard("S", 1)
    store.discard("S", 3)
    assert (store.get_most_recent("S"), store.get_oldest_seq("S")) == ("7|1|", 2)
    store.discard("S", 3)
    store.discard("S", 99)
    store.discard("other", 2)
    store.discard("S", 2)
    assert (store.get_most_recent("S"), store.get_oldest_seq("S")) == ("7|3|", 4)


def test_a_message_is_delivered_once_in_a_run_and_again_after_release(store: Any) -> None:
    """client.md §7: `is_discarded`, `log` of a known message, `released`"""
    assert receive(store, *numbered(1, 2, 2, 1)) == [1, 2]
    store.discard("S", 2)
    store.released("S")
    assert receive(store, *numbered(1, 2, 3, 1)) == [1, 3]
    assert receive(store, *numbered(1), sub_id="other") == [1]


def test_where_to_resume_while_nothing_is_discarded(store: Any) -> None:
    """client.md §19.7: newest received while all are of this run, then a range from the oldest undiscarded"""
    assert store.get_most_recent("S") is None
    receive(store, "1|1|", "2|5|", "1|2|")
    assert store.get_most_recent("S") == "1|2|,2|5|"
    store.released("S")
    assert store.get_most_recent("S") == f"[1|1|,2|5|:{END}]"
    receive(store, "1|1|", "2|5|")
    assert store.get_most_recent("S") == f"[1|1|,2|5|:{END}]"
    receive(store, "1|2|")
    assert store.get_most_recent("S") == "1|2|,2|5|"


def test_a_publisher_without_a_point_takes_part_in_the_range(store: Any) -> None:
    """client.md §19.7: another server may have another order, so each publisher's first message counts"""
    store.discard("S", receive(store, "1|1|", "2|5|")[0])
    assert store.get_most_recent("S") == "1|1|,2|5|"
    store.released("S")
    assert store.get_most_recent("S") == f"[1|1|,2|5|:{END}]"


def test_client_48_a_persisted_bookmark_counts_when_nothing_before_it_is_undiscarded(store: Any) -> None:
    """client.md §21 48 and §19.7"""
    store.persisted("S", "0")
    assert store.get_most_recent("S") is None
    store.persisted("S", "9|100|")
    assert store.get_most_recent("S") == "9|100|"
    first, second = receive(store, *numbered(1, 2))
    store.persisted("S", "9|200|")
    (third,) = receive(store, *numbered(3))
    store.persisted("S", "9|300|,8|1|")
    store.persisted("S", "9|250|")
    store.discard("S", second)
    assert store.get_most_recent("S") == "9|100|,7|3|"
    store.discard("S", first)
    assert store.get_most_recent("S") == "9|200|,7|2|"
    store.discard("S", third)
    assert store.get_most_recent("S") == "9|300|,7|3|,8|1|"


def test_a_message_that_was_processed_gets_no_number(store: Any) -> None:
    """It would stop the point for ever: no application gets it to discard it."""
    for number in receive(store, *numbered(1, 2)):
        store.discard("S", number)
    assert store.log(message("7|1|")) == 0
    assert store.get_oldest_seq("S") == 0


def test_a_message_without_a_bookmark_is_not_recorded(store: Any) -> None:
    for bookmark in (None, "", "0", "x|y|", "20240101T000000Z"):
        assert not store.is_discarded(message(bookmark))
        assert store.log(message(bookmark)) == 0
    store.discard("S", 0)
    assert store.get_most_recent("S") is None


def test_purging_forgets_and_never_reuses_a_number(store: Any) -> None:
    """A number from before must not discard a message that arrives after."""
    old = receive(store, *numbered(1, 2))
    receive(store, *numbered(1), sub_id="other")
    store.purge("S")
    assert (store.get_most_recent("S"), store.get_most_recent("other")) == (None, "7|1|")
    new = receive(store, *numbered(1, 2))
    assert not set(old) & set(new)
    store.discard("S", old[0])
    assert store.get_oldest_seq("S") == new[0]
    store.purge()
    assert (store.get_most_recent("S"), store.get_most_recent("other")) == (None, None)


# Adapters


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_an_adapter_gets_each_point_and_a_new_store_resumes_there(tmp_path: Path, kind: str) -> None:
    """client.md §7: recovery points outside the store"""
    points = Points()

    def opened() -> Any:
        if kind == "memory":
            return MemoryBookmarkStore(adapter=points)
        return FileBookmarkStore(tmp_path / f"b{len(list(tmp_path.iterdir()))}", adapter=points)

    first = opened()
    numbers = receive(first, *numbered(1, 2, 3))
    assert points.points == {"S": f"[7|1|:{END}]"}
    second = opened()
    assert second.get_most_recent("S") == f"[7|1|:{END}]"
    first.discard("S", numbers[0])
    first.discard("S", numbers[2])
    assert points.points == {"S": "7|1|"}
    first.persisted("Q", "9|1|")
    assert points.points["Q"] == "9|1|"
    third = opened()
    assert third.get_most_recent("S") == "7|1|"
    assert receive(third, *numbered(1, 2, 3)) == [1, 2]
    third.purge("S")
    assert points.points == {"Q": "9|1|"}
    for made in (first, second, third):
        made.close()
    assert points.closed


def test_a_point_that_an_adapter_refuses_is_passed_on_later(tmp_path: Path) -> None:
    """The application learns of it from `discard`; receiving goes on."""
    points = Points()
    points.error = StoreException("no")
    for made in (MemoryBookmarkStore(adapter=points), FileBookmarkStore(tmp_path / "b", adapter=points)):
        points.error = StoreException("no")
        numbers = receive(made, *numbered(1, 2))
        made.persisted("S", "9|9|")
        with pytest.raises(StoreException, match="no"):
            made.discard("S", numbers[0])
        points.error = None
        made.discard("S", numbers[0])
        assert points.points == {"S": "7|1|"}
        points.purge()
        made.close()


# Files


def saved(path: Path) -> FileBookmarkStore:
    return FileBookmarkStore(path, sync="never")


def test_client_45_a_file_keeps_what_was_discarded_out_of_order(tmp_path: Path) -> None:
    """client.md §21 45, without a server: the store is opened again without having been closed"""
    path = tmp_path / "b"
    with forgotten(lambda: saved(path)) as store:
        numbers = receive(store, *numbered(*range(1, 11)))
        for number in (*numbers[:4], numbers[5]):
            store.discard("S", number)
    again = saved(path)
    assert again.get_most_recent("S") == "7|4|"
    delivered = [n for n in range(1, 13) if receive(again, *numbered(n))]
    assert delivered == [5, 7, 8, 9, 10, 11, 12]
    again.close()


def test_client_48_one_undiscarded_message_comes_again_and_nothing_before_it(tmp_path: Path) -> None:
    """client.md §21 48"""
    for kind in (FileBookmarkStore, RingBookmarkStore):
        path = tmp_path / kind.__name__
        with forgotten(lambda kind=kind, path=path: kind(path)) as store:
            receive(store, *numbered(50))
        again = kind(path)
        assert again.get_most_recent("S") == f"[7|50|:{END}]"
        assert len(receive(again, *numbered(50, 51))) == 2
        again.close()


@contextmanager
def forgotten(opened: Callable[[], Any]) -> Iterator[Any]:
    """Use a store that gets no chance to write at its end: its file becomes again what it was then."""
    store = opened()
    yield store
    log = store._log if hasattr(store, "_log") else store._store._feed._adapter._log
    kept = Path(log.path).read_bytes()
    store.close()
    Path(log.path).write_bytes(kept)


def test_client_49_prune_makes_the_file_smaller_and_changes_nothing(tmp_path: Path) -> None:
    """client.md §21 49"""
    path = tmp_path / "b"
    store = saved(path)
    numbers = receive(store, *numbered(*range(1, 1001)))
    for number in (*numbers[:900], numbers[950]):
        store.discard("S", number)
    store.persisted("S", "9|9|")
    before = os.path.getsize(path)
    store.prune()
    assert os.path.getsize(path) < before / 5
    assert store.get_most_recent("S") == "7|900|"
    store.close()
    again = saved(path)
    assert again.get_most_recent("S") == "7|900|"
    assert len(receive(again, *numbered(*range(890, 1001)))) == 99
    for number in range(901, 1001):
        again.discard("S", number)
    assert again.get_most_recent("S") == "7|1000|,9|9|"
    again.close()


def test_pruning_keeps_the_place_of_a_persisted_bookmark(tmp_path: Path) -> None:
    """client.md §19.7: it counts once nothing received before it is undiscarded, whatever came after it"""
    store = saved(tmp_path / "b")
    (first,) = receive(store, "7|1|")
    store.persisted("S", "9|100|")
    receive(store, "7|2|")
    store.prune()
    store.close()
    again = saved(tmp_path / "b")
    again.discard("S", first)
    assert again.get_most_recent("S") == "7|1|,9|100|"
    again.close()


@pytest.mark.parametrize("kind", [FileBookmarkStore, RingBookmarkStore])
def test_a_file_stays_short_by_itself(tmp_path: Path, kind: Any) -> None:
    """client.md §19.7: rewritten when the dead share passes `prune_ratio`"""
    store = kind(tmp_path / "b", sync="never")
    for number in range(1, 20_001):
        store.discard("S", *receive(store, f"7|{number}|"))
    assert os.path.getsize(tmp_path / "b") < 500_000
    store.close()
    again = kind(tmp_path / "b")
    assert again.get_most_recent("S") == "7|20000|"
    again.close()


def test_a_file_is_pruned_only_if_that_is_worthwhile(tmp_path: Path) -> None:
    """client.md §19.7: `prune_ratio`"""
    store = FileBookmarkStore(tmp_path / "b", sync="never", prune_ratio=1)
    for number in range(1, 20_001):
        store.discard("S", *receive(store, f"7|{number}|"))
    assert os.path.getsize(tmp_path / "b") > 900_000
    store.close()


@pytest.mark.parametrize("kind", [FileBookmarkStore, RingBookmarkStore])
def test_client_49_a_torn_end_is_dropped_at_each_length(tmp_path: Path, kind: Any) -> None:
    """client.md §21 49"""
    path = tmp_path / "b"
    store = kind(path, sync="never")
    numbers = receive(store, *numbered(1, 2, 3))
    for number in numbers[:2]:
        store.discard("S", number)
    store.close()
    data = path.read_bytes()
    reached = 0
    for length in range(8, len(data) + 1):
        path.write_bytes(data[:length])
        again = kind(path)
        recent = again.get_most_recent("S")
        point = 0 if recent is None or recent.startswith("[") else int(recent.split("|")[1])
        assert point in (reached, reached + 1)
        reached = point
        again.close()
        assert path.stat().st_size <= length
    assert reached == 2
    path.write_bytes(data + bytes(100))
    again = kind(path)
    assert again.get_most_recent("S") == "7|2|"
    again.close()


@pytest.mark.parametrize("kind", [FileBookmarkStore, RingBookmarkStore])
def test_client_49_a_damaged_middle_is_refused_at_each_byte(tmp_path: Path, kind: Any) -> None:
    """client.md §21 49"""
    path = tmp_path / "b"
    store = kind(path, sync="never")
    for number in receive(store, *numbered(1, 2, 3)):
        store.discard("S", number)
    store.close()
    data = path.read_bytes()
    last = max(data.rfind(mark) for mark in (b"d\x0b\0\0\0", b"p\x07\0\0\0"))
    assert last > 8
    for at in range(last):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(StoreCorruptException, match=str(path)):
            kind(path)
        assert path.read_bytes() == damaged
    path.write_bytes(data)
    kind(path).close()


@pytest.mark.parametrize("kind", [FileBookmarkStore, RingBookmarkStore])
def test_a_second_store_on_the_same_file_is_refused(tmp_path: Path, kind: Any) -> None:
    store = kind(tmp_path / "b")
    with pytest.raises(StoreException, match="open already"):
        kind(tmp_path / "b")
    store.discard("S", *receive(store, "7|1|"))
    store.close()
    store.close()
    with pytest.raises(StoreException, match="closed"):
        store.prune()
    again = kind(tmp_path / "b")
    assert again.get_most_recent("S") == "7|1|"
    again.close()


def test_a_child_cannot_use_the_store_of_its_parent(tmp_path: Path) -> None:
    """Two writers of one file would destroy it."""
    path = tmp_path / "b"
    store = saved(path)
    first, second = receive(store, *numbered(1, 2))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            store.discard("S", first)
        except StoreException as error:
            code = 0 if "fork" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    store.discard("S", first)
    store.discard("S", second)
    store.close()
    again = saved(path)
    assert again.get_most_recent("S") == "7|2|"
    again.close()


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file may become longer than `size` bytes: a write up to there is short, the next one fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


@pytest.mark.parametrize("room", [0, 1, 9, 60, 90, 120, 300])
def test_a_full_disk_loses_nothing_and_the_store_works_again_with_room(tmp_path: Path, room: int) -> None:
    """A discard that cannot be written is a StoreException; receiving goes on."""
    path = tmp_path / "b"
    store = saved(path)
    store.discard("S", *receive(store, "7|1|"))
    accepted, refused = [1], []
    with full_disk(room):
        for number in range(2, 30):
            (seq,) = receive(store, f"7|{number}|")
            store.persisted("S", f"9|{number}|")
            if number % 2 == 0:
                try:
                    store.discard("S", seq)
                    accepted.append(number)
                except StoreException:
                    refused.append(number)
        assert refused
        assert len(os.listdir(tmp_path)) == 2
    crashed = tmp_path / "copy"
    crashed.write_bytes(path.read_bytes())
    survivor = saved(crashed)
    again = {number for number in range(1, 30) if receive(survivor, f"7|{number}|")}
    assert again >= set(range(3, 30, 2))
    assert not again & set(accepted)
    survivor.close()
    store.prune()
    store.discard("S", 2)
    store.close()
    last = saved(path)
    assert [number for number in range(1, 30) if receive(last, f"7|{number}|")] == list(range(3, 30, 2))
    last.close()


@pytest.mark.parametrize("room", [0, 1, 9])
def test_a_ring_store_works_again_when_there_is_room(tmp_path: Path, room: int) -> None:
    """A discard that cannot be written is a StoreException; receiving goes on."""
    path = tmp_path / "b"
    store = RingBookmarkStore(path, sync="never")
    store.discard("S", *receive(store, "7|1|"))
    with full_disk(room):
        for number in range(2, 10):
            (seq,) = receive(store, f"7|{number}|")
            with pytest.raises(StoreException):
                store.discard("S", seq)
    crashed = tmp_path / "copy"
    crashed.write_bytes(path.read_bytes())
    survivor = RingBookmarkStore(crashed)
    assert survivor.get_most_recent("S") == "7|1|"
    survivor.close()
    store.prune()
    store.close()
    again = RingBookmarkStore(path)
    assert again.get_most_recent("S") == "7|9|"
    again.close()


def test_arguments_are_checked(tmp_path: Path) -> None:
    for wrong in ({"sync": "often"}, {"sync_interval": 0}, {"prune_ratio": 0}, {"prune_ratio": 1.1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            FileBookmarkStore(tmp_path / "b", **wrong)  # type: ignore[arg-type]
    with pytest.raises(StoreException, match="missing"):
        FileBookmarkStore(tmp_path / "missing" / "b")
    (tmp_path / "other").write_text("something else entirely")
    with pytest.raises(StoreCorruptException, match="not the file"):
        FileBookmarkStore(tmp_path / "other")


@pytest.mark.parametrize("pruned", [False, True])
@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_message_that_arrives_after_a_later_one_is_not_passed_over(kind: str, pruned: bool, tmp_path: Path) -> None:
    """A replaced subscription may begin earlier than the one before it."""
    store: Any = MemoryBookmarkStore() if kind == "memory" else FileBookmarkStore(tmp_path / "s")
    third, _second = receive(store, "7|3|", "7|2|")
    store.discard("S", third)
    assert store.get_most_recent("S") == "7|1|"
    if kind == "file":
        if pruned:
            store.prune()
        store.close()
        store = FileBookmarkStore(tmp_path / "s")
    else:
        store.released("S")
    assert not store.is_discarded(message("7|2|"))
    assert kind == "file" or store.is_discarded(message("7|3|"))
    second = store.log(message("7|2|"))
    store.discard("S", second)
    assert store.get_most_recent("S") == ("7|3|" if kind == "memory" or not pruned else "7|2|")
    assert receive(store, "7|4|")
    store.close()


@pytest.mark.parametrize("kind", [FileBookmarkStore, RingBookmarkStore])
def test_a_run_begins_at_the_lowest_number_that_is_not_discarded(kind: Any, tmp_path: Path) -> None:
    """It arrived later than a higher one, because a subscription was replaced by one that begins earlier."""
    with forgotten(lambda: kind(tmp_path / "b")) as store:
        receive(store, "7|3|", "7|2|")
        assert store.get_most_recent("S") == "7|2|"
    again = kind(tmp_path / "b")
    assert again.get_most_recent("S") == f"[7|2|:{END}]"
    assert len(receive(again, "7|2|", "7|3|")) == 2
    again.close()


def test_a_persisted_bookmark_does_not_pass_over_a_message_that_arrives_after_it(tmp_path: Path) -> None:
    store = FileBookmarkStore(tmp_path / "s")
    (first,) = receive(store, "7|1|")
    store.persisted("S", "8|50|")
    receive(store, "8|45|")
    store.discard("S", first)
    assert store.get_most_recent("S") == "7|1|,8|44|"
    store.prune()
    store.close()
    store = FileBookmarkStore(tmp_path / "s")
    assert store.get_most_recent("S") == "7|1|,8|44|"
    assert not store.is_discarded(message("8|45|"))
    store.close()


def test_client_48_a_persisted_bookmark_survives_the_process(tmp_path: Path) -> None:
    """client.md §21 48: nothing matched, and the process died"""
    path = tmp_path / "b"
    with forgotten(lambda: saved(path)) as store:
        store.persisted("S", "9|5|")
    again = saved(path)
    assert again.get_most_recent("S") == "9|5|"
    again.close()


def test_client_49_records_after_a_torn_end_are_found_again(tmp_path: Path) -> None:
    """client.md §21 49: what was torn is removed before anything is appended"""
    path = tmp_path / "b"
    store = saved(path)
    numbers = receive(store, *numbered(1, 2, 3))
    store.discard("S", numbers[0])
    store.close()
    path.write_bytes(path.read_bytes()[:-1])
    store = saved(path)
    store.discard("S", numbers[1])
    store.discard("S", numbers[0])
    store.close()
    again = saved(path)
    assert again.get_most_recent("S") == "7|2|"
    again.close()
