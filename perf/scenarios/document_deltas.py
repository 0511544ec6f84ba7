"""The cost of deltas and select lists in one process, against a JSON library and dicts."""

from collections.abc import Sequence

from perf import tables
from perf.measurement import PeerResult, Settings
from perf.peers.documents import OPERATIONS, OrjsonDocuments, OwnDocuments
from perf.scenarios.filters import DEFAULT_LENGTH_S, FilterScenario


class DocumentDeltas(FilterScenario):
    name = "document-deltas"
    question = "JSON messages per second and core that are merged with a delta, compared, and reduced by a select list"
    default_messages = 20_000
    peers = tuple(peer(operation) for operation in OPERATIONS for peer in (OwnDocuments, OrjsonDocuments))

    def table(self, settings: Settings, results: Sequence[PeerResult]) -> list[str]:
        by_name = {result.peer.name: result for result in results}
        rows = []
        for operation in OPERATIONS:
            ours, theirs = by_name.get(f"amps-{operation}"), by_name.get(f"orjson-{operation}")
            if ours is None or theirs is None:
                continue
            speeds = [result.median("messages_per_cpu_s") for result in (ours, theirs)]
            rows.append([operation, f"{speeds[0]:,.0f}", f"{speeds[1]:,.0f}", f"{speeds[0] / speeds[1]:.2f}×"])
        return tables.lines(
            f"**{self.name}** ({self.corpus.count:,} messages; {settings.seconds or DEFAULT_LENGTH_S:g} s, "
            f"median of {settings.repetitions})",
            ["operation", "this server, messages/s and core", "orjson and dicts", "ratio"],
            rows,
        )
