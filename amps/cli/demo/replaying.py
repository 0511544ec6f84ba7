"""Replay of a server's log, from its beginning to its end."""

import time

from amps.cli.demo.display import Display
from amps.cli.demo.flights import TOPIC_PREFIX
from amps.cli.demo.proof import Ledger
from amps.cli.demo.server import DemoServer, ServerFailed
from amps.client import EPOCH, AckType, Client, Command

UPDATE_EVERY = 256  # messages between two updates of the display
QUIET_S = 30.0  # a replay without a message for this time has failed


def replay_all(
    total: int, server: DemoServer, display: Display, label: str = "replaying"
) -> tuple[Ledger, float]:
    """Return all messages of the log from its beginning to the `completed` acknowledgement, and the seconds it took."""
    replayed = Ledger()
    command = Command("subscribe", f"^{TOPIC_PREFIX}", bookmark=EPOCH, ack_type=AckType.COMPLETED)
    with Client("amps-demo-reader", f"tcp://demo@127.0.0.1:{server.port}/amps/json") as client:
        started = time.monotonic()
        with display.progress(label, total) as update, client.execute(command, control=True) as stream:
            while (message := stream.get(QUIET_S)) is not None:
                if message.is_content:
                    replayed.add(message.topic or "", message.data)
                    if len(replayed.ids) % UPDATE_EVERY == 0:
                        update(len(replayed.ids), "")
                elif message.command == "ack" and message.ack_type == AckType.COMPLETED:
                    return replayed, time.monotonic() - started
    raise ServerFailed(f"the replay stopped after {len(replayed.ids)} messages for {QUIET_S:g} s")
