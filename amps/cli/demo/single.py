"""The demonstration with one server: publish, kill, restart, resume, replay, prove."""

import random
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import click

from amps.cli.demo.display import Display
from amps.cli.demo.flights import Flights, load
from amps.cli.demo.proof import AcknowledgedLost, Ledger, compare
from amps.cli.demo.replaying import replay_all
from amps.cli.demo.server import DemoServer
from amps.cli.publishing import ReliablePublisher
from amps.client import Client
from amps.client.stores import MemoryPublishStore

ACK_CONFLATION = "ack_conflation=20ms"
UPDATE_EVERY = 256  # messages between two updates of the display
FINISH_S = 60.0


@dataclass
class Figures:
    """The figures that are shown at the end."""

    publish_s: float = 0.0
    outage_s: float = 0.0
    restart_s: list[float] = field(default_factory=list)
    replay_s: float = 0.0
    resent: int = 0


def kill_points(messages: int, kills: int, chance: random.Random) -> list[int]:
    """Return the numbers of published messages after which the server is killed: random and spread out."""
    span = messages / (kills + 1)
    return [int(span * (number + 1) + chance.uniform(-0.25, 0.25) * span) for number in range(kills)]


def publish_all(
    flights: Flights, server: DemoServer, kills: list[int], display: Display, figures: Figures
) -> int:
    """Publish all messages, over all kills; return the number of acknowledged messages."""
    uri = f"tcp://demo@127.0.0.1:{server.port}/amps/json"

    def make_client(store: MemoryPublishStore) -> Client:
        return Client("amps-demo-publisher", uri, publish_store=store, logon_options=ACK_CONFLATION)

    publisher = ReliablePublisher(make_client)
    publisher.open()
    pending_kills = list(kills)
    total = len(flights)
    started = time.monotonic()
    try:
        with display.progress("publishing", total) as update:
            for topic, body in flights:
                publisher.publish(topic, body)
                published = publisher.published
                if published % UPDATE_EVERY == 0:
                    update(published, f"{publisher.acknowledged:,} acknowledged")
                if pending_kills and published >= pending_kills[0]:
                    pending_kills.pop(0)
                    kill_and_restart(server, publisher, display, figures, len(pending_kills))
            publisher.finish(FINISH_S)
            update(publisher.published, f"{publisher.acknowledged:,} acknowledged")
        figures.publish_s = time.monotonic() - started
        if publisher.failures:
            raise AcknowledgedLost(
                f"the server refused {publisher.failures} messages, first {publisher.first_failure}"
            )
        return publisher.acknowledged
    finally:
        publisher.close()


def kill_and_restart(
    server: DemoServer, publisher: ReliablePublisher, display: Display, figures: Figures, kills_left: int
) -> None:
    """Kill the whole server with SIGKILL, restart it on the same data, and let the publisher resume at its logon."""
    outage_began = time.monotonic()
    titles = server.kill()
    promised = publisher.store.last_persisted()
    display.say(
        f"[bold red]SIGKILL[/bold red] to {len(titles)} processes ({', '.join(titles)}) after "
        f"{publisher.published:,} published, {publisher.acknowledged:,} acknowledged"
    )
    figures.restart_s.append(server.start())
    display.say(f"server is back after recovery in {figures.restart_s[-1]:.2f} s")
    held, resent = publisher.reconnect()
    figures.resent += resent
    figures.outage_s += time.monotonic() - outage_began
    if held < promised:
        raise AcknowledgedLost(f"the server had acknowledged up to {promised} and came back with {held}")
    display.say(
        f"publisher resumes from the logon: server holds {held:,} (acknowledged were {promised:,}), "
        f"{resent:,} sent again"
    )
    if kills_left:
        each_s = figures.outage_s / len(figures.restart_s)
        display.say(f"kills to come: {kills_left}, about {kills_left * each_s:.0f} s")


def tell_story(
    messages: int | None,
    kills: int,
    data_directory: Path,
    chance: random.Random,
    display: Display,
    cleanup: ExitStack,
) -> bool:
    """Run all steps; return whether the proof holds."""
    figures = Figures()
    flights = load(messages)
    if kills > len(flights):
        raise click.UsageError(f"-kills {kills} needs as many messages, and there are {len(flights)}")
    display.say(f"{len(flights):,} flights of {len(flights.topics)} airlines read")
    server = DemoServer(data_directory)
    cleanup.callback(server.stop)
    display.say(f"server is up on port {server.port} in {server.start():.2f} s, data in {data_directory}")
    acknowledged = publish_all(flights, server, kill_points(len(flights), kills, chance), display, figures)
    display.say(f"{acknowledged:,} of {len(flights):,} published messages are acknowledged as persisted")
    source = Ledger(flights)
    replayed, figures.replay_s = replay_all(len(flights), server, display)
    display.say(f"{len(replayed.ids):,} messages replayed from the beginning of the log")
    proof = compare(source, replayed)
    display.proof(proof)
    for complaint in proof.complaints():
        display.say(f"[bold red]{complaint}[/bold red]")
    publishing_s = figures.publish_s - figures.outage_s
    display.say(
        f"published  {len(flights) / publishing_s:10,.0f} messages/s, each acknowledged after a disk sync"
    )
    if figures.restart_s:
        display.say(
            f"outages    {figures.outage_s:10.2f} s for {kills} kill{'s' * (kills != 1)}, longest restart "
            f"{max(figures.restart_s):.2f} s; {figures.resent:,} messages sent again"
        )
    display.say(
        f"replayed   {len(replayed.ids) / figures.replay_s:10,.0f} messages/s through the Python client"
    )
    if proof.holds:
        display.say(
            f"[bold green]proved:[/bold green] all {len(flights):,} messages are there once, "
            "in order, byte for byte as published"
        )
    return proof.holds
