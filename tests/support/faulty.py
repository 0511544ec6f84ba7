"""A server with unforeseen faults: its transports raise where a client requests it.

Run as `python -m tests.support.faulty <configuration>`. A command whose topic begins with `fault` raises while it is
carried out; so does the end of input of a client that sent one with the topic `at-the-end`, and a heartbeat.
"""

import sys

from amps.config import load
from amps.server.supervisor import Supervisor
from amps.server.transport.answering import Header
from amps.server.transport.connection import Connection
from amps.server.transport.heartbeats import Heartbeat
from amps.server.transport.subscribing import Subscribing


def main() -> int:
    subscribe, eof_received = Subscribing.subscribe, Connection.eof_received

    def faulty_subscribe(self: Subscribing, header: Header) -> None:
        topic = str(header.get("topic"))
        if topic.startswith("fault"):
            raise OverflowError(f"told to fail: {topic}")
        if topic == "at-the-end":
            Connection.eof_received = faulty_end  # type: ignore[method-assign]
        subscribe(self, header)

    def faulty_end(self: Connection) -> bool:
        Connection.eof_received = eof_received  # type: ignore[method-assign]
        raise OverflowError("told to fail: the end")

    def faulty_beat(self: Heartbeat) -> None:
        raise OverflowError("told to fail: heartbeat")

    Subscribing.subscribe = faulty_subscribe  # type: ignore[method-assign]
    Heartbeat._due = faulty_beat  # type: ignore[method-assign]
    return Supervisor(load(sys.argv[1], {})).run()


if __name__ == "__main__":
    sys.exit(main())
