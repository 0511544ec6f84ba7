"""The world with SOW topics: a recorded one with deltas, deletions and expiries, and one that is in no log.

The model of the recorded topic reads the log, record by record, and knows nothing of slots and value files. After every
start, and at the end, the state that a reader finds must be the model's: now, and as of any moment from the transaction
id on from which the server says that the past can be read. Journals are removed in the course of a run; the world reads
their records before.

A value file is written through memory. A crash of the machine leaves each of its sectors as it was at the last sync, or
as it became later (`disk`).

The topic in no log keeps every value over the death of the process: the state afterwards is that of the moment of
death, and no older than what was acknowledged. After a crash of the machine, each value is one that was once there.
"""

import json
import mmap
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgpack

import amps.config
from amps._core.sow.table import JournalPlaces, KeyMemory, StateReader, ValueFile
from amps._core.values.value import derived_publisher_id, publisher_id
from amps.messages import make_message_types
from amps.server.shared.sow_shaping import key_maker
from amps.server.shared.sow_topics import make_sow_rules, value_path
from tests.simulation.clients import Client
from tests.simulation.server import CONFIG, NAME, Settings
from tests.simulation.sow_clients import IDS, KEPT, PLAIN, SowClient, SowMessage, SowTransport, SowWire
from tests.simulation.transports import Transport
from tests.simulation.world import World

SLAB_SIZE = 65536
SECOND_NS = 10**9
FAR = (1 << 63) - 1
CLIENTS = 2
PAST_SAMPLES = 6
_TOPIC = "<Topic><Name>{}</Name><MessageType>json</MessageType><Key>/id</Key>{}</Topic>"
_SOW = "".join(
    _TOPIC.format(name, f"<FileName>{name}.sow</FileName><Expiration>enabled</Expiration>")
    for name in (KEPT, PLAIN)
)
_loaded = amps.config.load(
    "sim.xml",
    {},
    text=CONFIG.replace("<TransactionLog>", f"<SOW>{_SOW}</SOW><TransactionLog>").replace(
        "(orders|", f"({KEPT}|orders|"
    ),
).config
_types = make_message_types(_loaded.message_types.values())
State = dict[int, dict[str, Any]]


@dataclass(frozen=True)
class Change:
    """A record of the recorded topic."""

    position: int
    txid: int
    timestamp_ns: int
    kind: int
    publisher_id: int
    sequence: int
    payload: bytes
    expiration_s: int | None


class SowModel:
    """The recorded topic by its records alone."""

    def __init__(self, ids: dict[int, int], sent: Callable[[int, int], SowMessage | None]) -> None:
        """ids: the id of each key. sent(publisher id, sequence): the message as a client has sent it."""
        self._ids = ids
        self._sent = sent
        self.state: State = {}
        self._ends_ns: dict[int, int | None] = {}

    def take(self, change: Change) -> None:
        """Apply a record, and check that it says what its kind must say."""
        if change.kind in (1, 2):
            message = json.loads(change.payload)
            id_ = message["id"]
            sent = self._sent(change.publisher_id, change.sequence)
            assert sent is not None, f"nobody has sent {change}"
            before = self.state.get(id_, {}) if sent.delta else {}
            assert message == before | sent.fields, f"{change}: {before} was there, {sent} was sent"
            assert change.expiration_s == sent.lifetime_s
            self.state[id_] = message
            self._ends_ns[id_] = (
                change.timestamp_ns + sent.lifetime_s * SECOND_NS if sent.lifetime_s else None
            )
        else:
            assert change.kind in (3, 9)
            keys = [key for key, _ in struct.iter_unpack("<QQ", change.payload)]
            assert keys == sorted(set(keys)), "keys out of order"
            for key in keys:
                id_ = self._ids[key]
                assert id_ in self.state, f"{change} removes id {id_}, which has no value"
                del self.state[id_]
                if change.kind == 9:
                    end_ns = self._ends_ns[id_]
                    assert end_ns is not None, f"id {id_} has no lifetime"
                    assert end_ns <= change.timestamp_ns, f"id {id_} expired too early"


class SowWorld(World):
    """See the module."""

    damage_share = 0.0  # the copy of a journal directory has no value files

    def __init__(self, seed: int, directory: Path, echo: bool = False) -> None:
        self._values = directory / "values"
        self.deaths_of_machine = 0
        self.journals_gone = 0
        self.past_states = 0
        self.compacted = 0
        self._changes: dict[int, Change] = {}  # by position: of journals that were to be removed
        self._loose: State | None = None  # of the topic in no log, at the death; None: unknown
        super().__init__(seed, directory, echo)
        pad_bytes = self.chance.choice([40, 400, 3000, 20_000])
        self.sow_clients = [
            SowClient(
                f"sow-{n}", f"sow-user-{n}", lambda chance: 10, ids=tuple(range(n, IDS, CLIENTS)),
                pad_bytes=pad_bytes,
            )
            for n in range(CLIENTS)
        ]
        names = [client.name for client in self.sow_clients + self.clients]
        self.others = {publisher_id(client.name) for client in self.sow_clients} | {
            derived_publisher_id(name, NAME) for name in names if name.startswith("sow-")
        }
        self._by_publisher = {publisher_id(client.name): client for client in self.sow_clients}
        topic = _loaded.sow_topics[0]
        maker = key_maker(topic, _types["json"])
        self._ids = {maker.key(b'{"id":%d}' % id_): id_ for id_ in range(IDS)}
        self._keys = {id_: key for key, id_ in self._ids.items()}

    def _make_settings(self, journal_bytes: int, preallocated: int, ring_bytes: int) -> Settings:
        log = _loaded.transaction_log
        assert log is not None
        config = replace(
            _loaded,
            transaction_log=replace(
                log, journal_size_bytes=journal_bytes, preallocated_journal_files=preallocated
            ),
            sow_topics=tuple(
                replace(topic, file_name=self._values / f"{topic.name}.sow", slab_size_bytes=SLAB_SIZE)
                for topic in _loaded.sow_topics
            ),
        )
        self._config = config
        return Settings(config, ring_bytes, lambda: self._clock_ns, self.trace)

    def _make_transport(self, index: int) -> Transport:
        rules = make_sow_rules(self._config, _types)
        return SowTransport(self.server.runtime, index, NAME, self.chance, rules)

    # Actions

    def _actions(self) -> list[tuple[Callable[[], None], float]]:
        return [
            *super()._actions(),
            (self._connect_sow, 20),
            (self._send_sow, 60),
            (self._delete, 8),
            (self._pass_seconds, 6),
            (self._write_back, 6),
            (self._remove, 10),
        ]

    def _connect_sow(self) -> None:
        client = self.chance.choice(self.sow_clients)
        transport = self._any_transport()
        if transport is None or (client.wire is not None and not client.wire.closed):
            return
        wire = SowWire(client, client.user)
        if transport.connect(wire):
            client.wire = wire

    def _send_sow(self) -> None:
        for client in self.sow_clients:
            wire = client.wire
            if wire is not None and wire.ready and not wire.closed and len(wire.to_server) < 60_000:
                wire.publish_some(self.chance)

    def _bustle(self) -> None:
        self._connect_sow()
        self._send_sow()
        if self.chance.random() < 0.3:
            self._delete()
        super()._bustle()

    def _delete(self) -> None:
        transport = self._any_transport()
        if isinstance(transport, SowTransport):
            ids = self.chance.sample(range(IDS), self.chance.randint(1, 4))
            wanted = b"".join(struct.pack("<QQ", key, 0) for key in sorted(self._keys[id_] for id_ in ids))
            transport.delete(struct.pack("<II", 0, len(ids)) + wanted)

    def _remove(self) -> None:
        """Request that journals are removed, and do a part of the work that this takes."""
        full = [row["number"] for row in self.server.retention.rows() if row["full"]]
        if full and self.chance.random() < 0.5:
            number = self.chance.choice(full[-3:])
            end = self.server.log.view.directory.start_position(number + 1)
            self._may_remove(end)
            for entry in self.server.log.read():
                if entry.position < end:
                    self._read_before[entry.position] = entry
            self.trace(f"journals up to {number} are to be removed, with values")
            self.server.runtime.requests.to_core.append(msgpack.packb([1, "remove", {"up_to": number}]))
        steps = [self._look, self._turn, self._turn, self._flush_step, self._housekeeping, self._write_back]
        for _ in range(self.chance.randrange(40)):
            self.chance.choice(steps)()
            self.compacted += self._moved()

    def _moved(self) -> bool:
        states = self.server.core._states
        assert states is not None
        return any(topic.sow.state.values.wants_sync for topic in states._topics)

    def _pass_seconds(self) -> None:
        self._clock_ns += self.chance.randrange(30 * SECOND_NS)

    def _write_back(self) -> None:
        self.disk.write_back()

    def _may_remove(self, end: int) -> bool:
        for change in self._recorded():
            if change.position < end:
                self._changes[change.position] = change
        return True

    # Deaths

    def _restart(self, machine: bool) -> None:
        self._loose = self._read(PLAIN)
        super()._restart(machine)

    def _end_of_process(self, machine: bool) -> None:
        if machine:
            self._loose = None
            self.deaths_of_machine += 1
        super()._end_of_process(machine)

    def _settle_with_fresh_server(self) -> None:
        self._loose = self._read(PLAIN)
        super()._settle_with_fresh_server()

    # What the server says

    def _reader(self, name: str) -> StateReader:
        topic = next(topic for topic in self._config.sow_topics if topic.name == name)
        runtime = self.server.runtime
        with runtime.sow_keys_path(topic.number).open("rb") as file:
            keys = mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
        descriptor = os.open(value_path(topic, runtime), os.O_RDONLY)
        try:
            values = ValueFile(descriptor, SLAB_SIZE, False)
        finally:
            os.close(descriptor)
        control = runtime.control
        places = JournalPlaces(
            self.server.log.view.directory, lambda: (control.first_journal_number, control.watermarks()[3])
        )
        return StateReader(KeyMemory(keys, False), values, places)

    def _read(self, name: str, txid: int = FAR) -> State:
        found = self._reader(name).values_at(txid, FAR)
        messages = [json.loads(payload) for _, payload in found.values()]
        return {message["id"]: message for message in messages}

    def _recorded(self) -> list[Change]:
        """The records of the recorded topic that are in the log now."""
        cursor, end, found = self.server.log.cursor(), self.server.runtime.control.watermarks()[0], []
        while (record := cursor.step(end)) is not None:
            if record.kind in (1, 2, 3, 9) and record.topic == (KEPT, "json"):
                found.append(
                    Change(
                        record.position, record.txid, record.timestamp_ns, record.kind, record.publisher_id,
                        record.sequence, record.payload, record.expiration_s,
                    )
                )
        return found

    def _sent(self, publisher: int, sequence: int) -> SowMessage | None:
        client: Client | None = self._by_publisher.get(publisher)
        message = None if client is None else client.store.get(sequence)
        return message if isinstance(message, SowMessage) else None

    # Checks

    def _check(self) -> list[Any]:
        entries = super()._check()
        self._check_recorded()
        self._check_loose()
        return entries

    def _check_recorded(self) -> None:
        first = self.server.first_position()
        left = self._recorded()
        gone = [change for position, change in sorted(self._changes.items()) if position < first]
        self.journals_gone = max(self.journals_gone, len(gone))
        changes = gone + left
        begin = self._reader(KEPT).table.begin_txid
        assert begin is not None
        if not self._changes and not self.deaths_of_machine:
            assert begin <= min((change.txid for change in changes), default=FAR), "the past is there"
        moments = [change.txid for change in changes if change.txid >= begin]
        samples = set(self.chance.sample(moments, min(PAST_SAMPLES, len(moments))))
        model = SowModel(self._ids, self._sent)
        for change in changes:
            if change.txid in samples:
                self.past_states += 1
                assert self._read(KEPT, change.txid) == model.state, f"the state before {change.txid}"
            model.take(change)
        assert self._read(KEPT) == model.state
        held = {(change.publisher_id, change.sequence) for change in changes}
        for client in self.sow_clients:
            for message in client.owed():
                assert (publisher_id(client.name), message.sequence) in held, f"lost: {message}"

    def _check_loose(self) -> None:
        state = self._read(PLAIN)
        if self._loose is not None:
            assert state == self._loose, "the death of the process has changed the topic in no log"
            for client in self.sow_clients:
                for (topic, id_), sequence in client.newest.items():
                    promised = topic == PLAIN and sequence <= client.acked and sequence in client.store
                    if promised and not self._loose_lost:
                        assert state.get(id_, {}).get("v", 0) >= sequence, f"lost: {id_} {sequence}"
        else:
            self._loose_lost = True
        for id_, message in state.items():
            assert id_ in self._keys
            assert any(client.last >= message["v"] for client in self.sow_clients)
        self._loose = None

    _loose_lost = False
    """A crash of the machine has lost values of the topic in no log."""

    def _settled(self) -> None:
        for client in self.sow_clients:
            self._publish_rest(client)
        # The time of the log never goes back, although the clock may have.
        last_ns = max((change.timestamp_ns for change in self._recorded()), default=0)
        self._clock_ns = max(self._clock_ns, last_ns) + 100 * SECOND_NS
        for _ in range(4):
            self.server.core.turn()
            self._flush_step()
        self._check_recorded()
        lifetimes = [
            message["id"]
            for message in self._read(KEPT).values()
            if (sent := self._sent_as(message["v"], message["id"])) is not None and sent.lifetime_s
        ]
        assert not lifetimes, f"overdue: {lifetimes}"

    def _sent_as(self, sequence: int, id_: int) -> SowMessage | None:
        client = self.sow_clients[id_ % CLIENTS]
        return self._sent(publisher_id(client.name), sequence)
