"""The demonstration with two servers: each is killed in turn under progress, and everything fails over.

One publisher, one subscriber and four workers of a queue use both servers. This thread starts and kills them, since a
server ends with the thread that has started it. The subscriber reads only what both servers have on disk
(`fully_durable`), so it never sees a message that a failover takes back.
"""

import random
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import click

from amps.cli.demo.display import Display
from amps.cli.demo.flights import TOPIC_PREFIX, Flights
from amps.cli.demo.flights import load as load_flights
from amps.cli.demo.pair import NAMES, make_pair
from amps.cli.demo.proof import AcknowledgedLost, Ledger, compare
from amps.cli.demo.queue_workers import WORKERS, QueueWorkers
from amps.cli.demo.replaying import replay_all
from amps.cli.demo.server import DemoServer, ServerFailed
from amps.cli.demo.single import kill_points
from amps.client import EPOCH, Command, HAClient, MemoryPublishStore
from amps.client.errors import AMPSException

ACK_CONFLATION = "ack_conflation=10ms"
WINDOW = 10_000  # published messages that are not acknowledged yet
LOOK_EVERY_S = 0.05
DOWN_S = 1.0  # how long a killed server stays down
QUIET_S = 60.0  # without any progress for this time, the demonstration has failed
AFTERWARDS_S = 1.0  # a message that is delivered again would come within this time


@dataclass
class Progress:
    """What the publisher and the subscriber have done. Each field is written by one thread."""

    published: int = 0
    unacknowledged: int = 0
    received: Ledger = field(default_factory=Ledger)
    errors: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    all_published: threading.Event = field(default_factory=threading.Event)

    @property
    def acknowledged(self) -> int:
        return max(0, self.published - self.unacknowledged)


def publish(flights: Flights, servers: list[str], progress: Progress) -> None:
    """Publish all messages, whatever server is there, and wait until they are acknowledged."""
    store = MemoryPublishStore()
    try:
        with HAClient(
            "amps-demo-publisher", servers, publish_store=store, logon_options=ACK_CONFLATION
        ) as client:
            for topic, body in flights:
                client.publish(topic, body)
                progress.published += 1
                if progress.published % 64 == 0:
                    while (waiting := store.unpersisted_count()) > WINDOW and not progress.ended.is_set():
                        progress.unacknowledged = waiting
                        time.sleep(0.002)
                    progress.unacknowledged = waiting
                    if progress.ended.is_set():
                        return
            while (waiting := store.unpersisted_count()) and not progress.ended.is_set():
                progress.unacknowledged = waiting
                time.sleep(0.005)
            progress.unacknowledged = waiting
            progress.all_published.set()
    except AMPSException as error:
        progress.errors.append(f"publisher: {error}")


def receive(total: int, servers: list[str], progress: Progress) -> None:
    """Receive all messages by one bookmark subscription that goes on at the other server."""
    command = Command("subscribe", f"^{TOPIC_PREFIX}", bookmark=EPOCH, sub_id="demo", options="fully_durable")
    try:
        with HAClient("amps-demo-subscriber", servers) as client, client.execute(command) as stream:
            while not progress.ended.is_set():
                message = stream.get(LOOK_EVERY_S)
                if message is not None:
                    progress.received.add(message.topic or "", message.data)
                    message.discard()
                elif len(progress.received.ids) >= total and progress.all_published.is_set():
                    return
    except AMPSException as error:
        progress.errors.append(f"subscriber: {error}")


def direct(
    total: int,
    servers: list[DemoServer],
    kills: list[int],
    progress: Progress,
    workers: QueueWorkers,
    display: Display,
) -> list[float]:
    """Kill and restart the servers in turn, until everything has arrived; return the seconds of each restart."""
    restarts_s: list[float] = []
    last, progress_at = (0, 0, 0), time.monotonic()
    with display.progress("flying", total) as update:
        while not (
            progress.all_published.is_set()
            and len(progress.received.ids) >= total
            and len(workers.confirmed) >= total
        ):
            if errors := [*progress.errors, *workers.errors]:
                raise AcknowledgedLost("; ".join(errors))
            at = len(restarts_s)
            if at < len(kills) and progress.acknowledged >= kills[at]:
                restarts_s.append(kill_and_restart(at % len(servers), servers, progress, workers, display))
                progress_at = time.monotonic()
            done = (progress.acknowledged, len(progress.received.ids), len(workers.confirmed))
            if done != last:
                last, progress_at = done, time.monotonic()
            elif time.monotonic() - progress_at > QUIET_S:
                raise ServerFailed(
                    f"nothing moves for {QUIET_S:g} s: {done[0]:,} acknowledged, {done[1]:,} received, "
                    f"{done[2]:,} handled by workers"
                )
            update(done[0], f"{done[1]:,} received, {done[2]:,} handled")
            time.sleep(LOOK_EVERY_S)
    return restarts_s


def kill_and_restart(
    at: int, servers: list[DemoServer], progress: Progress, workers: QueueWorkers, display: Display
) -> float:
    """Kill one server, leave it down for a moment, and start it again; return the seconds of its start."""
    titles = servers[at].kill()
    display.say(
        f"[bold red]SIGKILL[/bold red] to {len(titles)} processes of {NAMES[at]} after {progress.acknowledged:,} "
        f"acknowledged, {len(progress.received.ids):,} received, {len(workers.confirmed):,} handled by workers"
    )
    time.sleep(DOWN_S)
    start_s = servers[at].start()
    display.say(f"{NAMES[at]} is back after recovery in {start_s:.2f} s")
    return start_s


def tell_story(
    messages: int | None,
    kills: int,
    data_directory: Path,
    chance: random.Random,
    display: Display,
    cleanup: ExitStack,
) -> bool:
    """Run all steps; return whether the proof holds."""
    flights = load_flights(messages)
    total = len(flights)
    if kills > total:
        raise click.UsageError(f"-kills {kills} needs as many messages, and there are {total}")
    display.say(f"{total:,} flights of {len(flights.topics)} airlines read")
    servers = make_pair(data_directory)
    for name, server in zip(NAMES, servers, strict=True):
        cleanup.callback(server.stop)
        display.say(
            f"{name} is up on port {server.port} in {server.start():.2f} s, data in {server.data_directory}"
        )
    uris = [f"tcp://demo@127.0.0.1:{server.port}/amps/json" for server in servers]
    progress = Progress()
    workers = QueueWorkers(uris)
    threads = [
        threading.Thread(target=publish, args=(flights, uris, progress)),
        threading.Thread(target=receive, args=(total, uris[::-1], progress)),
    ]

    def end() -> None:
        progress.ended.set()
        workers.stop()
        for thread in threads:
            if thread.ident is not None:
                thread.join()

    cleanup.callback(end)  # before the servers stop
    began = time.monotonic()
    workers.start()
    for thread in threads:
        thread.start()
    points = kill_points(total, kills, chance)
    restarts_s = direct(total, servers, points, progress, workers, display)
    took_s = time.monotonic() - began
    time.sleep(AFTERWARDS_S)
    end()
    return prove(flights, servers, progress, workers, restarts_s, took_s, display)


def prove(
    flights: Flights,
    servers: list[DemoServer],
    progress: Progress,
    workers: QueueWorkers,
    restarts_s: list[float],
    took_s: float,
    display: Display,
) -> bool:
    """Compare what the subscriber and the workers got, and the log of each server, with the source."""
    total = len(flights)
    source = Ledger(flights)
    ledgers = {"subscriber": progress.received}
    for name, server in zip(NAMES, servers, strict=True):
        ledgers[f"log of {name}"], _ = replay_all(total, server, display, f"log of {name}")
    holds = True
    for what, ledger in ledgers.items():
        proof = compare(source, ledger)
        display.say(
            f"{what}: {len(ledger.ids):,} messages, "
            + ("[green]same as published[/green]" if proof.holds else "[red]DIFFERENT[/red]")
        )
        for complaint in proof.complaints():
            display.say(f"[bold red]{what}: {complaint}[/bold red]")
        holds = holds and proof.holds
    missing = set(source.ids) - workers.confirmed
    again = workers.delivered_again
    shares = ", ".join(f"{count:,}" for count in workers.per_worker)
    display.say(
        f"queue: {len(workers.confirmed):,} messages handled by {WORKERS} workers ({shares}), "
        f"{workers.delivered - total - len(again):,} delivered again before they were acknowledged"
    )
    if missing:
        display.say(f"[bold red]the queue lost {len(missing):,} messages: {sorted(missing)[:10]}[/bold red]")
    if again:
        display.say(
            f"[bold red]{len(again):,} acknowledged messages were delivered again: {again[:10]}[/bold red]"
        )
    display.say(
        f"published, received and handled {total / (took_s - len(restarts_s) * DOWN_S):,.0f} messages/s, "
        f"with {len(restarts_s)} kills; longest restart {max(restarts_s, default=0.0):.2f} s"
    )
    holds = holds and not missing and not again
    if holds:
        display.say(
            f"[bold green]proved:[/bold green] all {total:,} messages are on both servers once, in order, byte for "
            "byte as published; each was handled, and none again after its acknowledgement"
        )
    return holds
