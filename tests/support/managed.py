"""A server whose journals a test can manage: requests reach the core as the services process sends them.

Run as `python -m tests.support.managed <configuration>`: a child made before the server's own processes passes
datagrams on between a socket file in the working directory and the server's channel for requests.
"""

import os
import socket
import sys
from pathlib import Path
from typing import Any

import msgpack

from amps.config import load
from amps.server.supervisor import Supervisor

SOCKET_NAME = "requests.socket"


def main() -> int:
    supervisor = Supervisor(load(sys.argv[1], {}))
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    Path(SOCKET_NAME).unlink(missing_ok=True)
    listening.bind(SOCKET_NAME)
    listening.listen()
    if os.fork() == 0:
        parent = os.getppid()
        _pass_on(listening, supervisor._runtime.services_requests, parent)
        os._exit(0)
    listening.close()
    return supervisor.run()


def _pass_on(listening: socket.socket, channel: socket.socket, parent: int) -> None:
    channel.setblocking(True)
    listening.settimeout(0.2)
    while os.getppid() == parent:
        try:
            peer, _ = listening.accept()
        except TimeoutError:
            continue
        with peer:
            channel.send(peer.recv(65536))
            while True:
                answer = channel.recv(1 << 20)
                peer.send(answer)
                if msgpack.unpackb(answer)[1] != "more":
                    break


def ask(directory: Path, *request: Any) -> list[Any]:
    """Send a request to the server that runs in `directory`. Return the parts of its answer, joined."""
    parts: list[Any] = []
    # The path may be longer than a socket's address permits, which a relative path is not.
    before = os.open(".", os.O_RDONLY)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
        try:
            os.chdir(directory)
            peer.connect(SOCKET_NAME)
        finally:
            os.fchdir(before)
            os.close(before)
        peer.settimeout(20)
        peer.send(msgpack.packb(list(request)))
        while True:
            identity, outcome, content = msgpack.unpackb(peer.recv(1 << 20))
            if outcome != "more":
                return [identity, outcome, [*parts, *content] if isinstance(content, list) else content]
            parts += content


if __name__ == "__main__":
    sys.exit(main())
