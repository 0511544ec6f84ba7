"""A queue in memory with the part of beanstalkd's protocol that the benchmark suite uses, to test the suite with.

Run as a program: `toy_queue_server.py PORT MODE`. MODE is `honest` or a fault: `forgetful` reports a job as deleted and
keeps it, `repeating` delivers the fifth job again, `slow` takes 5 ms for each job.
"""

import socketserver
import sys
import threading
import time
from collections import deque


class Queue:
    """The jobs, ready or reserved."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.ready: deque[tuple[int, bytes]] = deque()
        self.reserved: dict[int, bytes] = {}
        self.changed = threading.Condition()
        self.last = 0

    def put(self, body: bytes) -> int:
        if self.mode == "slow":
            time.sleep(0.005)
        with self.changed:
            self.last += 1
            self.ready.append((self.last, body))
            if self.mode == "repeating" and self.last == 5:
                self.ready.append((self.last, body))
            self.changed.notify()
            return self.last

    def reserve(self) -> tuple[int, bytes]:
        with self.changed:
            self.changed.wait_for(lambda: self.ready)
            number, body = self.ready.popleft()
            self.reserved[number] = body
            return number, body

    def delete(self, number: int) -> None:
        with self.changed:
            if self.mode != "forgetful":
                del self.reserved[number]


class Connection(socketserver.StreamRequestHandler):
    server: "Server"

    def handle(self) -> None:
        queue = self.server.queue
        while words := self.rfile.readline().split():
            if words[0] == b"put":
                body = self.rfile.read(int(words[4]) + 2)
                self.wfile.write(b"INSERTED %d\r\n" % queue.put(body))
            elif words[0] == b"reserve":
                number, body = queue.reserve()
                self.wfile.write(b"RESERVED %d %d\r\n%s" % (number, len(body) - 2, body))
            elif words[0] == b"delete":
                queue.delete(int(words[1]))
                self.wfile.write(b"DELETED\r\n")
            else:
                counts = b"current-jobs-ready: %d\ncurrent-jobs-reserved: %d\npause-time-left: 0\n"
                self.wfile.write(counts % (len(queue.ready), len(queue.reserved)))


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int, mode: str) -> None:
        super().__init__(("127.0.0.1", port), Connection)
        self.queue = Queue(mode)


if __name__ == "__main__":
    Server(int(sys.argv[1]), sys.argv[2]).serve_forever()
