"""Command line of the suite."""

import sys
from datetime import datetime
from pathlib import Path

import click

from perf import report
from perf.measurement import Settings
from perf.pump import PeerError
from perf.run import ScenarioResult, run_scenario
from perf.scenarios import SCENARIOS, chosen_peers, chosen_scenarios
from perf.tables import OWN


def wanted_peers(peers: str | None, ours_only: bool) -> list[str]:
    """The names and families that the options ask for; empty: all."""
    if peers and ours_only:
        raise ValueError("--peers and --ours-only exclude each other")
    return [OWN] if ours_only else peers.split(",") if peers else []


DEFAULT_OUTPUT = Path(__file__).parent / "results"


@click.command()
@click.argument("scenario", default="list")
@click.option("--peers", help="Names or families, such as amps or redis, comma-separated. [default: all]")
@click.option("--ours-only", is_flag=True, help="Without other programs: the peers of the family amps.")
@click.option(
    "--profile",
    is_flag=True,
    help="Sample the client processes of the client scenarios with py-spy; folded stacks and a summary go beside the "
    "output.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    help="Limit of a run; length of a run of latency or filters; approximate length of a client scenario, and "
    "of queue-throughput per number of consumers. [default: 10, filters and clients 2, "
    "queue-throughput 4, queue-depth 30]",
)
@click.option(
    "--messages",
    type=click.IntRange(1),
    help="Messages of a throughput run. [default: 4,000,000 publishes, 1,000,000 for replay, "
    "100,000 different ones for filters, 50,000 per message type, 10,000,000 for queue-depth, "
    "queue-restart and replicate-catch-up, 2,000 topics for queue-topics; as many as a peer handles in a run for "
    "queue-throughput and clients]",
)
@click.option(
    "--connections", default=Settings.connections, show_default=True, help="Publishing connections."
)
@click.option(
    "--rate",
    type=click.IntRange(1),
    help="Messages per second of a latency run. [default: 10,000, queue-latency 250, "
    "replicate-catch-up 20,000]",
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
    peers: str | None,
    ours_only: bool,
    profile: bool,
    seconds: float | None,
    messages: int | None,
    connections: int,
    rate: int | None,
    repetitions: int,
    directory: Path | None,
    output: Path | None,
) -> None:
    """Measure a SCENARIO, a family of them such as filter, or all; without one, list the scenarios."""
    if scenario == "list":
        for entry in SCENARIOS.values():
            names = ", ".join(peer.name for peer in entry.peers)
            click.echo(f"{entry.name:<21} {entry.question}\n{'':<21} peers: {names}")
        return
    output = output or DEFAULT_OUTPUT / f"{scenario}-{datetime.now():%Y%m%d-%H%M%S}.json"
    profiles = str(output.absolute().with_suffix("")) if profile else None
    settings = Settings(seconds, messages, connections, rate, repetitions, profiles)
    results: list[ScenarioResult] = []
    try:
        scenarios = chosen_scenarios(scenario)
        takers = chosen_peers(scenarios, wanted_peers(peers, ours_only))
        for chosen, taking_part in zip(scenarios, takers, strict=True):
            if taking_part:
                click.echo(f"{chosen.name}: {chosen.question}")
                results.append(run_scenario(chosen, taking_part, settings, directory, click.echo))
                report.write(results, output)
    except (PeerError, ValueError) as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
    click.echo(f"\n{report.markdown(results)}\nwritten: {output} and {output.with_suffix('.md').name}")
