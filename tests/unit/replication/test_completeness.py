"""Word between instances that all of a log is there (replication.md 25.94)."""

import asyncio
import dataclasses
from types import SimpleNamespace
from typing import Any, cast

import pytest

from amps.server.replication import frames
from amps.server.replication.completeness import QUESTION_INTERVAL_S, Answers, Questions, partners
from amps.server.replication.frames import Frame, ProtocolError
from amps.server.replication.hello import Identity
from amps.server.replication.instance_config import Destination, InstanceConfig
from amps.server.replication.outgoing import Outgoing

OWN = Identity("M", "G", "uuid-m", "e", "r")


def peer(name: str, group: str = "G") -> Identity:
    return dataclasses.replace(OWN, name=name, group=group, uuid=f"uuid-{name}")


def config(name: str, *destinations: Destination) -> InstanceConfig:
    return InstanceConfig(name, "G", (), (), (), destinations)


def to(name: str | None, group: str | None = None) -> Destination:
    return Destination(name, group, None, ())


def test_nothing_is_told_before_the_whole_log_of_the_moment_of_the_question_was_sent() -> None:
    """25.94: also what was not durable at that moment, and waits for room in the window."""
    answers = Answers()
    assert not answers.due(sent=100), "nobody has asked"
    answers.asked(written=100)
    assert not answers.due(sent=99)
    with pytest.raises(ProtocolError):
        answers.asked(written=200)
    assert answers.due(sent=100)
    assert not answers.due(sent=300), "one answer for a question"
    answers.asked(written=300)
    assert answers.due(sent=300)


def test_an_answer_is_about_the_moment_of_the_question() -> None:
    """25.94: a frame may be on its way for minutes, behind others. What it says does not become newer by that."""
    questions = Questions()
    with pytest.raises(ProtocolError):
        questions.answered(9.0)
    assert questions.due(10.0)
    assert not questions.due(70.0), "the answer is on its way"
    assert questions.answered(71.0) == 61.0
    with pytest.raises(ProtocolError):
        questions.answered(71.0)
    assert questions.due(72.0)
    assert questions.answered(72.5) == 0.5
    assert not questions.due(72.0 + QUESTION_INTERVAL_S - 0.1)
    assert questions.due(72.0 + QUESTION_INTERVAL_S)


@pytest.mark.parametrize(
    ("there", "wanted"),
    [
        (None, ["B"]),
        (config("B"), []),
        (config("B", to("C")), []),
        (config("B", to("C"), to("M")), ["B"]),
        (config("B", to(None, "G")), ["B"]),
        (config("B", to("M", "H")), []),
    ],
)
def test_a_partner_is_a_destination_that_replicates_to_this_instance(
    there: InstanceConfig | None, wanted: list[str]
) -> None:
    """25.94: or whose configuration is not known. The log of another one will never be here."""
    known = {} if there is None else {"uuid-B": there}
    assert partners([peer("B")], known, [], OWN) == wanted
    assert partners([peer("B")], known, ["A"], OWN) == ["A", *wanted]
    assert partners([peer("B"), None], known, ["A"], OWN) is None


def test_a_source_answers_behind_the_last_record_that_was_in_its_log_when_it_was_asked() -> None:
    """25.94: the records that were not durable then are sent before the answer."""
    asyncio.run(_ask())


async def _ask() -> None:
    ends = [100, 300]
    sent = SimpleNamespace(position=90)

    def fill(durable: int, bytes_max: int) -> list[tuple[int, list[bytes]]]:
        if sent.position == durable:
            return []
        sent.position = durable
        return [(frames.DATA, [b"records"])]

    class Source:
        window = 1
        sent_txid = 1

        @property
        def sent_position(self) -> int:
            return int(sent.position)

    source = Source()
    cast(Any, source).fill = fill
    durable = [90]
    around = SimpleNamespace(durable=lambda: durable[0], log_end=lambda: ends[0], schedule=lambda: None)
    destination = SimpleNamespace(source=source, is_sync=False, connection=None)
    channel = SimpleNamespace(stream=0, link=SimpleNamespace(wake=lambda: None))
    outgoing = Outgoing(
        cast(Any, around), cast(Any, destination), cast(Any, channel), cast(Any, None), "", cast(Any, None), None
    )
    outgoing._last_sync = False
    outgoing._resynced = True
    question = Frame(frames.COMPLETE, 0, b"")

    def made() -> list[int]:
        return [part[4] for part in outgoing._produce() if bytes(part) != b"records"]

    assert made() == []
    await outgoing._take(question)
    ends.pop(0)
    assert made() == []
    durable[0] = 100
    assert made() == [frames.DATA, frames.COMPLETE]
    assert made() == []
    await outgoing._take(question)
    with pytest.raises(ProtocolError):
        await outgoing._take(question)
