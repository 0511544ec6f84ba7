"""A TCP proxy that cuts its connections after random numbers of bytes.

It stands between clients and a server. Each connection carries a random number of bytes in both directions together and
is then reset or closed, at any byte; what is on the way is lost. `calm` lets new connections live.
"""

import contextlib
import random
import selectors
import socket
import struct
import threading
from typing import Self

CHUNK_BYTES = 16 * 1024


class CuttingProxy:
    """Listens on a port of its own and forwards to another one."""

    def __init__(self, port: int, seed: int, longest_bytes: int) -> None:
        self.cuts = 0
        self.calm = False
        self._target = ("127.0.0.1", port)
        self._chance = random.Random(seed)
        self._longest_bytes = longest_bytes
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._closing = False
        self._thread = threading.Thread(target=self._accept, name="cutting-proxy", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._closing = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._listener.close()

    def _accept(self) -> None:
        while not self._closing:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            limit = None if self.calm else self._chance.randrange(1, self._longest_bytes)
            reset = self._chance.random() < 0.5
            threading.Thread(target=self._forward, args=(client, server, limit, reset), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket, limit: int | None, reset: bool) -> None:
        peers = {client: server, server: client}
        with selectors.DefaultSelector() as ready:
            for sock in peers:
                ready.register(sock, selectors.EVENT_READ)
            try:
                while limit is None or limit > 0:
                    for key, _ in ready.select():
                        source = key.fileobj
                        assert isinstance(source, socket.socket)
                        data = source.recv(CHUNK_BYTES if limit is None else min(CHUNK_BYTES, limit))
                        if not data:
                            return
                        peers[source].sendall(data)
                        if limit is not None:
                            limit -= len(data)
                            if limit <= 0:
                                break
                self.cuts += 1
            except OSError:
                return
            finally:
                for sock in peers:
                    if reset:
                        with contextlib.suppress(OSError):
                            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    sock.close()
