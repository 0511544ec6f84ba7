"""The world of one seed with a group of real instances: simulated time, network, disks; random work and faults.

Every instance is the real core and the real `Replication` (`group_instance`). A schedule of one random generator
decides who runs, what arrives, and what breaks, so a seed replays exactly. Client moves keep to the advice of
docs/spec/replication_histories.md, as in the model's plans (`group_plans`); the same invariants judge both.

Faults: connections are lost, delayed and cut off; bytes are cut anywhere; replication processes, transports, servers
and machines die, all machines at once as well; unsynced data is lost, writes are torn; disks are full or replaced by
empty ones; processes pause; clocks jump. Meanwhile journals are archived, compressed and removed, and subscribers move
(`group_subscribers`).
"""

import functools
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from amps._core.journal.reader import LogDamaged
from amps._core.shm.memory import MODE_SYNC
from amps._core.values.value import publisher_id
from amps.journal.moving import archive_journal
from amps.server.core import journal_retention, refusing, transient_files
from amps.server.core.journal_files import StorageFailure
from amps.server.core.older import RecoveryRefused
from amps.server.replication import destinations, incoming, outgoing
from tests.simulation.checks import check_order as check_own_order
from tests.simulation.disk import Died
from tests.simulation.group_checks import (
    Held,
    check_contents,
    check_equal,
    check_order,
    check_promises,
)
from tests.simulation.group_clients import Promise
from tests.simulation.group_instance import (
    FIRST_PORT,
    WORKERS,
    GroupClient,
    GroupInstance,
    GroupWire,
    config_of,
)
from tests.simulation.group_model import SYNC
from tests.simulation.group_network import Network
from tests.simulation.group_subscribers import GroupSubscriber, Readers
from tests.simulation.group_topologies import TOPOLOGIES, Topology

SECOND_NS = 10**9
QUIET_ROUNDS = 2000
"""Of 20 ms each: longer than all pauses and time limits of links together."""


@dataclass
class Home:
    """Where a client is, and may be."""

    client: GroupClient
    names: list[str]
    last: str | None = None
    visited: set[str] = field(default_factory=set)


NO_EMPHASIS: Mapping[str, float] = {}


class GroupWorld:
    """Everything of one seed. `directory` is empty and on a fast file system. `emphasis`: of `run_group_seed`."""

    def __init__(
        self,
        seed: int,
        directory: Path,
        echo: bool = False,
        topology: Topology | None = None,
        emphasis: Mapping[str, float] = NO_EMPHASIS,
    ) -> None:
        self.chance = chance = random.Random(seed)
        self._echo = echo
        self.history: list[str] = []
        self.deaths = 0
        self.now_ns = 1_700_000_000 * SECOND_NS
        transient_files.SEGMENT_BYTES = 65536
        refusing.RETRY_NS = 0
        journal_retention.WAIT_S = 0.0
        journal_retention.archive_journal = functools.partial(archive_journal, copying=False)
        _set_sizes(random.Random(seed) if seed % 5 == 3 else None)
        found = chance.choice(list(TOPOLOGIES.values()))
        self.topology = topology = topology or found
        self.network = Network(chance)
        journal_bytes = chance.choice([12288, 16384, 65536, 200_000])
        ring_bytes = chance.choice([8192, 16384, 65536])
        self.instances = {
            name: GroupInstance(
                config_of(topology, name, journal_bytes),
                FIRST_PORT + number,
                directory / name,
                chance,
                self.network,
                lambda: self.now_ns,
                self.trace,
                ring_bytes,
            )
            for number, name in enumerate(topology.groups)
        }
        largest = chance.choice([40, 400, 3000])

        def size(chance: random.Random) -> int:
            return chance.randrange(1 << 15) if chance.random() < 0.005 else chance.randrange(largest)

        self.homes: list[Home] = []
        for number in range(chance.choice([1, 2, 4])):
            client = GroupClient(f"client-{number}", f"user-{number}", size)
            client.promised = self._promised
            self.homes.append(Home(client, sorted(chance.choice(topology.moves))))
        self._names = {publisher_id(home.client.name): home.client for home in self.homes}
        self.promises: list[Promise] = []
        self._readers = Readers(self, seed)
        self._journals = random.Random(f"journals {seed}")
        self._verbs = ("archive", "compress", "remove") if self._journals.random() < 0.4 else ("archive", "compress")
        self.filling: set[str] = set()
        self._doomed: str | None = None
        self.downgrades = 0
        self.damages = 0
        self.tainted: set[tuple[str, int]] = set()
        """Destinations (instance, number) that were downgraded and have not caught up since."""
        self._has_async = any(way.mode != SYNC for way in topology.ways)
        self._weights = {
            action: chance.choice([0.3, 1.0, 3.0]) * weight * emphasis.get(action.__name__.strip("_"), 1.0)
            for action, weight in self._actions()
        }

    @property
    def subscribers(self) -> list[GroupSubscriber]:
        """All of them."""
        return self._readers.subscribers

    # Running

    def run(self, step_count: int) -> None:
        """Run the whole world: start, random actions, quiet, final checks."""
        try:
            for instance in self.instances.values():
                self._start(instance)
            actions, weights = list(self._weights), list(self._weights.values())
            for action in self.chance.choices(actions, weights, k=step_count):
                self.now_ns += self.chance.randrange(1_000_000)
                action()
                self._readers.step()
                self._manage_journals()
                self._strike()
            self._settle()
        finally:
            for instance in self.instances.values():
                instance.close()

    def trace(self, text: str) -> None:
        self.history.append(f"{(self.now_ns - 1_700_000_000 * SECOND_NS) / 1e9:9.4f} {text}")
        if self._echo:
            print(self.history[-1], flush=True)

    def _actions(self) -> list[tuple[Callable[[], None], float]]:
        return [
            (self._bustle, 60),
            (self._send, 30),
            (self._transport_step, 30),
            (self._core_step, 40),
            (self._flush, 25),
            (self._replication_step, 80),
            (self._deliver, 80),
            (self._housekeeping, 15),
            (self._look, 15),
            (self._pass_time, 12),
            (self._move_client, 6),
            (self._lose_connection, 1.5),
            (self._partition, 0.7),
            (self._heal, 2),
            (self._kill_replication, 0.8),
            (self._kill_transport, 0.5),
            (self._kill_server, 0.5),
            (self._crash, 0.5),
            (self._light_fuse, 0.8),
            (self._start_one, 6),
            (self._wipe, 0.3),
            (self._damage, 0.5),
            (self._downgrade, 0.3),
            (self._upgrade, 2),
            (self._pause, 0.7),
            (self._go_on, 4),
            (self._fill_disk, 0.4),
            (self._set_clock, 0.3),
        ]

    def _alive(self) -> list[GroupInstance]:
        return [one for one in self.instances.values() if one.alive and not one.paused]

    def _with_one(self, work: Callable[[GroupInstance], object]) -> None:
        """Do something with a random instance. If it dies of it, so be it."""
        alive = self._alive()
        if alive:
            self._survive(self.chance.choice(alive), work)

    def _survive(self, instance: GroupInstance, work: Callable[[GroupInstance], object]) -> None:
        try:
            work(instance)
        except (Died, StorageFailure) as death:
            self.trace(f"{instance.name} died: {death}")
            self._end(instance, machine=self.chance.random() < 0.4)

    # Work

    def _bustle(self) -> None:
        """One instance runs each of its steps once, in the ordinary order, and the network delivers."""
        self._with_one(self._bustle_of)
        self.network.deliver_some()

    def _bustle_of(self, instance: GroupInstance) -> None:
        for transport in instance.transports:
            if transport is not None:
                transport.receive()
                transport.publish()
        instance.turn()
        if self.chance.random() < 0.6:
            instance.flush()
        for transport in instance.transports:
            if transport is not None:
                transport.work()
        instance.run_replication(20)

    def _send(self) -> None:
        client = self.chance.choice(self.homes).client
        wire = client.wire
        if wire is not None and wire.ready and not wire.closed and len(wire.to_server) < 10_000:
            wire.publish_some(self.chance)

    def _transport_step(self) -> None:
        def step(instance: GroupInstance) -> None:
            transport = self.chance.choice(instance.transports)
            if transport is not None:
                self.chance.choice([transport.receive, transport.publish, transport.work])()

        self._with_one(step)

    def _core_step(self) -> None:
        self._with_one(lambda instance: instance.turn())

    def _flush(self) -> None:
        self._with_one(lambda instance: instance.flush())

    def _replication_step(self) -> None:
        self._with_one(lambda instance: instance.run_replication(self.chance.choice([1, 5, 50])))

    def _deliver(self) -> None:
        for _ in range(self.chance.choice([1, 4])):
            self.network.deliver_some()

    def _housekeeping(self) -> None:
        self._with_one(lambda instance: instance.housekeeping(self.chance.randint(1, 8)))

    def _manage_journals(self) -> None:
        """Seldom, and with a chance of its own: all else of a seed is as without it."""
        if self._journals.random() < 0.05:
            instance = self._journals.choice(list(self.instances.values()))
            if instance.alive and not instance.paused:
                verb = self._journals.choice(self._verbs)
                if verb != "remove" or not self.filling:
                    self._survive(instance, lambda one: one.manage_journals(verb, self._journals))

    def _look(self) -> None:
        self._with_one(lambda instance: instance.look())

    def _pass_time(self) -> None:
        self.now_ns += self.chance.choice([5_000_000, 50_000_000, 400_000_000, 3 * SECOND_NS])

    # Clients

    def _move_client(self) -> None:
        home = self.chance.choice(self.homes)
        name = self.chance.choice(home.names)
        instance = self.instances[name]
        if not instance.alive or instance.paused or not self.is_filled(name):
            return
        if not home.visited or name == home.last or self.may_move():
            self._connect(home, instance)

    def may_move(self) -> bool:
        """True if no destination was downgraded and has not caught up since (replication_histories.md, H-2 and H-4)."""
        for name, number in sorted(self.tainted):
            instance = self.instances[name]
            if instance.replication is None or instance.runtime is None:
                continue
            control = instance.runtime.control
            mode, acked, *_ = control.destination(number)
            connected = instance.replication.destinations[number].connection is not None
            if mode == MODE_SYNC and connected and acked >= control.watermarks()[0]:
                self.tainted.discard((name, number))
        return not self.tainted

    def _connect(self, home: Home, instance: GroupInstance) -> None:
        transport = self.chance.choice(instance.transports)
        if transport is None:
            return
        self._disconnect(home.client)
        wire = GroupWire(home.client, home.client.user)
        if transport.connect(wire):
            self.trace(f"{home.client.name} connects to {instance.name}")
            home.client.wire = wire
            home.last = instance.name
            home.visited.add(instance.name)

    def _disconnect(self, client: GroupClient) -> None:
        """The client's socket is gone; what it has sent may still be read."""
        if client.wire is not None:
            client.wire.closed = True
            for instance in self.instances.values():
                for transport in instance.transports:
                    for session in list(transport.sessions.values()) if transport is not None else []:
                        if session.wire is client.wire and transport is not None:
                            transport.end(session)

    def is_filled(self, name: str) -> bool:
        """True if an instance was never wiped, or holds again all that the others hold."""
        if name in self.filling:
            own = {message.bookmark for message in self._log_of(self.instances[name])}
            if all(
                message.bookmark in own
                for other in self.instances.values()
                if other.alive
                for message in self._log_of(other)
            ):
                self.filling.discard(name)
        return name not in self.filling

    def _promised(self, name: str, sequence: int) -> None:
        """A client was told that a message is persisted, by the instance that it is connected to."""
        home = next(home for home in self.homes if home.client.name == name)
        assert home.last is not None
        instance = self.instances[home.last]
        holders: set[tuple[str, int | str]] = {(instance.name, instance.epoch())}
        assert instance.replication is not None or instance.alive
        control = instance.runtime.control
        for index, destination in enumerate(
            instance.replication.destinations if instance.replication is not None else []
        ):
            saved = destination.saved()
            if control.destination(index)[0] == MODE_SYNC and saved.peer_name:
                holders.add((saved.peer_name, saved.peer_epoch))
        if (
            home.visited == {instance.name}
            and not self._has_async
            and not self.downgrades
            and not any(each.wipes for each in self.instances.values())
        ):
            # Recorded here first, so the whole tree of sync destinations has it (replication.md §24.7).
            holders |= {(each.name, each.epoch()) for each in self.instances.values()}
        if self.chance.random() < 0.04:
            self._doomed = self.chance.choice(sorted(found for found, _ in holders))
        self.promises.append(Promise((str(publisher_id(name)), sequence), frozenset(holders)))

    # Faults

    def _lose_connection(self) -> None:
        self.trace("a connection is lost")
        self.network.lose_one()

    def _partition(self) -> None:
        pair = frozenset(self.chance.sample(sorted(self.instances), 2))
        self.trace(f"nothing passes between {sorted(pair)}")
        self.network.partitions.add(pair)

    def _heal(self) -> None:
        self.network.partitions.clear()

    def _kill_replication(self) -> None:
        def kill(instance: GroupInstance) -> None:
            self.trace(f"the replication process of {instance.name} is killed")
            instance.kill_replication()

        self._with_one(kill)

    def _kill_transport(self) -> None:
        self._with_one(lambda instance: instance.kill_transport(self.chance.randrange(WORKERS)))

    def _end(self, instance: GroupInstance, machine: bool) -> None:
        self.deaths += 1
        instance.end(machine)

    def _kill_server(self) -> None:
        def kill(instance: GroupInstance) -> None:
            self.trace(f"{instance.name} is killed")
            self._end(instance, machine=False)

        self._with_one(kill)

    def _crash(self) -> None:
        """A machine crashes, or all of them do at the same moment."""
        alive = [one for one in self.instances.values() if one.alive]
        if alive and self.chance.random() < 0.7:
            alive = [self.chance.choice(alive)]
        for instance in alive:
            self.trace(f"the machine of {instance.name} crashes")
            self._end(instance, machine=True)

    def _strike(self) -> None:
        """An instance dies just after a promise that speaks for it: the moment at which a false promise shows."""
        name, self._doomed = self._doomed, None
        if name is not None and self.instances[name].alive:
            self.trace(f"{name} dies after a promise")
            self._end(self.instances[name], machine=self.chance.random() < 0.5)

    def _light_fuse(self) -> None:
        self._with_one(lambda instance: instance.disk.arm(self.chance.randint(1, 25)))

    def _fill_disk(self) -> None:
        def fill(instance: GroupInstance) -> None:
            instance.disk.full = not instance.disk.full
            self.trace(f"the disk of {instance.name} is {'full' if instance.disk.full else 'free again'}")

        self._with_one(fill)

    def _pause(self) -> None:
        def pause(instance: GroupInstance) -> None:
            self.trace(f"{instance.name} pauses")
            instance.paused = True

        self._with_one(pause)

    def _go_on(self) -> None:
        for instance in self.instances.values():
            instance.paused = False

    def _set_clock(self) -> None:
        instance = self.chance.choice(list(self.instances.values()))
        instance.clock.offset_ns += self.chance.choice([-1, 1]) * self.chance.randrange(1000 * SECOND_NS)
        self.trace(f"the clock of {instance.name} is set")

    def _downgrade(self) -> None:
        def downgrade(instance: GroupInstance) -> None:
            if instance.replication is None or instance.loop is None:
                return
            replication = instance.replication
            number = self.chance.randrange(len(replication.destinations))
            if replication.destinations[number].is_sync:
                self.trace(f"{instance.name} downgrades destination {number}")
                self.downgrades += 1
                self.tainted.add((instance.name, number))
                instance.loop.call(lambda: replication.downgrade(number, None))

        self._with_one(downgrade)

    def _upgrade(self) -> None:
        self._with_one(self._upgrade_of)

    def _upgrade_of(self, instance: GroupInstance) -> None:
        if instance.replication is None or instance.loop is None:
            return
        for number, destination in enumerate(instance.replication.destinations):
            way = [way for way in self.topology.ways if way.source == instance.name][number]
            if way.mode == SYNC and not destination.is_sync and destination.connection is not None:
                self.trace(f"{instance.name} upgrades destination {number}")
                instance.loop.call(functools.partial(instance.replication.upgrade, number))

    def _damage(self) -> None:
        """A bit of a journal of a dead instance flips, or a journal is cut off; if it notices, its disk is replaced."""
        instance = self.chance.choice(list(self.instances.values()))
        if not self._may_lose(instance):
            return
        if instance.alive:
            self._end(instance, machine=False)
        files = sorted(path for path in instance.journal.glob("*.journal") if path.stat().st_size)
        if not files:
            return
        path = self.chance.choice(files)
        size = path.stat().st_size
        place = self.chance.randrange(min(size, self.chance.choice([200, 5000, size])))
        cut = self.chance.random() < 0.3
        self.trace(f"{path.name} of {instance.name} is {'cut off' if cut else 'damaged'} at {place}")
        self.damages += 1
        with path.open("r+b") as file:
            if cut:
                file.truncate(place)
            else:
                file.seek(place)
                byte = file.read(1)[0]
                file.seek(place)
                file.write(bytes([byte ^ 1 << self.chance.randrange(8)]))
        try:
            instance.open()
            held = {message.bookmark for message in self._log_of(instance)}
        except (RecoveryRefused, LogDamaged) as found:
            self.trace(f"{instance.name} notices: {found}")
            instance.end(False)
            instance.wipe()
            self.filling.add(instance.name)
            return
        epoch = instance.epoch()
        for promise in self.promises:
            if (instance.name, epoch) in promise.holders:
                assert promise.bookmark in held, (
                    f"damage in {path.name} at {place} lost {promise.bookmark} silently"
                )
        instance.end(False)

    def _may_lose(self, instance: GroupInstance) -> bool:
        """True if the other instances hold all that was promised, durably, and are whole themselves."""
        others = [other for other in self.instances.values() if other is not instance]
        if self.filling or self.tainted or not all(other.alive for other in others):
            return False
        if any(other.removes for other in others):
            return False  # H-15: they cannot fill it again
        promised = {promise.bookmark for promise in self.promises}
        for other in others:
            durable = other.runtime.control.durable
            held = {
                (str(entry.publisher_id), entry.sequence)
                for entry in other.messages()
                if entry.position < durable
            }
            if promised - held:
                return False
        return True

    def _wipe(self) -> None:
        """Replace a disk; nobody publishes to it until it is filled again."""
        instance = self.chance.choice(list(self.instances.values()))
        if not self._may_lose(instance):
            return
        self.trace(f"{instance.name} loses its disk")
        if instance.alive:
            self._end(instance, machine=False)
        instance.wipe()
        self.filling.add(instance.name)

    # Starts

    def _start_one(self) -> None:
        dead = [one for one in self.instances.values() if not one.alive]
        if dead:
            self._start(self.chance.choice(dead))

    def _start(self, instance: GroupInstance) -> None:
        while True:
            if self.chance.random() < 0.1:
                instance.disk.arm(self.chance.randint(1, 30))
            try:
                instance.open()
                break
            except Died:
                self.trace(f"{instance.name} died while it started")
                instance.end(self.chance.random() < 0.5)
            except (StorageFailure, OSError) as failure:
                self.trace(f"{instance.name} refuses to start: {failure}")
                if not instance.disk.full:
                    raise
                instance.end(False)
                instance.disk.full = False
        instance.begin()
        self.trace(f"{instance.name} has started, its log ends at {instance.runtime.control.durable}")
        self._check_one(instance)

    # Checks

    def _log_of(self, instance: GroupInstance) -> list[Held]:
        return [
            Held(str(entry.publisher_id), entry.sequence, (entry.topic, entry.body, entry.user_id))
            for entry in instance.messages()
        ]

    def _check_one(self, instance: GroupInstance) -> None:
        """Check an instance that has just started: what its log holds is what is on its disk."""
        check_own_order(instance.messages())
        logs = {instance.name: self._log_of(instance)}
        check_promises(self.promises, logs, {instance.name: instance.epoch()})
        check_order(logs)
        self._check_contents(logs)

    def _check_contents(self, logs: dict[str, list[Held]]) -> None:
        """What a log holds was sent by a client, and has not changed."""
        check_contents(logs)
        for log in logs.values():
            for message in log:
                client = self._names[int(message.publisher)]
                sent = client.sent[message.sequence]
                assert message.content == (sent.topic, sent.body, client.user.encode()), message

    def _settle(self) -> None:
        """Quiet: all run, nothing breaks, all clients send what they have left; then all logs are equal."""
        self.trace("quiet from here on")
        self.network.partitions.clear()
        for instance in self.instances.values():
            instance.paused = False
            instance.disk.calm()
            if not instance.alive:
                instance.disk.full = False
                self._start_calmly(instance)
            instance.look()
        self._run_until(lambda: self._logs_equal(), "the logs do not become equal")
        for home in self.homes:
            name = home.last if home.last is not None else home.names[0]
            self._connect(home, self.instances[name])
        self._run_until(self._all_sent, "clients do not get their acknowledgements")
        self._run_until(lambda: self._logs_equal(), "the logs do not become equal")
        logs = {name: self._log_of(instance) for name, instance in self.instances.items()}
        check_equal(logs)
        check_order(logs)
        self._check_contents(logs)
        check_promises(self.promises, logs, {name: one.epoch() for name, one in self.instances.items()})
        self._run_until(self._readers.got_all, "subscribers do not get all messages")
        self._readers.check({(int(message.publisher), message.sequence) for log in logs.values() for message in log})

    def _start_calmly(self, instance: GroupInstance) -> None:
        instance.open()
        instance.begin()
        self._check_one(instance)

    def _logs_equal(self) -> bool:
        streams = []
        for instance in self.instances.values():
            if instance.runtime.control.durable < instance.runtime.control.watermarks()[0]:
                return False
            own: dict[str, list[int]] = {}
            for message in self._log_of(instance):
                own.setdefault(message.publisher, []).append(message.sequence)
            streams.append(own)
        return all(stream == streams[0] for stream in streams)

    def _all_sent(self) -> bool:
        done = True
        for home in self.homes:
            client, wire = home.client, home.client.wire
            if wire is None or wire.closed:
                self._connect(home, self.instances[home.last or home.names[0]])
                done = False
                continue
            if client.acked >= client.last_kept:
                continue
            done = False
            if wire.ready and not wire.to_server:
                rest = [sequence for sequence in client.store if sequence >= wire.next_sequence]
                for sequence in rest[:20]:
                    wire.to_server += client.store[sequence].frame(False)
                    wire.next_sequence = sequence + 1
        return done

    def _run_until(self, condition: Callable[[], bool], complaint: str) -> None:
        for number in range(QUIET_ROUNDS):
            self.now_ns += 20_000_000
            for instance in self.instances.values():
                self._bustle_of(instance)
                instance.flush()
                instance.housekeeping(4)
                instance.look()
                instance.run_replication(200)
                self._upgrade_of(instance)
            self.network.deliver_all()
            if number % 10 == 9 and condition():
                return
        raise AssertionError(complaint)


def _set_sizes(chance: random.Random | None) -> None:
    """Set the sizes of batches, scans, parts and windows: as in a server, or with `chance` so small that a few messages
    need several.
    """

    def size(ordinary: int, *small: int) -> int:
        return ordinary if chance is None else chance.choice([ordinary, *small])

    outgoing.BATCH_BYTES = size(1 << 20, 500, 5000)
    destinations.SCAN_BYTES = incoming.SCAN_BYTES = size(4 << 20, 300, 5000)
    incoming.VECTOR_PART_BYTES = size(1 << 20, 16)
    outgoing.WINDOW_BYTES = incoming.WINDOW_BYTES = size(16 << 20, 1 << 16)
    incoming.CREDIT_BYTES_MIN = min(size(1 << 20, 1, 1 << 12), outgoing.WINDOW_BYTES >> 4)


DEFAULT_GROUP_STEPS = 1000


def run_group_seed(
    seed: int,
    directory: Path,
    step_count: int = DEFAULT_GROUP_STEPS,
    echo: bool = False,
    topology: Topology | None = None,
    emphasis: Mapping[str, float] = NO_EMPHASIS,
) -> GroupWorld:
    """Run a seed in an empty directory. A violated invariant raises, with the last events attached. `emphasis`: how
    many times as often some actions happen, by name.
    """
    world = GroupWorld(seed, directory, echo, topology, emphasis)
    try:
        world.run(step_count)
    except BaseException as failure:
        failure.add_note(
            f"seed {seed} ({world.topology.name}), {step_count} steps; last events:\n"
            + "\n".join(world.history[-40:])
        )
        raise
    return world
