"""What writes of the journal take: how long, how large (operations.md §5.7: `write_latency`, `write_size`).

One write is a group commit: what collected since the one before, synced. The flusher notes them in shared memory, the
services process shows them; the numbers are those since the core was started.

Invariant: one writer. A reader may see a write's latency before its size; nothing depends on that.
"""

import mmap
from dataclasses import dataclass

BUCKETS = 64
_WORDS = BUCKETS + 2
BAR_WIDTH = 40


@dataclass(frozen=True, slots=True)
class Distribution:
    """How many values there were by powers of two: bucket n has those below 2**n that no smaller one has."""

    counts: tuple[int, ...]
    minimum: int
    maximum: int

    def histogram(self) -> str:
        """As text, one line a bucket from the first to the last that has any: range, count, bar."""
        used = [bucket for bucket, count in enumerate(self.counts) if count]
        if not used:
            return ""
        buckets = range(used[0], used[-1] + 1)
        most = max(self.counts)
        width = len(str(2 ** buckets[-1]))
        lines = []
        for bucket in buckets:
            first, last = (1 << bucket >> 1), max(0, (1 << bucket) - 1)
            bar = "#" * -(-BAR_WIDTH * self.counts[bucket] // most)
            lines.append(f"{first:>{width}} .. {last:>{width}} {self.counts[bucket]:>10} {bar}".rstrip())
        return "\n".join(lines) + "\n"


class _Numbers:
    """One distribution in shared memory: counts, minimum + 1 (0: no value yet), maximum."""

    def __init__(self, words: memoryview) -> None:
        self._words = words

    def read(self) -> Distribution:
        values = self._words.tolist()
        return Distribution(tuple(values[:BUCKETS]), max(0, values[BUCKETS] - 1), values[BUCKETS + 1])


class WriteStatistics:
    """The distributions of latency (in microseconds) and size (in bytes)."""

    def __init__(self) -> None:
        self.words = memoryview(mmap.mmap(-1, 16 * _WORDS)).cast("Q")
        """Of latency, then of size; the flusher counts in amps/_core/journal/group_commit.pxi."""
        self._latency = _Numbers(self.words[:_WORDS])
        self._size = _Numbers(self.words[_WORDS:])

    def reset(self) -> None:
        """Begin anew, with a new core."""
        for index in range(len(self.words)):
            self.words[index] = 0

    def latency(self) -> Distribution:
        """In microseconds."""
        return self._latency.read()

    def size(self) -> Distribution:
        """In bytes."""
        return self._size.read()
