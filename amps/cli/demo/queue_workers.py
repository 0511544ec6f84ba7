"""The four workers of the replicated demonstration, which empty a queue that both servers have.

A worker takes messages, acknowledges a batch of them, and waits until the acknowledgement is persisted. From then on
no worker may get one of them again. A message whose acknowledgement was not confirmed may come again, as documented.
"""

import threading
import time
from queue import Empty, SimpleQueue

import orjson

from amps.cli.demo.pair import QUEUE
from amps.client import Client, Command, HAClient, MemoryPublishStore, Message
from amps.client.errors import AMPSException, DisconnectedException, TimedOutException

WORKERS = 4
ACK_CONFLATION = "ack_conflation=10ms"
BATCH = 500  # messages that are acknowledged with one command
BACKLOG = 2000
IDLE_S = 0.05
CONFIRM_S = 60.0


class QueueWorkers:
    """Four workers in threads, and what they have seen together."""

    def __init__(self, servers: list[str]) -> None:
        self._lock = threading.Lock()
        self.delivered = 0
        self.confirmed: set[int] = set()
        self.delivered_again: list[int] = []
        self.per_worker = [0] * WORKERS
        self.errors: list[str] = []
        self._stop = threading.Event()
        # Half of the workers begin at each server.
        self._threads = [
            threading.Thread(target=self._work, args=(number, servers[number % 2 :] + servers[: number % 2]))
            for number in range(WORKERS)
        ]

    def start(self) -> None:
        """Start the workers."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop them, and wait until they have ended."""
        self._stop.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _work(self, number: int, servers: list[str]) -> None:
        try:
            with HAClient(
                f"amps-demo-worker-{number}",
                servers,
                publish_store=MemoryPublishStore(),  # sends acknowledgements again after a failover
                logon_options=ACK_CONFLATION,
            ) as client:
                client.set_failed_write_handler(self._refused)
                arrived: SimpleQueue[tuple[str, int]] = SimpleQueue()
                client.execute_async(
                    Command("subscribe", QUEUE, options=f"max_backlog={BACKLOG}"),
                    lambda message: arrived.put((message.bookmark or "", self._take(message))),
                )
                batch: dict[str, int] = {}
                while not self._stop.is_set():
                    try:
                        bookmark, identity = arrived.get(timeout=IDLE_S)
                        batch[bookmark] = identity
                        full = len(batch) >= BATCH
                    except Empty:
                        full = bool(batch)
                    if full:
                        self._acknowledge(client, number, batch)
                        batch = {}
        except AMPSException as error:
            self.errors.append(f"worker {number}: {error}")

    def _take(self, message: Message) -> int:
        """Note a message as it arrives, whatever waits before it, and return its number."""
        identity: int = orjson.loads(message.data)["id"]
        with self._lock:
            self.delivered += 1
            if identity in self.confirmed:
                self.delivered_again.append(identity)
        return identity

    def _acknowledge(self, client: Client, number: int, batch: dict[str, int]) -> None:
        """Acknowledge a batch; return when the acknowledgement is persisted on both servers."""
        client.send(Command("sow_delete", QUEUE, bookmark=",".join(batch)))
        deadline = time.monotonic() + CONFIRM_S
        while not self._stop.is_set():
            try:
                client.publish_flush(timeout=1.0)
            except (DisconnectedException, TimedOutException):
                if time.monotonic() > deadline:
                    raise
                continue
            with self._lock:
                self.confirmed.update(batch.values())
                self.per_worker[number] += len(batch)
            return

    def _refused(self, message: Message, reason: str) -> None:
        self.errors.append(f"an acknowledgement was refused: {reason}")
