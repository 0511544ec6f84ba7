"""Two instances of this server, of which one is away for a time.

The destinations are async, so that publishing goes on without the copy. The last message has a publisher of its own.
The answer to a logon tells a publisher what is stored durably: so the copy is asked whether it has that message, and
all others arrive before it.
"""

import time

from perf.peers.amps import frame, receive_ack
from perf.peers.amps_pair import END_TOPIC, AmpsPair
from perf.peers.catch_up import CATCH_UP_LIMIT_S, CatchUpGroup, pause
from perf.pump import PeerError

MARKER = "bench-mark"


class AmpsCatchUp(AmpsPair, CatchUpGroup):
    name = "amps-catch-up"
    title = "this server (synced)"
    sync_type = "async"

    def stop_copy(self) -> None:
        self.instances()[1].stop()

    def mark(self) -> None:
        """Publish a message behind all others."""
        sock, _ = self.instances()[0].log_on(MARKER)
        with sock:
            sock.sendall(frame({"c": "p", "t": END_TOPIC, "s": 1, "a": "persisted"}, b"{}"))
            receive_ack(sock, "persisted")

    def start_copy(self) -> None:
        self.instances()[1].launch()

    def await_everything(self) -> None:
        copy = self.instances()[1]
        copy.wait_for_port()
        copy.prepare()
        deadline_s = time.monotonic() + CATCH_UP_LIMIT_S
        while True:
            sock, answer = copy.log_on(MARKER)
            sock.close()
            if answer.get("s") == 1:
                return
            if time.monotonic() > deadline_s:
                raise PeerError(f"{self.name}: the copy has not caught up after {CATCH_UP_LIMIT_S:g} s")
            pause()

    def await_stored(self) -> None:
        """Nothing to wait for: a logon tells what is synced."""

    def check_way(self) -> None:
        """There is only one way."""
