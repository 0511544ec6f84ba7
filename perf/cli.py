"""Command line of the suite."""

import sys
from datetime import datetime
from pathlib import Path

import click

from perf import report
from perf.peers import FAMILIES, PEERS, chosen
from perf.pump import PeerError
from perf.run import ScenarioResult, run_scenario
from perf.scenarios import SCENARIOS, Settings

DEFAULT_OUTPUT = Path(__file__).parent / "results"


@click.command()
@click.argument("scenario", type=click.Choice(["list", "all", *SCENARIOS]), default="list")
@click.option(
    "--peers", default=",".join(FAMILIES), show_default=True, help="Families or names, comma-separated."
)
@click.option(
    "--seconds", default=Settings.seconds, show_default=True, help="Limit of a run; length of a latency run."
)
@click.option(
    "--messages",
    type=click.IntRange(1),
    help="Messages of a throughput run. [default: 4,000,000 publishes, 1,000,000 for replay]",
)
@click.option(
    "--connections", default=Settings.connections, show_default=True, help="Publishing connections."
)
@click.option(
    "--rate", default=Settings.rate, show_default=True, help="Messages per second of a latency run."
)
@click.option(
    "--repetitions", default=Settings.repetitions, show_default=True, help="Runs per peer, interleaved."
)
@click.option(
    "--directory", type=click.Path(path_type=Path), help="Where servers keep data; a file system, not tmpfs."
)
@click.option("--output", type=click.Path(path_type=Path), help="JSON file; a Markdown table goes beside it.")
def main(
    scenario: str,
    peers: str,
    seconds: float,
    messages: int | None,
    connections: int,
    rate: int,
    repetitions: int,
    directory: Path | None,
    output: Path | None,
) -> None:
    """Measure one SCENARIO, or all; without one, list what there is."""
    if scenario == "list":
        for entry in SCENARIOS.values():
            names = ", ".join(peer.name for peer in PEERS.values() if entry.name in peer.scenarios)
            click.echo(f"{entry.name:<16} {entry.question}\n{'':<16} peers: {names}")
        return
    settings = Settings(seconds, messages, connections, rate, repetitions)
    output = output or DEFAULT_OUTPUT / f"{scenario}-{datetime.now():%Y%m%d-%H%M%S}.json"
    results: list[ScenarioResult] = []
    for name in SCENARIOS if scenario == "all" else [scenario]:
        click.echo(f"{name}: {SCENARIOS[name].question}")
        try:
            wanted = chosen(peers.split(","), name)
            results.append(run_scenario(SCENARIOS[name], wanted, settings, directory, click.echo))
        except (PeerError, ValueError) as error:
            click.echo(f"error: {error}", err=True)
            sys.exit(1)
        report.write(results, output)
    click.echo(f"\n{report.markdown(results)}\nwritten: {output} and {output.with_suffix('.md').name}")
