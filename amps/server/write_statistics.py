"""Statistics of the journal's writes: duration and size (operations.md §5.7: `write_latency`, `write_size`).

One write is a group commit: a sync of all records since the one before. The flusher counts them in shared memory, the
services process reports them; the numbers are those since the core was started.

Invariant: one writer. A reader may see a write's latency before its size; no result depends on that.
"""

import mmap
from dataclasses import dataclass

BUCKETS = 64
_WORDS = BUCKETS + 2
BAR_WIDTH = 40


@dataclass(frozen=True, slots=True)
class Distribution:
    """Counts of values by powers of two: bucket n has the values below 2**n that are in no smaller bucket."""

    counts: tuple[int, ...]
    minimum: int
    maximum: int

    def histogram(self) -> str:
        """The counts as text, one line a bucket from the first to the last that is not empty: range, count, bar."""
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
        """Words of latency, then of size; the flusher counts in amps/_core/journal/group_commit.pxi."""
        self._latency = _Numbers(self.words[:_WORDS])
        self._size = _Numbers(self.words[_WORDS:])

    def reset(self) -> None:
        """Set all counts to 0, with a new core."""
        for index in range(len(self.words)):
            self.words[index] = 0

    def latency(self) -> Distribution:
        """The distribution of latencies, in microseconds."""
        return self._latency.read()

    def size(self) -> Distribution:
        """The distribution of sizes, in bytes."""
        return self._size.read()
