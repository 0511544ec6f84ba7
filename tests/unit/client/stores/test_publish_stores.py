"""All publish stores against one model of their interface, in any order of calls."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from amps.client import (
    Command,
    FilePublishStore,
    HybridPublishStore,
    MemoryPublishStore,
    PublishStore,
    PublishStoreGapException,
    StoreFullException,
)
from tests.unit.client.stores.damage import START, frame_of, frames_of

STORES: dict[str, Callable[..., Any]] = {
    "memory": lambda path, **options: MemoryPublishStore(**options),
    "file": lambda path, **options: FilePublishStore(path, segment_bytes=4096, sync="never", **options),
    "hybrid": lambda path, **options: HybridPublishStore(
        path, memory_messages=6, low_watermark=2, segment_bytes=4096, sync="never", **options
    ),
}


class StoreMachine(RuleBasedStateMachine):
    """The model: the frames kept, the next number, and the last number that is persisted."""

    kind = ""
    parent: Path

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory(dir=self.parent)
        self.kept: dict[int, bytes] = {}
        self.next = 1
        self.persisted = 0
        self.told: list[int] = []
        self.heard: list[int] = []
        self.store = self.opened()

    def opened(self) -> Any:
        store = STORES[self.kind](Path(self.directory.name) / "s", error_on_publish_gap=True)
        store.open("me")
        store.open("me")
        store.set_discard_listener(self.heard.append)
        return store

    @rule(body=st.binary(max_size=300), times=st.integers(1, 20))
    def append(self, body: bytes, times: int) -> None:
        for _ in range(times):
            assert self.store.append(START, body) == self.next
            self.kept[self.next] = frame_of(self.next, body)
            self.next += 1

    @rule(body=st.binary(max_size=9000))
    def append_large(self, body: bytes) -> None:
        self.append(body, 1)

    @rule(data=st.binary(max_size=50), sequence=st.none() | st.integers(0, 100))
    def store_command(self, data: bytes, sequence: int | None) -> None:
        command = Command("publish", "t", data=data, sequence=sequence)
        assert self.store.store(command) == self.next == command.sequence
        self.kept[self.next] = frame_of(self.next, data)
        found = self.store.find(self.next)
        assert (found.sequence, found.topic, found.data) == (self.next, "t", data)
        self.next += 1

    @rule(ahead=st.integers(-10, 40))
    def discard(self, ahead: int) -> None:
        number = self.persisted + ahead
        if number < self.persisted:
            with pytest.raises(PublishStoreGapException):
                self.store.discard_up_to(number)
            return
        self.store.discard_up_to(number)
        self.told.append(number)
        self.persisted = number
        self.next = max(self.next, number + 1)
        self.kept = {n: frame for n, frame in self.kept.items() if n > number}

    @precondition(lambda self: self.kind != "memory")
    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = self.opened()

    @rule(number=st.integers(0, 300))
    def find(self, number: int) -> None:
        got: list[tuple[bytes, int]] = []
        assert self.store.replay_single(lambda *told: got.append(told), number) == (number in self.kept)
        assert got == ([(self.kept[number], number)] if number in self.kept else [])
        assert (self.store.find(number) is not None) == (number in self.kept)
        self.store.sync(self.next - 1)

    @invariant()
    def agrees(self) -> None:
        store = self.store
        assert list(frames_of(store).items()) == list(self.kept.items())
        assert store.unpersisted_count() == len(self.kept)
        assert store.lowest_unpersisted() == min(self.kept, default=0)
        assert store.highest_unpersisted() == max(self.kept, default=0)
        assert store.last_persisted() == self.persisted
        assert self.heard == self.told

    def teardown(self) -> None:
        self.store.close()
        self.directory.cleanup()


@pytest.mark.parametrize("kind", STORES)
def test_a_publish_store_agrees_with_the_model(tmp_path: Path, kind: str) -> None:
    machine = type(f"{kind}Machine", (StoreMachine,), {"kind": kind, "parent": tmp_path})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=60,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("kind", STORES)
def test_client_57_a_full_store_refuses_and_uses_no_number(tmp_path: Path, kind: str) -> None:
    """client.md §21 57"""
    store: PublishStore = STORES[kind](tmp_path / "s", max_bytes=1000, on_full="raise")
    store.open("me")
    accepted = 0

    def fill() -> None:
        nonlocal accepted
        while accepted < 100:
            accepted = store.append(START, b"x" * 60)

    with pytest.raises(StoreFullException, match="of 1000 bytes"):
        fill()
    assert 7 <= accepted <= 10
    with pytest.raises(StoreFullException):
        store.append(START, b"")
    store.discard_up_to(2)
    assert store.append(START, b"x" * 5000) == accepted + 1
    with pytest.raises(StoreFullException):
        store.append(START, b"")
    store.discard_up_to(accepted + 1)
    assert store.append(START, b"") == accepted + 2
    store.close()


@pytest.mark.parametrize("kind", STORES)
def test_a_gap_is_ignored_unless_it_is_an_error(tmp_path: Path, kind: str) -> None:
    store: PublishStore = STORES[kind](tmp_path / "s")
    store.open("me")
    store.discard_up_to(10)
    store.discard_up_to(5)
    assert (store.last_persisted(), store.append(START, b"")) == (10, 11)
    store.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_bytes": 0},
        {"on_full": "drop"},
        {"segment_bytes": 10},
        {"segment_bytes": 2**32},
        {"sync": "sometimes"},
        {"sync_interval": 0},
        {"memory_messages": 0},
        {"low_watermark": 100_000},
    ],
)
def test_wrong_arguments_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must"):
        HybridPublishStore(tmp_path / "s", **wrong)
    assert not (tmp_path / "s").exists()
