"""The state of each destination: what is acknowledged, how acknowledgements wait for it, its connection.

A destination is scanned whether it is connected or not: publishers of messages that it does not get must not wait for
it. Its watermarks are on the control page (docs/replication.md, "Watermarks of a destination"). This process writes
them. A new one continues with the watermarks that it finds there, a new tree with those of the file (state_file.py).

Invariants
- `acked` never moves beyond what the destination has acknowledged or is not to get. It falls only with a new epoch.
- A change of the mode is published before the transports are woken, so withheld acknowledgements leave at once.
- The table of pending publishers is begun anew before `scanned` starts again.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256

from amps._core.replication.stream import SourceFlow, TxidSet
from amps._core.shm.memory import MODE_ASYNC, MODE_DOWNGRADED, MODE_SYNC
from amps._core.values.value import publisher_id
from amps.config.model_replication import DestinationConfig
from amps.server.clock import Clock
from amps.server.eventlog import EventLog
from amps.server.replication.core_sessions import upstream_name
from amps.server.replication.hello import Flow, Identity
from amps.server.replication.log_access import LOG_PROBLEMS, LogAccess
from amps.server.replication.state_file import SavedDestination
from amps.server.replication.write_times import WriteTimes
from amps.server.replication_statistics import Peer
from amps.server.runtime import Runtime
from amps.server.shared.replication_requests import LinkState
from amps.server.shared.wake_ups import wake_transports

SCAN_BYTES = 4 << 20
"""Of the log, in one step."""
SENDING_S = 0.1
"""A connection that sends nothing for so long is blocked, or the window is used up."""
MIXED_BYTES = 64 << 20
"""A log is mixed if one of its last messages, within so many bytes, does not go to the destination."""
LEFT_MIXED_BYTES_MAX = 16 << 20
LEFT_BYTES_MAX = 512 << 20
"""So much of the log, mixed or not, is left to the connection at most."""


@dataclass(slots=True)
class Connection:
    """A running flow to a destination."""

    peer: Identity
    flow: Flow
    address: str
    transport: str
    user: str
    close: Callable[[], None]
    wake: Callable[[], None]
    """There may be something to send."""
    is_live: bool = field(default=False)


class Destination:
    """One destination. `begin` must be called before the first step."""

    def __init__(
        self,
        index: int,
        config: DestinationConfig,
        runtime: Runtime,
        access: LogAccess,
        identity: Identity,
        saved: SavedDestination,
        clock: Clock,
        write_times: WriteTimes,
        source_made: Callable[[int, SourceFlow | None], None],
    ) -> None:
        """`identity`: of this instance. `source_made` gets the index and each new source, or None if nothing ever waits
        for it.
        """
        self.index = index
        self.config = config
        self.connection: Connection | None = None
        self._runtime = runtime
        self._control = runtime.control
        self._table = runtime.pending_tables[index]
        self._statistics = runtime.replication_statistics.destinations[index]
        self._access = access
        self._identity = identity
        self._upstream_id = 0
        """The name id under which this log has what the instance of the destination sent."""
        self._clock = clock
        self._write_times = write_times
        self._source_made = source_made
        self._rules = _digest(config)
        self._broken = ""
        self._left_at = 0
        self._left_s = 0.0
        mode, acked, upgraded_at, *_ = self._control.destination(index)
        self._mode: int = mode
        self._upgraded_at: int = upgraded_at
        self._saved = saved
        self._peer: Identity | None = None
        if saved.peer_name:
            self._peer = Identity(saved.peer_name, saved.peer_group, saved.peer_uuid, saved.peer_epoch, "")
        self._acked_position = max(acked, saved.acked_position)
        # The position may be that of an earlier process, which came further than the file says.
        self._acked_txid = saved.acked_txid
        self._counted = (0, 0)
        self.source: SourceFlow

    def begin(self) -> None:
        """Begin to scan the log where the destination may lack records."""
        self._statistics.begin(self._clock.time_ns())
        saved = self._saved
        is_same = saved.rules == self._rules and saved.acked_position == self._acked_position
        self._make_source(saved.going_txid if is_same else None)

    def _make_source(self, going_txid: int | None) -> None:
        """`going_txid`: no record before the acknowledged position that goes there has a higher transaction id."""
        self._table.begin()
        self._upstream_id = 0 if self._peer is None else publisher_id(upstream_name(self._peer, self._identity))
        self.source = SourceFlow(
            self._access.rules_of(self.config, self._peer),
            self._access.cursor_before(self._acked_position),
            self._table,
            self._acked_position,
            self._acked_txid,
            0 if self._acked_position == 0 else going_txid,
            self._control.watermarks()[0],
        )
        self._counted = (0, 0)
        self._tell_source()
        self._source_made(self.index, self.source if self.config.is_sync else None)
        self.publish()

    def _tell_source(self) -> None:
        self.source.waits = self._mode == MODE_SYNC
        self.source.upgraded_at = self._upgraded_at

    # --- connections ----------------------------------------------------------------------------------------

    def meet(self, peer: Identity) -> bool:
        """Prepare for a flow to an instance. Return whether the source is another one from now on."""
        known, self._peer = self._peer, peer
        if known is not None and (known.name, known.epoch) == (peer.name, peer.epoch):
            return False
        self._keep_acked()
        if known is not None and known.name == peer.name:
            # A wiped instance lacks what it had acknowledged. The journals that are still there are sent again.
            self._acked_txid = 0
        # To an instance that was not known, at most as much goes as it seemed before. To another one, more may go.
        self._make_source(self.source.going_txid if known is None else None)
        return True

    def connected(self, connection: Connection) -> None:
        """The flow begins."""
        self.connection = connection
        peer, flow = connection.peer, connection.flow
        self._statistics.connected(
            Peer(peer.name, peer.group, peer.admin_address, flow.client_name, connection.user),
            self._clock.time_ns(),
        )

    def disconnected(self, moves: bool) -> None:
        """The flow has ended. `moves`: to another link of the two instances, so nothing was lost."""
        self.source.end()
        self.connection = None
        if not moves:
            self._statistics.disconnected(self._clock.time_ns())
        self.publish()

    # --- progress -------------------------------------------------------------------------------------------

    def step(self, durable: int, now_s: float, log: EventLog) -> bool:
        """Scan a part of the log, and publish what is known. Return whether there is more to do at once."""
        more = False
        upstream_id, *stretch = self._control.newest_stretch()
        if upstream_id and upstream_id == self._upstream_id:
            self.source.note_returned(*stretch)
        try:
            if not self.leaves_scan(durable, now_s):
                more = not self.source.scan(durable, SCAN_BYTES)
            more |= not self.source.follow_acks(SCAN_BYTES)
            self._broken = ""
        except LOG_PROBLEMS as problem:
            if str(problem) != self._broken:
                self._broken = str(problem)
                log.log("1E-0020", destination=self.config.label, reason=problem)
        self.publish()
        return more

    def leaves_scan(self, durable: int, now_s: float) -> bool:
        """Whether the scan is left to the connection, which scans as it sends. If it has not done so for a moment, or
        is far behind, publishers of messages that do not go there must not wait for it. Call it again after SENDING_S.
        """
        source = self.source
        scanned = source.scanned_position
        is_mixed = scanned - source.passed_over_position < MIXED_BYTES
        left_bytes_max = LEFT_MIXED_BYTES_MAX if is_mixed else LEFT_BYTES_MAX
        if not source.scans_by_sending or not 0 < durable - scanned <= left_bytes_max:
            return False
        if scanned != self._left_at:
            self._left_at, self._left_s = scanned, now_s
        return now_s - self._left_s < SENDING_S

    def acknowledge(self, acknowledged: TxidSet) -> None:
        """Take an acknowledgement."""
        self.source.ack(acknowledged)
        self.settle()

    def settle(self) -> None:
        """Publish what follows from acknowledgements and sending. The next step goes on if there is much to do."""
        self.source.follow_acks(SCAN_BYTES)
        self.publish()

    def publish(self) -> None:
        """Publish the watermarks."""
        source = self.source
        self._keep_acked()
        if self._control.set_destination(
            self.index,
            self._mode,
            self._acked_position,
            self._upgraded_at,
            source.scanned_position,
            source.settled,
        ):
            wake_transports(self._runtime)

    def _keep_acked(self) -> None:
        self._acked_position = max(self._acked_position, self.source.acked_position)
        self._acked_txid = max(self._acked_txid, self.source.acked_txid)

    def forget(self) -> None:
        """Nothing is acknowledged any more: a new epoch of the log begins."""
        self._acked_position = self._acked_txid = 0
        self._control.set_destination(
            self.index, self._mode, 0, self._upgraded_at, 0, self.source.settled + 1
        )

    def count(self) -> None:
        """Bring the statistics up to date."""
        source = self.source
        now = source.messages_out, source.bytes_out
        self._statistics.count(now[0] - self._counted[0], now[1] - self._counted[1])
        self._counted = now
        self._statistics.set_behind(self.behind_ns)

    @property
    def behind_ns(self) -> int:
        """Log time between the newest record and the acknowledged position (decision 25.38)."""
        source = self.source
        if not source.oldest_pending_time_ns:
            return 0
        begin = source.acked_time_ns or source.oldest_pending_time_ns
        return max(0, source.newest_time_ns - begin)

    # --- the mode -------------------------------------------------------------------------------------------

    @property
    def is_sync(self) -> bool:
        """Whether acknowledgements wait for it now."""
        return self._mode == MODE_SYNC

    def state(self) -> LinkState:
        """For the rules of downgrades and upgrades. Age: of the oldest record that is not acknowledged (25.17)."""
        source, age_s = self.source, 0.0
        if source.oldest_pending_time_ns:
            age_s = self._write_times.age_s(source.acked_position, source.oldest_pending_time_ns)
        return LinkState(self._mode, self.connection is not None, age_s)

    def downgrade(self) -> None:
        """Nothing waits for it from now on."""
        if self._mode == MODE_SYNC:
            self._mode = MODE_DOWNGRADED
            self._tell_source()
            self.publish()

    def upgrade(self) -> None:
        """Acknowledgements wait for it again, for records from now on."""
        if self._mode == MODE_DOWNGRADED:
            self._mode = MODE_SYNC
            self._upgraded_at = self._control.watermarks()[0]
            self._tell_source()
            self.publish()

    @property
    def is_configured_async(self) -> bool:
        """Whether it is never waited for."""
        return self._mode == MODE_ASYNC

    def reading(self) -> Iterator[int]:
        """Log positions at which its flow will continue soon; not what it reads once it has connected again."""
        source = self.source
        yield source.scanned_position
        if self.connection is not None:
            yield source.sent_position
            yield source.acked_position

    def saved(self) -> SavedDestination:
        """What a restart should know."""
        peer = self._peer
        texts = (peer.name, peer.group, peer.uuid, peer.epoch) if peer is not None else ("", "", "", "")
        return SavedDestination(
            *texts, self._acked_position, self._acked_txid, self.source.going_txid, self._rules
        )


def _digest(config: DestinationConfig) -> str:
    """A digest of what decides which records go to a destination."""
    topics = [(topic.name, topic.message_type, topic.is_regex, topic.filter) for topic in config.topics]
    return sha256(repr((topics, config.pass_through)).encode("utf-8", "surrogatepass")).hexdigest()[:32]
