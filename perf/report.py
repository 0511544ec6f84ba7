"""Results as JSON (every repetition) and as Markdown tables (medians and ratios)."""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from perf.run import ScenarioResult


def as_json(results: list[ScenarioResult]) -> dict[str, object]:
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": results[0].machine if results else {},
        "versions": sorted({peer.version for result in results for peer in result.peers}),
        "scenarios": {
            result.scenario.name: {
                "question": result.scenario.question,
                "settings": asdict(result.settings),
                "peers": {
                    peer.peer.name: {
                        "median": {name: peer.median(name) for name in peer.runs[0].values},
                        "runs": [run.as_json() for run in peer.runs],
                    }
                    for peer in result.peers
                },
            }
            for result in results
        },
    }


def markdown(results: list[ScenarioResult]) -> str:
    """One table per scenario."""
    if not results:
        return ""
    machine = results[0].machine
    versions = sorted({peer.version for result in results for peer in result.peers})
    lines = [
        f"Measured on {datetime.now(UTC):%Y-%m-%d}: {machine['processor']}, {machine['cores']} cores "
        f"(shared by all processes), {machine['memory_gb']} GB, Linux {machine['kernel']}, "
        f"{machine['file_system']}, Python {machine['python']}, "
        f"load average before {machine['load_average_before']}. Versions: {', '.join(versions)}.",
    ]
    for result in results:
        lines += ["", *result.scenario.table(result.settings, result.peers)]
    return "\n".join(lines) + "\n"


def write(results: list[ScenarioResult], output: Path) -> None:
    """Write `x.json`, and `x.md` beside it."""
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(as_json(results), indent=2) + "\n")
    output.with_suffix(".md").write_text(markdown(results))
