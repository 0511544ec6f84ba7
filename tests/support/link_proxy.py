"""A TCP proxy between two instances that cuts, holds or delays what passes, for tests of partitions.

While it is `held`, connections stay open and nothing passes in a direction: the other side looks alive and is silent,
as after the loss of a cable. While it is `cut`, existing connections are closed and new ones refused.
"""

import contextlib
import selectors
import socket
import struct
import threading
import time
from typing import Self

CHUNK_BYTES = 64 * 1024
POLL_S = 0.02


class LinkProxy:
    """Listens on a port of its own and forwards to another one."""

    def __init__(self, port: int) -> None:
        self.delay_s = 0.0
        """Each piece of data is kept for so long, in both directions."""
        self.bytes_forward = 0
        self.bytes_back = 0
        self.connections = 0
        """So many were made."""
        self._held: set[str] = set()
        self._is_cut = False
        self._target = ("127.0.0.1", port)
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self._closing = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, name="link-proxy", daemon=True)]
        self._threads[0].start()

    def cut(self) -> None:
        """Close all connections with a reset, and refuse new ones."""
        self._is_cut = True
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            _reset(pair)

    def hold(self, *directions: str) -> None:
        """Let nothing pass any more: `forward` (to the target), `back`, or both if none is named."""
        self._held = set(directions or ("forward", "back"))

    def heal(self) -> None:
        """Forward everything again."""
        self._is_cut = False
        self._held = set()

    @property
    def open_connections(self) -> int:
        """The number of connections now."""
        with self._lock:
            return len(self._pairs)

    def close(self) -> None:
        """End all threads and connections."""
        self._closing = True
        self.cut()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._closing:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._is_cut:
                client.close()
                continue
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            pair = (client, server)
            with self._lock:
                self._pairs.add(pair)
                self.connections += 1
            thread = threading.Thread(target=self._forward, args=(pair,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _forward(self, pair: tuple[socket.socket, socket.socket]) -> None:
        client, server = pair
        directions = {client: ("forward", server), server: ("back", client)}
        try:
            while not self._closing:
                free = [each for each, (name, _) in directions.items() if name not in self._held]
                if not free:
                    time.sleep(POLL_S)
                    continue
                with selectors.DefaultSelector() as ready:
                    for each in free:
                        ready.register(each, selectors.EVENT_READ)
                    events = ready.select(POLL_S)
                for key, _ in events:
                    source = key.fileobj
                    assert isinstance(source, socket.socket)
                    name, target = directions[source]
                    data = source.recv(CHUNK_BYTES)
                    if not data:
                        return
                    if self.delay_s:
                        time.sleep(self.delay_s)
                    while name in self._held and not self._closing:
                        time.sleep(POLL_S)
                    target.sendall(data)
                    if name == "forward":
                        self.bytes_forward += len(data)
                    else:
                        self.bytes_back += len(data)
        except (OSError, ValueError):
            return
        finally:
            with self._lock:
                self._pairs.discard(pair)
            _reset(pair) if self._is_cut else _close(pair)


def _close(pair: tuple[socket.socket, socket.socket]) -> None:
    for each in pair:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()


def _reset(pair: tuple[socket.socket, socket.socket]) -> None:
    for each in pair:
        with contextlib.suppress(OSError):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            each.shutdown(socket.SHUT_RDWR)
    for each in pair:
        each.close()
