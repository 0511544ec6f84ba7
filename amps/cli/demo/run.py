"""The steps of the demonstration: publish, kill, restart, resume, replay, prove."""

import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import click

from amps.cli.demo.display import Display
from amps.cli.demo.flights import TOPIC_PREFIX, Flights, FlightsMissing, load
from amps.cli.demo.proof import Ledger, compare
from amps.cli.demo.server import DemoServer, ServerFailed
from amps.cli.publishing import ReliablePublisher
from amps.client import EPOCH, AckType, Client, Command
from amps.client.errors import AMPSException
from amps.client.stores import MemoryPublishStore

ACK_CONFLATION = "ack_conflation=20ms"
UPDATE_EVERY = 256  # messages between two updates of the display
QUIET_S = 30.0  # a replay without a message for this time has failed
FINISH_S = 60.0
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@dataclass
class Figures:
    """The figures that are shown at the end."""

    publish_s: float = 0.0
    outage_s: float = 0.0
    restart_s: list[float] = field(default_factory=list)
    replay_s: float = 0.0
    resent: int = 0


class AcknowledgedLost(RuntimeError):
    """The restarted server lacks a message that it had acknowledged."""


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the block by an exception, as Ctrl-C does, so that it is cleaned up."""

    def end(number: int, frame: FrameType | None) -> None:
        for each in ENDING_SIGNALS:
            signal.signal(each, signal.SIG_IGN)  # a second signal must not interrupt the cleanup
        raise SystemExit(128 + number)

    before = {
        each: signal.signal(each, end)
        for each in ENDING_SIGNALS
        if signal.getsignal(each) is not signal.SIG_IGN  # nohup
    }
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


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


def replay_all(total: int, server: DemoServer, display: Display, figures: Figures) -> Ledger:
    """Return all messages of the log from its beginning to the `completed` acknowledgement."""
    replayed = Ledger()
    command = Command("subscribe", f"^{TOPIC_PREFIX}", bookmark=EPOCH, ack_type=AckType.COMPLETED)
    with Client("amps-demo-reader", f"tcp://demo@127.0.0.1:{server.port}/amps/json") as client:
        started = time.monotonic()
        with display.progress("replaying", total) as update, client.execute(command, control=True) as stream:
            while (message := stream.get(QUIET_S)) is not None:
                if message.is_content:
                    replayed.add(message.topic or "", message.data)
                    if len(replayed.ids) % UPDATE_EVERY == 0:
                        update(len(replayed.ids), "")
                elif message.command == "ack" and message.ack_type == AckType.COMPLETED:
                    figures.replay_s = time.monotonic() - started
                    return replayed
    raise ServerFailed(f"the replay stopped after {len(replayed.ids)} messages for {QUIET_S:g} s")


def run_demo(
    context: click.Context, messages: int | None, kills: int, data_directory: Path | None, seed: int | None
) -> None:
    """Run the command with its options; on failure end it through the context."""
    display = Display()
    try:
        with ExitStack() as cleanup:
            cleanup.enter_context(ended_by_signals())
            directory = make_data_directory(data_directory, cleanup)
            if not tell_story(messages, kills, directory, random.Random(seed), display, cleanup):
                context.exit(1)
    except FlightsMissing as error:
        raise click.UsageError(str(error)) from None
    except (AMPSException, ServerFailed, AcknowledgedLost, OSError) as error:
        display.say(f"[bold red]failed:[/bold red] {error}")
        context.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def make_data_directory(asked_for: Path | None, cleanup: ExitStack) -> Path:
    """Return an empty directory: the requested one, or a temporary one that is removed at the end."""
    try:
        if asked_for is None:
            temporary = cleanup.enter_context(tempfile.TemporaryDirectory(prefix="amps-demo-"))
            directory = Path(temporary) / "data"
        else:
            directory = asked_for
            if directory.exists() and any(directory.iterdir()):
                raise click.UsageError(f"{directory} is not empty: its messages would be replayed as well")
        directory.mkdir(parents=True, exist_ok=True)
        return directory
    except OSError as error:
        raise click.UsageError(f"cannot make the data directory: {error}") from None


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
    replayed = replay_all(len(flights), server, display, figures)
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
