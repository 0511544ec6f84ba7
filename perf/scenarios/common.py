"""Settings and results that the scenarios share."""

from dataclasses import dataclass, field

from perf.peers.base import CpuTime


@dataclass(frozen=True)
class Settings:
    """What the user may choose."""

    seconds: float = 10.0
    messages: int | None = None  # None: what the scenario finds right
    connections: int = 2
    rate: int = 10_000
    repetitions: int = 5


@dataclass(frozen=True)
class Measurement:
    """One run against one peer: figures by name, in the units of the names, and who used the processors."""

    values: dict[str, float]
    messages: int
    elapsed_s: float
    server_cpu: CpuTime
    load_cpu_s: float
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        count = max(self.messages, 1)
        return {
            **self.values,
            "messages": self.messages,
            "elapsed_s": round(self.elapsed_s, 4),
            "server_cpu_us_per_message": round(self.server_cpu.total_s / count * 1e6, 3),
            "load_cpu_us_per_message": round(self.load_cpu_s / count * 1e6, 3),
            "server_cpu_s": self.server_cpu.by_process,
            "notes": self.notes,
        }
