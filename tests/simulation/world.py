"""The world of one seed: a machine with a disk and a clock, a server on it, clients around it, and their faults.

The server is the real `Core` with its real journal files, flusher and recovery. Only disk, clock and threads are
replaced, and a random schedule calls the server's steps in place of its loop. All random numbers come from one
generator, so a seed replays exactly.

Full journals are archived, compressed and removed now and then. The world reads their messages before it removes them
on purpose, so that everything can be checked as if it were still there.

After every death the server is started again on the remaining files (and may die while it recovers). Then all of
`checks` must hold. A refusal to start without damage is a failure too.
"""

import functools
import random
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from pathlib import Path

import msgpack

from amps.journal.moving import archive_journal
from amps.server.core import journal_retention, refusing, transient_files
from amps.server.core.journal_files import StorageFailure
from amps.server.core.journal_retention import VERBS
from amps.server.core.older import RecoveryRefused
from amps.server.shared.journal_view import at_once
from tests.simulation.checks import Entry, check_bookmarks, check_contents, check_order
from tests.simulation.clients import Client, Wire
from tests.simulation.damage import start_on_damaged_copy
from tests.simulation.disk import Died, SimulatedDisk
from tests.simulation.server import NAME, TRANSPORTS, Server, Settings, configured
from tests.simulation.subscriber import Subscriber
from tests.simulation.transports import Transport

YEAR_NS = 365 * 86400 * 10**9


class World:
    """Everything of one seed. `directory` is empty and on a fast file system."""

    damage_share = 0.4
    """The share of starts before which a start on a damaged copy is tried."""
    client_type = Client
    others: AbstractSet[int] = frozenset()
    """Publisher ids of other clients whose messages are in the log."""

    def __init__(self, seed: int, directory: Path, echo: bool = False) -> None:
        self.chance = chance = random.Random(seed)
        self.history: list[str] = []
        self._echo = echo
        self._directory = directory
        self._journal = directory / "journal"
        self._archive = directory / "archive"
        self._graves = directory / "graves"
        self._graves.mkdir()
        self._servers = 0
        self._read_before: dict[int, Entry] = {}  # of journals that were to be removed
        self.managed: dict[str, int] = dict.fromkeys(VERBS, 0)
        self.deaths = 0
        self.refusals_of_damage = 0
        self._clock_ns = 1_700_000_000 * 10**9 + seed
        ring_bytes = chance.choice([4096, 8192, 65536])
        journal_bytes = chance.choice([8192, 12288, 12288, 16384, 65536, 200_000])
        preallocated = chance.choice([1, 2, 3])
        self._settings = self._make_settings(journal_bytes, preallocated, ring_bytes)
        transient_files.SEGMENT_BYTES = 65536
        refusing.RETRY_NS = 0
        journal_retention.WAIT_S = 0.0  # waiting input is processed again with each step
        journal_retention.archive_journal = functools.partial(archive_journal, copying=chance.random() < 0.5)
        self.disk = SimulatedDisk(self._graves, chance)
        largest = chance.choice([40, 400, 3000])

        def size(chance: random.Random) -> int:
            return chance.randrange(1 << 18) if chance.random() < 0.002 else chance.randrange(largest)

        self.clients = [
            self.client_type(f"client-{n}", f"user-{n % 2}", size) for n in range(chance.choice([1, 3, 6]))
        ]
        self.subscribers = [Subscriber(), Subscriber()]
        self.server: Server
        self._transports: list[Transport | None] = [None] * TRANSPORTS
        self._dead_transports: list[int] = []  # died, not yet reported to the core
        self._machine_crashed = False  # since the watermark file was last written
        self._weights = {
            action: chance.choice([0.3, 1.0, 3.0]) * weight for action, weight in self._actions()
        }

    def _make_settings(self, journal_bytes: int, preallocated: int, ring_bytes: int) -> Settings:
        config = configured(journal_bytes, preallocated)
        return Settings(config, ring_bytes, lambda: self._clock_ns, self.trace)

    def _make_transport(self, index: int) -> Transport:
        return Transport(self.server.runtime, index, NAME, self.chance)

    def _started(self) -> None:
        """A server has recovered; no client has connected yet."""
        self._transports = [self._make_transport(index) for index in range(TRANSPORTS)]

    # Running

    def run(self, step_count: int) -> None:
        """Run the whole world: start, random actions, stop in order, final checks."""
        try:
            self._start()
            actions, weights = list(self._weights), list(self._weights.values())
            for action in self.chance.choices(actions, weights, k=step_count):
                self._clock_ns += self.chance.randrange(2_000_000)
                self._survive(action)
            self._settle()
        finally:
            self.disk.release()

    def run_to_death(self, calls: int, machine: bool) -> bool:
        """Run ordinary work only. The process, or the machine, dies at that call of the disk. Return False if the
        disk had fewer calls.
        """
        try:
            self._start()
            self.disk.arm(calls)
            died = False
            for step in range(40):
                self._clock_ns += 1_000_000
                try:
                    if step % 8 == 0:
                        self._connect()
                        self._housekeeping()
                    if step % 8 == 5:
                        self._manage()
                        self._look()
                        self._housekeeping()
                        self._housekeeping()
                    self._bustle()
                except Died:
                    died = True
                    self._restart(machine)
            self._settle()
            return died
        finally:
            self.disk.release()

    def trace(self, text: str) -> None:
        self.history.append(text)
        if self._echo:
            print(f"{self.disk.calls:6} {text}", flush=True)

    def _actions(self) -> list[tuple[Callable[[], None], float]]:
        return [
            (self._connect, 20),
            (self._bustle, 30),
            (self._send, 30),
            (self._receive, 30),
            (self._publish, 30),
            (self._turn, 30),
            (self._look, 8),
            (self._flush_step, 15),
            (self._housekeeping, 20),
            (self._manage, 12),
            (self._work, 30),
            (self._flush_command, 5),
            (self._deliver, 8),
            (self._hang_up, 1),
            (self._kill_transport, 0.8),
            (self._tell_core, 10),
            (self._kill_server, 0.4),
            (self._crash_machine, 0.4),
            (self._light_fuse, 0.8),
            (self._fail_sync, 0.2),
            (self._fill_disk, 0.6),
            (self._make_read_only, 0.4),
            (self._stop_in_order, 0.4),
            (self._jump_clock, 0.3),
        ]

    def _survive(self, action: Callable[[], None]) -> None:
        """Run an action; if the core dies of it, start again."""
        try:
            action()
        except Died:
            self.trace("the core died")
            self._restart(machine=self.chance.random() < 0.5)
        except StorageFailure as failure:
            self.trace(f"the core ended: {failure}")
            self._restart(machine=self.chance.random() < 0.3)

    # Actions of clients and transports

    def _connect(self) -> None:
        client = self.chance.choice(self.clients)
        transport = self.chance.choice(self._transports)
        if transport is None:
            return
        user = client.user if self.chance.random() < 0.95 else "somebody else"
        wire = Wire(client, user)
        # Without the name in use, a wrong user would simply receive it.
        if user != client.user and (client.wire is None or client.wire.closed or not client.wire.ready):
            return
        if transport.connect(wire):
            self.trace(f"{client.name} connects to transport {transport.index} as {user}")
            if user == client.user:
                client.wire = wire
            else:
                client.strangers += 1

    def _send(self) -> None:
        wires = [c.wire for c in self.clients if c.wire is not None and c.wire.ready and not c.wire.closed]
        if wires:
            wire = self.chance.choice(wires)
            if len(wire.to_server) < 20_000:
                wire.publish_some(self.chance)
                if self.chance.random() < 0.1:
                    wire.publish_again(self.chance)

    def _bustle(self) -> None:
        """Run ordinary work: each step once, in the ordinary order."""
        self._send()
        for transport in self._transports:
            if transport is not None:
                transport.receive()
                transport.publish()
        self._turn()
        if self.chance.random() < 0.5:
            self._flush_step()
        for transport in self._transports:
            if transport is not None:
                transport.work()

    def _any_transport(self) -> Transport | None:
        return self.chance.choice(self._transports)

    def _receive(self) -> None:
        if (transport := self._any_transport()) is not None:
            transport.receive()

    def _publish(self) -> None:
        if (transport := self._any_transport()) is not None:
            transport.publish()

    def _work(self) -> None:
        if (transport := self._any_transport()) is not None:
            transport.work()

    def _flush_command(self) -> None:
        if (transport := self._any_transport()) is not None:
            for session in list(transport.sessions.values()):
                transport.flush(session)

    def _hang_up(self) -> None:
        transport = self._any_transport()
        if transport is not None and transport.sessions:
            transport.end(self.chance.choice(list(transport.sessions.values())))

    def _deliver(self) -> None:
        subscriber = self.chance.choice(self.subscribers)
        if self.chance.random() < 0.2:
            subscriber.disconnect()
        durable = self.server.runtime.control.durable
        subscriber.run(self.server.log, durable, self._removed(), self.chance.choice([1, 5, None]))
        self.server.log.view.release_unused()

    # Actions of the core

    def _turn(self) -> None:
        self.server.core.turn()

    def _look(self) -> None:
        self.server.core.look()
        for message in self.server.supervisor.from_core:
            assert message[0] == "transport drained", message
            index = message[1]
            assert isinstance(index, int)
            assert self._transports[index] is None
            self.trace(f"transport {index} starts again")
            self._transports[index] = self._make_transport(index)
        self.server.supervisor.from_core.clear()
        for _, outcome, *rest in self.server.runtime.requests.from_core:
            assert outcome == "ok", rest
        self.server.runtime.requests.from_core.clear()

    def _manage(self) -> None:
        """Request that journals are archived, compressed or removed."""
        full = [row for row in self.server.retention.rows() if row["full"]]
        if not full:
            return
        verb = self.chance.choice(VERBS)
        number = self.chance.choice(full)["number"]
        end = self.server.log.view.directory.start_position(number + 1)
        if verb == "remove" and not self._may_remove(end):
            return
        self.trace(f"journals up to {number} are to be {verb}d")
        if verb == "remove":
            for entry in self.server.log.read():
                if entry.position < end:
                    self._read_before[entry.position] = entry
        self.managed[verb] += 1
        self.server.runtime.requests.to_core.append(msgpack.packb([1, verb, {"up_to": number}]))

    def _may_remove(self, end: int) -> bool:
        """True if the journals may be removed that hold records before a log position."""
        return True

    def _removed(self) -> list[Entry]:
        """Messages that readers no longer find because they were removed on purpose."""
        first = self.server.first_position()
        return [entry for position, entry in sorted(self._read_before.items()) if position < first]

    def _flush_step(self) -> None:
        flusher = self.server.core._flusher
        assert flusher is not None
        flusher.step()

    def _housekeeping(self) -> None:
        files = self.server.core._journal_files
        assert files is not None
        for _ in range(self.chance.randint(1, 8)):
            files.step()

    # Faults

    def _kill_transport(self) -> None:
        index = self.chance.randrange(TRANSPORTS)
        transport = self._transports[index]
        if transport is not None:
            self.trace(f"transport {index} is killed")
            transport.die()
            self._transports[index] = None
            self._dead_transports.append(index)

    def _tell_core(self) -> None:
        """The supervisor has reaped dead transports: in any order, at any later time."""
        if self._dead_transports:
            index = self._dead_transports.pop(self.chance.randrange(len(self._dead_transports)))
            self.server.runtime.control.set_transport_alive(index, False)
            self.server.supervisor.to_core.append(msgpack.packb(["transport died", index]))

    def _kill_server(self) -> None:
        self.trace("the server is killed")
        self._restart(machine=False)

    def _crash_machine(self) -> None:
        self.trace("the machine crashes")
        self._restart(machine=True)

    def _light_fuse(self) -> None:
        self.disk.arm(self.chance.randint(1, 25))

    def _fail_sync(self) -> None:
        self.trace("the next sync fails")
        self.disk.failing_syncs = 1

    def _fill_disk(self) -> None:
        self.disk.full = not self.disk.full
        self.trace(f"the disk is {'full' if self.disk.full else 'free again'}")

    def _make_read_only(self) -> None:
        self.disk.read_only = not self.disk.read_only
        self.trace(f"the disk can be {'read' if self.disk.read_only else 'written'}")

    def _jump_clock(self) -> None:
        self._clock_ns += self.chance.choice([-1, 1]) * self.chance.randrange(YEAR_NS // 10)

    def _stop_in_order(self) -> None:
        self.trace("the server stops in order")
        while self.server.core.turn():
            pass
        self.server.core.close()
        self._restart(machine=self.chance.random() < 0.5)

    # Deaths and starts

    def _restart(self, machine: bool) -> None:
        """The process, or the whole machine, has died; start again on the remaining files."""
        self.deaths += 1
        for transport in self._transports:
            if transport is not None:
                transport.die()
        self._transports = [None] * TRANSPORTS
        self._dead_transports.clear()
        for subscriber in self.subscribers:
            subscriber.disconnect()
        self.server.end()
        self._end_of_process(machine)
        self._start()

    def _end_of_process(self, machine: bool) -> None:
        self.disk.process_ended()
        if machine:
            self.trace("and with it the machine")
            self.disk.machine_crashed()
            self._machine_crashed = True

    def _start(self) -> None:
        if not self._machine_crashed and self._servers and self.chance.random() < self.damage_share:
            self._start_on_damage()
        while True:
            server = Server(self._settings, self._journal, self._archive, self.disk, self._new_scratch())
            if self.chance.random() < 0.3:
                self.disk.arm(self.chance.randint(1, 30))
            try:
                server.core.open()
                break
            except Died:
                self.trace("the core died while it started")
                server.end()
                self._end_of_process(self.chance.random() < 0.5)
            except (StorageFailure, OSError) as failure:
                self.trace(f"refused: {failure}")
                if not (self.disk.full or self.disk.read_only or "Input/output error" in str(failure)):
                    raise AssertionError(f"refused without a reason: {failure}") from failure
                server.end()
                self.disk.full = self.disk.read_only = False
                self._end_of_process(False)
            except RecoveryRefused as refused:
                raise AssertionError(f"refused without damage: {refused}") from refused
        self._machine_crashed = False
        self.server = server
        self._started()
        self.trace(f"started, the log ends at {server.runtime.control.durable}")
        self._check()

    def _new_scratch(self) -> Path:
        self._servers += 1
        return self._directory / f"run-{self._servers}"

    def _start_on_damage(self) -> None:
        self.refusals_of_damage += start_on_damaged_copy(
            self._settings,
            (self._journal, self._archive),
            self._new_scratch(),
            self._graves,
            self.chance,
            max((subscriber.seen for subscriber in self.subscribers), key=len),
            [entry for _, entry in sorted(self._read_before.items())],
            self.clients,
            self.others,
        )

    # Checks

    def _check(self) -> list[Entry]:
        """Check all invariants. Return all messages there were, including those that were removed on purpose."""
        removed = self._removed()
        left = self.server.log.read()
        for entry in left:
            assert self._read_before.get(entry.position, entry) == entry, f"{entry} was another one"
        for entry in removed[-3:]:
            assert at_once(self.server.log.view.find(*entry.bookmark, {})) is None, (
                f"{entry} is removed and found"
            )
        entries = [*removed, *left]
        check_order(entries)
        own = [entry for entry in entries if entry.publisher_id not in self.others]
        check_contents(own, self.clients, NAME)
        for subscriber in self.subscribers:
            subscriber.check(entries)
        check_bookmarks(self.server.log, left, self.chance, 4)
        for entry in entries:
            # This holds for removed messages too: a duplicate must stay one.
            assert self.server.core.sequencer.last_sequence(entry.publisher_id) >= entry.sequence
        return entries

    def _settle(self) -> None:
        """Without faults from here on: all clients send their remaining messages, and all of them must arrive."""
        self.disk.calm()
        self.trace("quiet from here on")
        self._settle_with_fresh_server()
        for client in self.clients:
            self._publish_rest(client)
        entries = self._check()
        for client in self.clients:
            assert client.acked >= client.last_kept, f"{client.name} was never fully acknowledged"
        for subscriber in self.subscribers:
            subscriber.disconnect()
            subscriber.run(self.server.log, self.server.runtime.control.durable, self._removed())
            assert subscriber.seen == entries
        check_bookmarks(self.server.log, self.server.log.read(), self.chance, 60)
        self._settled()
        self.server.core.close()
        self.server.end()

    def _settled(self) -> None:
        """Called when everything was published and checked; the server still runs."""

    def _settle_with_fresh_server(self) -> None:
        for transport in self._transports:
            if transport is not None:
                transport.die()
        self._transports = [None] * TRANSPORTS
        for subscriber in self.subscribers:
            subscriber.disconnect()
        self.server.end()
        self.disk.process_ended()
        self.server = Server(self._settings, self._journal, self._archive, self.disk, self._new_scratch())
        self.server.core.open()
        self._started()
        self._check()

    def _publish_rest(self, client: Client) -> None:
        transport = self._transports[0]
        assert transport is not None
        wire = Wire(client, client.user)
        assert transport.connect(wire)
        for _ in range(100_000):
            if wire.ready and not wire.to_server:
                if client.acked >= client.last_kept:
                    break
                rest = [s for s in client.store if s >= wire.next_sequence]
                for sequence in rest[:20]:
                    wire.to_server += client.store[sequence].frame(False)
                    wire.next_sequence = sequence + 1
            transport.receive()
            transport.publish()
            self.server.core.turn()
            self._flush_step()
            self._housekeeping()
            transport.work()
        session = next(iter(transport.sessions.values()))
        transport.end(session)
