"""Settings and results that the scenarios share."""

import statistics
from dataclasses import dataclass, field

from perf.peers.base import Peer


@dataclass(frozen=True)
class Settings:
    """The settings that the user may choose."""

    seconds: float | None = None  # None, here and below: the scenario's default
    messages: int | None = None
    connections: int = 2
    rate: int | None = None
    repetitions: int = 5
    profile: str | None = None
    """Profile clients; the files' names begin with this path."""


@dataclass(frozen=True)
class CpuTime:
    """Processor seconds by process."""

    by_process: dict[str, float]

    @property
    def total_s(self) -> float:
        return sum(self.by_process.values())

    def since(self, earlier: "CpuTime") -> "CpuTime":
        return CpuTime(
            {
                name: round(used - earlier.by_process.get(name, 0.0), 3)
                for name, used in self.by_process.items()
            }
        )


@dataclass(frozen=True)
class Measurement:
    """One run of one peer: figures by name, in the units of the names, and processor time."""

    values: dict[str, float]
    messages: int
    elapsed_s: float
    cpu: CpuTime
    """Processor time of the peer, without the load generator."""
    load_cpu_s: float = 0.0
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        count = max(self.messages, 1)
        return {
            **self.values,
            "messages": self.messages,
            "elapsed_s": round(self.elapsed_s, 4),
            "cpu_us_per_message": round(self.cpu.total_s / count * 1e6, 3),
            "load_cpu_us_per_message": round(self.load_cpu_s / count * 1e6, 3),
            "cpu_s": self.cpu.by_process,
            "notes": self.notes,
        }


@dataclass
class PeerResult:
    """All repetitions of one peer."""

    peer: Peer
    version: str
    runs: list[Measurement] = field(default_factory=list)

    def median(self, value: str) -> float:
        return statistics.median(run.values[value] for run in self.runs)

    def extremes(self, value: str) -> tuple[float, float]:
        """The lowest and the highest of all repetitions."""
        values = [run.values[value] for run in self.runs]
        return min(values), max(values)

    @property
    def cpu_per_message_us(self) -> float:
        return statistics.median(run.cpu.total_s / max(run.messages, 1) for run in self.runs) * 1e6
