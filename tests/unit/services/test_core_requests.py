"""Requests to the core about journals: long answers, refusals, silence, answers to earlier requesters."""

import asyncio
from typing import Any

import msgpack
import pytest

from amps.server.services import requests
from amps.server.services.core_requests import CoreRefused
from tests.support.services import FakeCore

JOURNAL = {"number": 1, "path": "/j/n.0000000001.journal"}


def ask(answers: list[list[Any]], verb: str = "list") -> Any:
    async def body() -> Any:
        core = FakeCore(lambda verb, rest: answers)
        asking = core.serve()
        try:
            return await (asking.journals() if verb == "list" else asking.mark(verb, {"age_s": 1.0}))
        finally:
            core.close()

    return asyncio.run(body())


def test_a_list() -> None:
    assert ask([["ok", [JOURNAL]]]) == [JOURNAL]


def test_a_list_in_parts() -> None:
    assert ask([["more", [JOURNAL]], ["more", [JOURNAL, JOURNAL]], ["ok", [JOURNAL]]]) == [JOURNAL] * 4


def test_the_numbers_of_marked_journals() -> None:
    assert ask([["ok", [1, 2]]], "archive") == [1, 2]


def test_a_refusal() -> None:
    with pytest.raises(CoreRefused, match="no JournalArchiveDirectory"):
        ask([["error", "no JournalArchiveDirectory"]], "archive")


def test_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "ANSWER_TIMEOUT_S", 0.1)
    with pytest.raises(CoreRefused, match="has not answered"):
        ask([])


def test_an_answer_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "ANSWER_PARTS_MAX", 2)
    with pytest.raises(CoreRefused, match="too long"):
        ask([["more", [JOURNAL] * 3]])


def test_answers_to_an_earlier_process_are_dropped() -> None:
    """The channel outlives the process that used it before."""

    async def body() -> None:
        core = FakeCore()
        core.journals = [JOURNAL]
        core.ours.send(msgpack.packb([1, "ok", ["stale"]]))
        asking = core.serve()
        try:
            assert await asking.journals() == [JOURNAL]
        finally:
            core.close()

    asyncio.run(body())


def test_answers_reach_their_requesters() -> None:
    async def body() -> None:
        core = FakeCore(lambda verb, rest: [["ok", [7 if verb == "remove" else 8]]])
        asking = core.serve()
        try:
            found = await asyncio.gather(*(asking.mark(verb, {}) for verb in ("remove", "compress") * 20))
            assert found == [[7], [8]] * 20
        finally:
            core.close()

    asyncio.run(body())


def test_simultaneous_requests_are_sent_once() -> None:
    """Hundreds of HTTP requests may arrive at once, and the core need not answer each one."""

    async def body() -> None:
        core = FakeCore()
        core.journals = [JOURNAL]
        asking = core.serve()
        try:
            assert await asyncio.gather(*(asking.journals() for _ in range(100))) == [[JOURNAL]] * 100
            assert len(core.asked) == 1
            core.refusal = "not now"
            for answer in await asyncio.gather(
                *(asking.journals() for _ in range(5)), return_exceptions=True
            ):
                assert isinstance(answer, CoreRefused)
            core.refusal = None
            assert await asking.journals() == [JOURNAL]
            assert len(core.asked) == 3
        finally:
            core.close()

    asyncio.run(body())
