"""Results as JSON (every repetition) and as Markdown tables (medians and ratios)."""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from perf.run import PeerResult, ScenarioResult

OWN = "amps"


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


def ratio(own: PeerResult | None, peer: PeerResult, value: str, higher_is_better: bool) -> str:
    """How many times better ours is than this peer."""
    if own is None or own is peer:
        return ""
    ours, theirs = own.median(value), peer.median(value)
    return f"{ours / theirs if higher_is_better else theirs / ours:.2f}×"


def cpu_per_message_us(peer: PeerResult) -> float:
    runs = sorted(run.server_cpu.total_s / max(run.messages, 1) for run in peer.runs)
    return runs[len(runs) // 2] * 1e6


def markdown(results: list[ScenarioResult]) -> str:
    """One table per scenario."""
    if not results:
        return ""
    machine = results[0].machine
    versions = sorted({peer.version for result in results for peer in result.peers})
    lines = [
        f"Measured on {datetime.now(UTC):%Y-%m-%d}: {machine['processor']}, {machine['cores']} cores "
        f"(shared by server and load), {machine['memory_gb']} GB, Linux {machine['kernel']}, "
        f"{machine['file_system']}, Python {machine['python']}, "
        f"load average before {machine['load_average_before']}. Versions: {', '.join(versions)}.",
    ]
    for result in results:
        lines += ["", *scenario_table(result)]
    return "\n".join(lines) + "\n"


def scenario_table(result: ScenarioResult) -> list[str]:
    settings = result.settings
    own = next((peer for peer in result.peers if peer.peer.name == OWN), None)
    if result.scenario.name == "live-latency":
        lines = [
            f"**{result.scenario.name}** ({settings.rate:,} messages/s for {settings.seconds:g} s, "
            f"median of {settings.repetitions})",
            "",
            "| peer | p50 µs | p99 µs | p99.9 µs | p50: ours better by | p99: ours better by |",
            "| --- | ---: | ---: | ---: | ---: | ---: |",
        ]
        return lines + [
            f"| {peer.peer.title} | {peer.median('p50_us'):,.0f} | {peer.median('p99_us'):,.0f} "
            f"| {peer.median('p999_us'):,.0f} | {ratio(own, peer, 'p50_us', False)} "
            f"| {ratio(own, peer, 'p99_us', False)} |"
            for peer in result.peers
        ]
    most = max(run.messages for peer in result.peers for run in peer.runs)
    details = [f"256-byte payloads, {most:,} messages"]
    if result.scenario.name == "publish-persist":
        details += [f"at most {settings.seconds:g} s", f"{settings.connections} connections"]
    lines = [
        f"**{result.scenario.name}** ({', '.join(details)}, median of {settings.repetitions})",
        "",
        "| peer | messages/s | ours is | server CPU µs/message | slowest … fastest run |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for peer in result.peers:
        rates = sorted(run.values["messages_per_s"] for run in peer.runs)
        lines.append(
            f"| {peer.peer.title} | {peer.median('messages_per_s'):,.0f} "
            f"| {ratio(own, peer, 'messages_per_s', True)} | {cpu_per_message_us(peer):.2f} "
            f"| {rates[0]:,.0f} … {rates[-1]:,.0f} |"
        )
    return lines


def write(results: list[ScenarioResult], output: Path) -> None:
    """`x.json` and beside it `x.md`."""
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(as_json(results), indent=2) + "\n")
    output.with_suffix(".md").write_text(markdown(results))
