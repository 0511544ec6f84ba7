"""A server that answers the logon and then reads nothing until the test resumes it.

It parses the received bytes by hand: a frame that does not begin where the last one ended is detected.
"""

import contextlib
import json
import re
import socket
import ssl
import threading
from pathlib import Path
from typing import Any

WAIT_S = 20.0
BUFFER_BYTES = 8192
_HEADER = re.compile(rb'\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\}', re.DOTALL)

Frame = tuple[dict[str, Any], bytes]


class StuckServer:
    """One listening socket. `tls`: tcps instead of tcp; `path`: a unix socket."""

    def __init__(self, *, tls: ssl.SSLContext | None = None, path: Path | None = None) -> None:
        if path is None:
            self.listener = socket.create_server(("127.0.0.1", 0))
            scheme = "tcp" if tls is None else "tcps"
            port = self.listener.getsockname()[1]
            self.uri = f"{scheme}://localhost:{port}/amps/json?tcp_sndbuf={BUFFER_BYTES}"
            self.port = port
        else:
            self.listener = socket.socket(socket.AF_UNIX)
            self.listener.bind(str(path))
            self.listener.listen()
            self.uri = f"unix://localhost:0/amps/json?path={path}"
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        self.listener.settimeout(WAIT_S)
        self._tls = tls
        self._socket: socket.socket | None = None
        self._received = b""
        self._accepting: threading.Thread | None = None

    def let_in(self, sequence: int = 0) -> None:
        """Accept one connection in the background, and answer its logon."""
        self._received = b""
        self._accepting = threading.Thread(target=self._let_in, args=(sequence,), daemon=True)
        self._accepting.start()

    def _let_in(self, sequence: int) -> None:
        accepted, _ = self.listener.accept()
        accepted.settimeout(WAIT_S)
        self._socket = accepted if self._tls is None else self._tls.wrap_socket(accepted, server_side=True)
        header, _ = self.read()
        assert header["c"] == "logon"
        self.acknowledge(cid=header["cid"], a="processed", s=sequence)

    def acknowledge(self, **fields: Any) -> None:
        """Send an acknowledgement."""
        assert self._socket is not None
        text = json.dumps({"c": "ack", "status": "success", **fields}).encode()
        self._socket.sendall(len(text).to_bytes(4, "big") + text)

    def read(self) -> Frame:
        """The next frame."""
        length = int.from_bytes(self._take(4), "big")
        payload = self._take(length)
        match = _HEADER.match(payload)
        assert match, f"no frame begins here: {payload[:100]!r}"
        return json.loads(match[0]), payload[match.end() :]

    def read_until(self, body: bytes) -> list[Frame]:
        """All frames before the one with that body."""
        frames = []
        while (frame := self.read())[1] != body:
            frames.append(frame)
        return frames

    def _take(self, count: int) -> bytes:
        if self._accepting is not None and self._accepting is not threading.current_thread():
            self._accepting.join(WAIT_S)
        assert self._socket is not None
        parts = [self._received]
        missing = count - len(self._received)
        while missing > 0:
            part = self._socket.recv(65536)
            assert part, f"the connection ends within a frame, {missing} bytes before its end"
            parts.append(part)
            missing -= len(part)
        data = b"".join(parts)
        self._received = data[count:]
        return data[:count]

    def hang_up(self) -> None:
        """End the connection."""
        if self._accepting is not None:
            self._accepting.join(WAIT_S)
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
            self._socket = None

    def close(self) -> None:
        """End everything."""
        self.listener.close()
        self.hang_up()
