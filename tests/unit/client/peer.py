"""A scripted server for client tests, which reads and writes frames over a real socket and decides nothing itself.

Frames are encoded and decoded here by hand, so that a mistake in the client's codec cannot hide. Tests drive the peer
from their own thread: `expect` gives the next frame the client sent, `send` writes one.
"""

import contextlib
import json
import queue
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

WAIT_S = 10.0
_HEADER = re.compile(rb'\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\}', re.DOTALL)


@dataclass(frozen=True)
class Frame:
    """A frame that the client sent."""

    header: dict[str, Any]
    body: bytes

    def __getitem__(self, name: str) -> Any:
        return self.header[name]

    def get(self, name: str) -> Any:
        return self.header.get(name)

    @property
    def acks(self) -> set[str]:
        return set(self.header.get("a", "").split(",")) - {""}


def encode(header: dict[str, Any], body: bytes = b"") -> bytes:
    """One frame."""
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    return (len(text) + len(body)).to_bytes(4, "big") + text + body


def decode(payload: bytes) -> Frame:
    """The header and body of a payload."""
    match = _HEADER.match(payload)
    assert match, payload[:200]
    return Frame(json.loads(match[0]), payload[match.end() :])


def split_frames(data: bytes) -> list[Frame]:
    """All frames in a byte string that holds whole ones."""
    frames = []
    while data:
        length = int.from_bytes(data[:4], "big")
        frames.append(decode(data[4 : 4 + length]))
        data = data[4 + length :]
    return frames


class Connection:
    """One accepted connection."""

    def __init__(self, sock: socket.socket, peer: "ScriptedPeer | None" = None) -> None:
        self.socket = sock
        self.peer = peer
        self.frames: queue.Queue[Frame | None] = queue.Queue()
        self.raw = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        pending = bytearray()
        try:
            while data := self.socket.recv(65536):
                self.raw += data
                pending += data
                while len(pending) >= 4:
                    length = int.from_bytes(pending[:4], "big")
                    if len(pending) < 4 + length:
                        break
                    self.frames.put(decode(bytes(pending[4 : 4 + length])))
                    del pending[: 4 + length]
        except OSError:
            pass
        self.frames.put(None)

    def expect(self, command: str | None = None, timeout: float = WAIT_S) -> Frame:
        """The next frame. If a command is given, the frame must have it."""
        frame = self.frames.get(timeout=timeout)
        assert frame is not None, "the client closed the connection"
        assert command in (None, frame["c"]), frame
        return frame

    def expect_nothing(self, for_s: float = 0.2) -> None:
        try:
            frame = self.frames.get(timeout=for_s)
        except queue.Empty:
            return
        raise AssertionError(f"the client sent {frame}")

    def expect_close(self) -> None:
        """Wait until the client closes the connection; frames sent before that are skipped."""
        while self.frames.get(timeout=WAIT_S) is not None:
            pass

    def send(self, *headers: dict[str, Any], body: bytes = b"") -> None:
        """Write frames in one go; the last one gets the body."""
        data = b"".join(encode(header) for header in headers[:-1]) + encode(headers[-1], body)
        self.socket.sendall(data)

    def ack(self, frame: Frame, ack_type: str = "processed", status: str = "success", **fields: Any) -> None:
        """Acknowledge a frame."""
        self.send({"c": "ack", "cid": frame["cid"], "a": ack_type, "status": status, **fields})

    def publish(self, sids: str, body: bytes = b"{}", topic: str = "t", **fields: Any) -> None:
        self.send({"c": "p", "t": topic, "sids": sids, "l": len(body), **fields}, body=body)

    def logon(self, seq: int = 0, **fields: Any) -> Frame:
        """Answer the client's logon."""
        frame = self.expect("logon")
        self.ack(frame, client_name=frame["client_name"], s=seq, version="9.9.9", **fields)
        return frame

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self._reader.join(WAIT_S)
        self.socket.close()


class ScriptedPeer:
    """A listening socket and the connections it accepted."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(WAIT_S)
        self.port: int = self.listener.getsockname()[1]
        self.connections: list[Connection] = []

    @property
    def uri(self) -> str:
        return f"tcp://127.0.0.1:{self.port}/amps/json"

    def accept(self) -> Connection:
        sock, _ = self.listener.accept()
        connection = Connection(sock, self)
        self.connections.append(connection)
        return connection

    def close(self) -> None:
        self.listener.close()
        for connection in self.connections:
            connection.close()


@contextmanager
def in_background(function: Any, *args: Any, **kwargs: Any) -> Iterator["Outcome"]:
    """Run a blocking call in a thread while the test plays the server.

    Leaving the block waits for the call and raises its exception.
    """
    outcome = Outcome(function, args, kwargs)
    yield outcome
    outcome.result()


class Outcome:
    """A call running in a thread."""

    def __init__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(function, args, kwargs), daemon=True)
        self._thread.start()

    def _run(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            self.value = function(*args, **kwargs)
        except BaseException as error:
            self.error = error

    def wait(self) -> None:
        """Wait until the call has ended."""
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the call never returned"

    def result(self) -> Any:
        """What the call returned; raises what it raised."""
        self.wait()
        if self.error is not None:
            raise self.error
        return self.value
