"""Messages per second through a queue when workers publish a result for each: in transactions, and without.

The clock runs as in `queue-throughput`: to the last acknowledgement that the server has confirmed. The results go to a
recorded topic without a queue. The ratio compares each way with the same batches without transactions.
"""

from collections.abc import Sequence
from pathlib import Path

from perf import tables
from perf.consuming import PREFETCH
from perf.load import PAYLOAD_BYTES
from perf.measurement import Measurement, PeerResult, Settings
from perf.peers.amps_results import (
    AmpsPlainBatches,
    AmpsPlainResults,
    AmpsTransactionBatches,
    AmpsTransactions,
)
from perf.peers.queueing import QueuePeer
from perf.scenarios.base import Scenario
from perf.scenarios.queue_throughput import measure_consumers, rate_of

CONSUMERS = 4
PLAIN = {"amps-transactions": "amps-plain", "amps-transaction-batches": "amps-plain-batches"}


class QueueTransactions(Scenario[QueuePeer]):
    name = "queue-transactions"
    question = "Messages per second of workers that publish a result for each message, in transactions and without"
    peers = (AmpsPlainResults(), AmpsTransactions(), AmpsPlainBatches(), AmpsTransactionBatches())

    def measure(self, peer: QueuePeer, settings: Settings, base: Path) -> Measurement:
        return measure_consumers(peer, settings, base, CONSUMERS)

    def table(self, settings: Settings, results: Sequence[PeerResult]) -> list[str]:
        details = (
            f"{PAYLOAD_BYTES}-byte payloads and results, {settings.connections} publishers, {CONSUMERS} workers, "
            f"prefetch {PREFETCH}, median of {settings.repetitions}"
        )
        rates = {result.peer.name: result.median(rate_of(CONSUMERS)) for result in results}
        rows = []
        for result in results:
            rate, plain = rates[result.peer.name], rates.get(PLAIN.get(result.peer.name, ""))
            ratio = "" if plain is None else f"{rate / plain:.0%}"
            rows.append([result.peer.title, f"{rate:,.0f}", ratio, f"{result.cpu_per_message_us:.2f}"])
        return tables.lines(
            f"**{self.name}** ({details}; messages/s)",
            ["workers", "messages/s", "of plain", "server CPU µs/message"],
            rows,
        )
