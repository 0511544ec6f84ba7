"""What a sink grants to its source (replication.md §24.6)."""

import asyncio
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from amps._core.replication.stream import WINDOW_BYTES, TxidSet
from amps.server.replication import frames, incoming
from amps.server.replication.frames import Frame
from amps.server.replication.hello import Flow, Identity
from amps.server.replication.incoming import Incoming
from tests.support.streams import GrowingLog, whole
from tests.unit.core.test_replication_sink import Core, popped
from tests.unit.core.test_replication_source import connect, flow_over

SMALL_FRAME_BYTES = 200
RECORDS = 400


def _incoming(core: Core) -> Incoming:
    link = SimpleNamespace(publish_pushed=core.ring.publish_pushed, wake=lambda: None)
    made = Incoming(
        cast(Any, SimpleNamespace(core=SimpleNamespace(link=link))),
        cast(Any, SimpleNamespace(link=link, stream=0)),
        Identity("A", "G", "u", "5", "r"),
        Flow("B", "A!B!sync!amps-replication", True, 50),
        cast(Any, None),
    )
    made._sink = core.sink()
    made._tracker = cast(Any, SimpleNamespace(acknowledged=lambda: TxidSet(0)))
    return made


async def _credit_of_small_frames(log: GrowingLog, monkeypatch: Any) -> tuple[int, int]:
    """Send a log in many small frames. Returns the bytes that the sink grants, and the window at the end."""
    monkeypatch.setattr(incoming, "CREDIT_BYTES_MIN", 1)
    core = Core()
    sink = _incoming(core)
    source = flow_over(log)
    connect(source, log)
    granted = 0
    while source.sent_position < log.position:
        for kind, payload in whole(source.fill(log.position, SMALL_FRAME_BYTES)):
            await sink._take(Frame(kind, 0, payload))
        popped(core)
        for made in sink._produce():
            if made[4] == frames.CREDIT:
                (count,) = struct.unpack("<Q", made[6:])
                granted += count
                source.credit(count)
    return granted, source.window


def test_the_window_stays_as_large_however_small_frames_are(tmp_path: Path, monkeypatch: Any) -> None:
    """The source counts records, so the sink must not grant the heads of frames, too: the window would grow."""
    log = GrowingLog(tmp_path, 1 << 20)
    for number in range(RECORDS):
        log.append("p", number + 1, payload=bytes(number % 30))
    granted, window = asyncio.run(_credit_of_small_frames(log, monkeypatch))
    assert granted > RECORDS * 80
    assert window == WINDOW_BYTES
