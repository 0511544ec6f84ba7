"""A tie: both instances have dialled, and a flow moves to the link that stays. Nothing is lost (replication.md §24.9).

So it is no failure in the event log, and no lost connection in the statistics (replication.md §26 53).
"""

import asyncio
import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from amps.config.model_replication import DestinationConfig, DestinationTransport, ReplicatedTopic
from amps.server.replication import frames, hello, outgoing
from amps.server.replication.dialling import Dialler
from amps.server.replication.frames import Frame
from amps.server.replication.hello import Identity, Refused
from amps.server.replication.outgoing import Outgoing
from amps.server.replication.state_file import SavedDestination
from tests.support.reports import Reports
from tests.unit.replication.test_known_destinations import Instance

TRANSPORT = DestinationTransport("r", "amps-replication", reconnect_timeouts_s=(3600.0,))
CONFIG = DestinationConfig("B", "B", None, True, (ReplicatedTopic("t", "json"),), (TRANSPORT,))
TIE = Refused(hello.DUPLICATE_LINK, "the two instances share the other link", use_link=True)
LOSS = Refused(hello.LOST, "the other side closed the connection")


class _Channel:
    """The channel of a link that came in, whose flow ends with a reason."""

    def __init__(self, link: object, end: Refused) -> None:
        self.link, self.stream, self._end = link, 1, end

    def begin(self) -> None:
        pass

    def send_json(self, kind: int, content: dict[str, Any]) -> None:
        pass

    async def expect(self, *kinds: int, skip_others: bool = False) -> Frame:
        return Frame(frames.HELLO_ACK, 1, json.dumps({"compression": None}).encode())

    async def wait_end(self) -> Refused:
        return self._end

    def finish(self, end: Refused | None) -> None:
        pass


class _Link:
    """A link that came in."""

    address = "h:1"
    peer = Identity("B", "B", "uuid-b", "e", "r")

    def __init__(self, end: Refused) -> None:
        self.source_channel = _Channel(self, end)


class _Search:
    """The search of one destination, which finds one link and runs one flow on it."""

    def __init__(self, end: Refused, refused: bool, patch: pytest.MonkeyPatch) -> None:
        """`refused`: the flow does not begin, for that reason."""
        self.reports = Reports()
        self.moves: list[bool] = []
        self._links = [_Link(end)]

        async def log_on(channel: object, credentials: object) -> str:
            if refused:
                raise end
            return ""

        async def resume(of: Outgoing) -> tuple[None, bytes]:
            return None, b""

        patch.setattr(outgoing, "log_on", log_on)
        patch.setattr(Outgoing, "_validate", lambda of, config: None)
        patch.setattr(Outgoing, "_resume", resume)
        patch.setattr(Outgoing, "_start", lambda of, *started: setattr(of, "began", True))

    async def run(self) -> None:
        async def peer_config(link: object, channel: object) -> None:
            pass

        around = SimpleNamespace(
            log=SimpleNamespace(log=self.reports),
            identity=Identity("A", "A", "uuid-a", "e", "r"),
            rng=random.Random(1),
            usable_link=lambda destination, met: self._links.pop() if self._links else None,
            link_unused=lambda link, end: None,
            credentials=lambda transport: None,
            logged_on=lambda link, label: None,
            peer_config=peer_config,
            schedule=lambda: None,
        )
        destination = SimpleNamespace(
            config=CONFIG, connection=None, meet=lambda peer: False, disconnected=self.moves.append
        )
        dialler = Dialler(cast(Any, around), cast(Any, destination), cast(Any, None))
        (outcome,) = await dialler._search(1.0)
        assert outcome.end.code in (hello.DUPLICATE_LINK, hello.LOST)


@pytest.mark.parametrize(
    ("end", "refused", "told", "moves"),
    [
        (TIE, False, [], [True]),
        (LOSS, False, ["1E-0002"], [False]),
        (TIE, True, [], []),
        (LOSS, True, ["1E-0011"], []),
    ],
)
def test_replication_53_a_tie_of_two_links_is_no_loss(
    end: Refused, refused: bool, told: list[str], moves: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """replication.md §24.9, §26 53: before the flow has begun, or after."""
    search = _Search(end, refused, monkeypatch)
    asyncio.run(search.run())
    assert search.reports.ids == told
    assert search.moves == moves


def test_replication_53_a_move_to_another_link_is_not_counted(tmp_path: Path) -> None:
    """replication.md §26 53: `disconnect_count` rises by one per loss."""
    lost: list[int] = []
    destination = Instance(tmp_path).destination(SavedDestination())
    cast(Any, destination)._statistics = SimpleNamespace(disconnected=lost.append)
    destination.disconnected(True)
    assert not lost
    destination.disconnected(False)
    assert len(lost) == 1
