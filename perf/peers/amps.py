"""This project's server: any-type transport, every JSON topic recorded in the transaction log.

Publishes ask for `persisted`, which the server conflates (here every 10 ms) and sends only after fdatasync
has returned for the messages it covers.
"""

import itertools
import json
import socket
import sys
import time
from collections.abc import Mapping
from xml.sax.saxutils import escape

from perf.load import FIRST_NUMBER, build, payload
from perf.machine import own_version
from perf.peers.server import START_S, LivePair, Reader, ServerPeer, SingleWriter
from perf.pump import Lane, PeerError, connect

READY_MARK = "00-0015"
ACK_CONFLATION = "10ms"
CLIENT_NUMBERS = itertools.count(1)


def frame(header: Mapping[str, object], body: bytes = b"") -> bytes:
    """One frame of the protocol."""
    text = json.dumps(header, separators=(",", ":")).encode() + body
    return len(text).to_bytes(4, "big") + text


def receive_ack(sock: socket.socket, ack_type: str) -> dict[str, object]:
    """Blocking read, for handshakes: frames up to the acknowledgement of this type."""
    while True:
        size = int.from_bytes(receive_bytes(sock, 4), "big")
        header: dict[str, object] = json.loads(receive_bytes(sock, size))
        if header.get("status", "success") != "success":
            raise PeerError(f"refused: {header}")
        if header.get("c") == "ack" and header.get("a") == ack_type:
            return header


def receive_bytes(sock: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        chunk = sock.recv(size - len(got))
        if not chunk:
            raise PeerError("the server closed the connection")
        got += chunk
    return got


class AckCounter:
    """Turns conflated acknowledgements, "persisted up to s", into a count. They are few, so each is parsed."""

    def __init__(self) -> None:
        self.rest = b""
        self.last = FIRST_NUMBER - 1

    def __call__(self, received: memoryview) -> int:
        data = self.rest + received
        at = 0
        before = self.last
        while len(data) - at >= 4:
            size = int.from_bytes(data[at : at + 4], "big")
            if len(data) - at - 4 < size:
                break
            header = json.loads(data[at + 4 : at + 4 + size])
            if header.get("status") != "success":
                raise PeerError(f"refused: {header}")
            self.last = int(header["s"])
            at += 4 + size
        self.rest = data[at:]
        return self.last - before


class AmpsPeer(ServerPeer):
    name = "amps"
    title = "this server (synced)"
    window = 400_000
    journal_size = "1GB"
    o_direct = "enabled"
    recorded = ".*"
    """A regular expression of the recorded topics."""
    confirmation = "persisted"
    """The type of the last acknowledgement of a publish."""
    sow = ""
    """Further elements of the configuration."""
    instance = "bench"
    transports = ""
    """Further transports."""
    last_client_name = ""
    """Client name of the newest connection."""

    def version(self) -> str:
        return own_version()

    def command(self) -> list[str]:
        config = self.directory / "config.xml"
        journal = escape(str(self.directory / "journal"))
        config.write_text(f"""<AMPSConfig>
  <Name>{self.instance}</Name>
  <Transports><Transport>
    <Name>any-tcp</Name><Type>tcp</Type><InetAddr>127.0.0.1:{self.port}</InetAddr><Protocol>amps</Protocol>
  </Transport>{self.transports}</Transports>
  <TransactionLog>
    <JournalDirectory>{journal}</JournalDirectory>
    <JournalSize>{self.journal_size}</JournalSize><O_DIRECT>{self.o_direct}</O_DIRECT>
    <Topic><Name>{self.recorded}</Name><MessageType>json</MessageType></Topic>
  </TransactionLog>
  {self.sow}
  <Logging><Target><Protocol>stdout</Protocol><Level>info</Level></Target></Logging>
</AMPSConfig>
""")
        return [sys.executable, "-P", "-m", "amps.server.main", str(config)]

    def prepare(self) -> None:
        """Wait for the log record that the server is ready; its port may answer before."""
        deadline = time.monotonic() + START_S
        while READY_MARK not in (self.directory / "output.txt").read_text(errors="replace"):
            if time.monotonic() > deadline:
                raise PeerError(f"{self.name} is not ready after {START_S:g} s:\n{self.output()}")
            time.sleep(0.02)

    def open(self) -> socket.socket:
        self.last_client_name = f"bench-{next(CLIENT_NUMBERS)}"
        return self.log_on(self.last_client_name)[0]

    def log_on(self, client_name: str) -> tuple[socket.socket, dict[str, object]]:
        """A connection, and the answer to its logon."""
        sock = connect(self.port)
        logon = {
            "c": "logon",
            "cid": "0",
            "client_name": client_name,
            "mt": "json",
            "a": "processed",
            "o": f"ack_conflation={ACK_CONFLATION}",
        }
        sock.sendall(frame(logon))
        return sock, receive_ack(sock, "processed")

    def publish_lanes(self, connections: int, messages: int) -> list[Lane]:
        header = b'{"c":"p","t":"bench","s":%d,"a":"persisted"}' % FIRST_NUMBER
        prefix = (len(header) + self.payload_bytes).to_bytes(4, "big") + header
        sequence_at = prefix.index(b'"s":') + len(b'"s":')
        return [
            Lane(
                self.open(),
                build(prefix, b"", messages // connections, sequence_at, self.payload_bytes),
                AckCounter(),
                self.window // connections,
            )
            for _ in range(connections)
        ]

    def single_writer(self, messages: int) -> SingleWriter:
        header = b'{"c":"p","t":"bench","s":%d}' % FIRST_NUMBER
        prefix = (len(header) + 256).to_bytes(4, "big") + header
        sequence_at = prefix.index(b'"s":') + len(b'"s":')
        sock = self.open()

        def confirm() -> None:
            last = {"c": "p", "t": "bench", "cid": "1", "s": FIRST_NUMBER + messages, "a": self.confirmation}
            sock.sendall(frame(last, payload()))
            receive_ack(sock, self.confirmation)

        return SingleWriter(sock, build(prefix, b"", messages, sequence_at), confirm)

    def live_pair(self) -> LivePair:
        subscriber = self.open()
        subscriber.sendall(frame({"c": "subscribe", "cid": "1", "t": "live", "a": "processed"}))
        receive_ack(subscriber, "processed")
        header = b'{"c":"p","t":"live"}'
        return LivePair(self.open(), subscriber, (len(header) + 256).to_bytes(4, "big") + header, b"")

    def reader(self, messages: int) -> Reader:
        sock = self.open()
        request = frame({"c": "subscribe", "cid": "1", "t": "bench", "bm": "0", "a": "completed"})
        return Reader(sock, lambda: sock.sendall(request), lambda received, tail: None)


class AmpsUnrecorded(AmpsPeer):
    """The topics of the load are not in the transaction log."""

    name = "amps-unrecorded"
    title = "this server, topic not recorded"
    recorded = "recorded"
    confirmation = "processed"


class AmpsResident(AmpsPeer):
    """The log stays in the page cache."""

    name = "amps-resident"
    title = "this server (synced), log in the page cache"
    o_direct = "disabled"
