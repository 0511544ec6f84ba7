"""Workers of this project's server: for each message they publish a result, and acknowledge the message.

They do it in two ways, whose numbers of messages and results are the same. A plain worker publishes and acknowledges
with two commands, which may be cut apart; a transactional one does both in one command, all or nothing. Each works
message by message, or in batches.
"""

import re
from collections.abc import Sequence

from perf.consuming import ACK_BATCH, Consumer
from perf.load import FIRST_NUMBER, PAYLOAD_BYTES, payload
from perf.peers.amps import frame
from perf.peers.amps_queue import ACKNOWLEDGE, QUEUE, AmpsQueue, BookmarkConsumer

RESULTS = "bench-results"
PUBLISH = frame({"c": "p", "t": RESULTS, "s": FIRST_NUMBER, "a": "persisted"}, payload()).replace(
    b'"s":%d' % FIRST_NUMBER, b'"s":%d'
)
"""A whole publish, but for its number, which has ten digits. Made once: the load must not cost more than the server."""
IN_TRANSACTION = frame({"t": RESULTS}, payload())
DELIVERY = re.compile(rb'"bm":"([^"]+)"[^}]*"lp":[^}]*\}.{%d}' % PAYLOAD_BYTES, re.DOTALL)
"""A message that must be acknowledged; the answers to publishes have a bookmark, too."""


class PlainWorker(BookmarkConsumer):
    """Publishes results, and acknowledges `batch` messages with each command."""

    pattern = DELIVERY
    batch = 1
    sequence = FIRST_NUMBER

    def acknowledge(self, handles: Sequence[bytes]) -> None:
        for first in range(0, len(handles), self.batch):
            named = handles[first : first + self.batch]
            following = self.sequence + len(named)
            self.outgoing += b"".join([PUBLISH % number for number in range(self.sequence, following)])
            self.sequence = following
            command = b'%s%s"}' % (ACKNOWLEDGE, b",".join(named))
            self.outgoing += len(command).to_bytes(4, "big") + command


class TransactionalWorker(BookmarkConsumer):
    """Acknowledges `batch` messages and publishes their results in each transaction."""

    batch = 1
    sequence = 0

    def acknowledge(self, handles: Sequence[bytes]) -> None:
        for first in range(0, len(handles), self.batch):
            named = handles[first : first + self.batch]
            command = b'{"c":"transaction","cid":"%d","t":"%s","bm":"%s","s":%d,"a":"persisted"}%s' % (
                self.sequence + 10,
                QUEUE.encode(),
                b",".join(named),
                self.sequence + 1,
                IN_TRANSACTION * len(named),
            )
            self.sequence += 1 + len(named)
            self.outgoing += len(command).to_bytes(4, "big") + command


class AmpsPlainResults(AmpsQueue):
    name = "amps-plain"
    title = "acknowledgements and publishes"
    recorded = "^bench"
    pace = 150_000
    worker: type[PlainWorker | TransactionalWorker] = PlainWorker
    batch = 1

    def consumers(self, count: int, messages: int) -> Sequence[Consumer]:
        made = [self.worker(self.open()) for _ in range(count)]
        for worker in made:
            worker.batch = self.batch
        return made


class AmpsTransactions(AmpsPlainResults):
    name = "amps-transactions"
    title = "transactions"
    worker = TransactionalWorker


class AmpsPlainBatches(AmpsPlainResults):
    name = "amps-plain-batches"
    title = f"acknowledgements and publishes, batches of {ACK_BATCH}"
    batch = ACK_BATCH


class AmpsTransactionBatches(AmpsTransactions):
    name = "amps-transaction-batches"
    title = f"transactions, batches of {ACK_BATCH}"
    batch = ACK_BATCH
