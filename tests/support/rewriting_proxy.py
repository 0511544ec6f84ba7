"""A proxy between two instances that changes control frames of the replication protocol, as another version of the
server would write them.
"""

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from typing import Any, Self

HEAD_BYTES = 6
"""Length (4 bytes, big-endian, of what follows), type, flags."""
COMPRESSED = 1
CONTROL = frozenset([0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x18, 0x19, 0x1C, 0x1F])
"""Types of frames whose payload is a JSON object (docs/replication.md)."""

Change = Callable[[int, dict[str, Any]], dict[str, Any]]


class RewritingProxy:
    """Listens on a port of its own and forwards to another one. `change` gets type and content of each control frame,
    and returns what is sent instead.
    """

    def __init__(self, port: int, change: Change) -> None:
        self.seen: set[int] = set()
        """The types of the frames that were changed."""
        self._change = change
        self._target = ("127.0.0.1", port)
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    def close(self) -> None:
        for each in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, run: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments, name="rewriting-proxy", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            self._sockets += [client, server]
            self._start(self._forward, client, server)
            self._start(self._forward, server, client)

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        try:
            with source.makefile("rb") as reader:
                while len(head := reader.read(HEAD_BYTES)) == HEAD_BYTES:
                    payload = reader.read(int.from_bytes(head[:4], "big") - 2)
                    kind, flags = head[4:]
                    if kind in CONTROL and not flags & COMPRESSED:
                        self.seen.add(kind)
                        payload = json.dumps(self._change(kind, json.loads(payload))).encode()
                    target.sendall((len(payload) + 2).to_bytes(4, "big") + head[4:] + payload)
        except (OSError, ValueError):
            pass
        finally:
            for each in (source, target):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
