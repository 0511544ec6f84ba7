"""The steps and events of replication (replication.md §8, §14.4, §17)."""

import asyncio
import socket
from typing import Any

import pytest

from amps._core.shm.memory import MODE_DOWNGRADED, MODE_SYNC
from amps.server.services.replication_requests import ReplicationRequests as Asking
from amps.server.shared.replication_requests import LinkState, ReplicationRequests
from tests.support.services import Surroundings, action, do, echo, on

INSTANCE = (
    "<AMPSConfig><Name>n</Name><TransactionLog><JournalDirectory>j</JournalDirectory><Topic><Name>.*</Name>"
    "<MessageType>json</MessageType></Topic></TransactionLog><SOW><Queue><Name>L</Name><MessageType>json</MessageType>"
    "</Queue><LocalQueue><Name>own</Name><MessageType>json</MessageType></LocalQueue><Queue><Name>Q</Name>"
    "<MessageType>json</MessageType></Queue></SOW><Replication><Destination><Name>b</Name><SyncType>sync</SyncType>"
    "<Topic><Name>t</Name><MessageType>json</MessageType></Topic><Transport><Type>amps-replication</Type>"
    "<InetAddr>h:1</InetAddr></Transport></Destination></Replication><Actions>{}</Actions></AMPSConfig>"
)
STARTUP = on("startup")


class Links:
    """Two destinations: one that is waited for in vain, and one that was downgraded."""

    def __init__(self) -> None:
        self.done: list[tuple[str, int]] = []

    def states(self) -> list[LinkState]:
        return [LinkState(MODE_SYNC, False, 5.0), LinkState(MODE_DOWNGRADED, True, 0.5)]

    def downgrade(self, destination: int, unacknowledged_s: float | None) -> None:
        self.done.append(("downgrade", destination))

    def upgrade(self, destination: int) -> None:
        self.done.append(("upgrade", destination))

    def reconnect(self, destination: int) -> bool:
        raise AssertionError


class Replicating(Surroundings):
    """An engine beside a replication process."""

    def __init__(self, *parts: str, uptime_s: float = 1e9) -> None:
        super().__init__(text=INSTANCE.format(action(*parts)))
        self.links = Links()
        self.uptime_s = uptime_s
        self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.ours.setblocking(False)
        theirs.setblocking(False)
        answering = ReplicationRequests(self.ours, None)
        asyncio.get_running_loop().add_reader(self.ours.fileno(), answering.answer_requests, self.links)
        self.theirs = theirs
        self.environment.replication = Asking(theirs)
        self.environment.replication.begin(asyncio.get_running_loop())

    def close(self) -> None:
        for end in (self.ours, self.theirs):
            asyncio.get_running_loop().remove_reader(end.fileno())
            end.close()
        super().close()


def run(*steps: str, **options: Any) -> Replicating:
    async def body() -> Replicating:
        made = Replicating(STARTUP, *steps, **options)
        try:
            await made.happened("startup")
        finally:
            made.close()
        return made

    return asyncio.run(body())


def test_replication_10_downgrade_and_upgrade_by_age() -> None:
    """replication.md §26 10, 12: both run in the order of the file, and the next step runs."""
    made = run(do("downgrade-replication", Age="3s"), do("upgrade-replication", Age="1s"), echo("after"))
    assert made.links.done == [("downgrade", 0), ("upgrade", 1)]
    assert made.echoed() == ["after"]
    assert run(do("downgrade-replication", Age="6s"), do("upgrade-replication", Age="500ms")).links.done == []


@pytest.mark.parametrize(("uptime_s", "expected"), [(9.9, []), (10.0, [("downgrade", 0)])])
def test_replication_15_a_grace_period_after_the_start(
    uptime_s: float, expected: list[tuple[str, int]]
) -> None:
    """replication.md §26 15, §8: the step does nothing before, and the run goes on."""
    made = run(do("downgrade-replication", Age="2s", GracePeriod="10s"), echo("after"), uptime_s=uptime_s)
    assert made.links.done == expected
    assert made.echoed() == ["after"]


def test_steps_without_replication_fail() -> None:
    """replication.md §8: such a configuration has a warning; the step says why it does nothing."""

    async def body() -> list[str]:
        made = Replicating(STARTUP, do("upgrade-replication", Age="2s"))
        try:
            made.environment.replication = None
            await made.happened("startup")
        finally:
            made.close()
        return made.log.texts("29-0002")

    (text,) = asyncio.run(body())
    assert "there is no replication; add Replication, or remove this step" in text


@pytest.mark.parametrize(("verb", "enabled"), [("enable", 1), ("disable", 0)])
def test_proxied_transfer_is_switched_in_the_core(verb: str, enabled: int) -> None:
    """replication.md §14.4: by the number of the queue."""
    made = run(do(f"{verb}-proxied-transfer", Topic="Q", MessageType="json"))
    assert made.core.asked == [("proxied transfer", [2, enabled])]


def test_proxied_transfer_of_what_is_no_shared_queue_fails() -> None:
    """replication.md §14.4: a variable may name anything."""
    made = run(
        do("translate-data", Data="own", Value="Q"),
        do("enable-proxied-transfer", Topic="{{Q}}", MessageType="json"),
    )
    (text,) = made.log.texts("29-0002")
    assert made.core.asked == []
    if "translate" not in text:
        assert "'own' of the message type json is no Queue or GroupLocalQueue; name one" in text


def test_a_refusal_of_the_core_is_a_failure() -> None:
    async def body() -> list[str]:
        made = Replicating(STARTUP, do("enable-proxied-transfer", Topic="Q", MessageType="json"))
        try:
            made.core.refusal = "not now"
            await made.happened("startup")
        finally:
            made.close()
        return made.log.texts("29-0002")

    (text,) = asyncio.run(body())
    assert "not now" in text


@pytest.mark.parametrize(
    "event",
    [
        "connect-replication",
        "disconnect-replication",
        "replication-resync-complete",
        "upgrade-replication",
        "downgrade-replication",
    ],
)
def test_replication_54_events_have_variables(event: str) -> None:
    """replication.md §26 54, §17"""

    async def body() -> list[str]:
        made = Replicating(on(event), echo("{{AMPS_REPLICATION_PEER_NAME}} {{AMPS_REPLICATION_CLIENT_NAME}}"))
        try:
            await made.happened(
                event,
                AMPS_REPLICATION_PEER_NAME="b",
                AMPS_REPLICATION_CLIENT_NAME="n!b!sync!amps-replication",
            )
        finally:
            made.close()
        return made.echoed()

    assert asyncio.run(body()) == ["b n!b!sync!amps-replication"]
