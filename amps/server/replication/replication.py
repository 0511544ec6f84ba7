"""Replication of one instance, without its process: links, flows, destinations, and what connects them.

`Replication` gets everything outside of it in its constructor: how to connect, clock, randomness, what to tell the
supervisor. It uses the running event loop, and nothing else of the system but the files of the journal directory and
the runtime directory. So the simulation runs several instances in one process.

All work follows from three things: frames of links, turns (core_sessions.py: the core has worked), and `_tick`.

Two instances have one link. If both dialled, a link with TLS stays before one without, else the one that the instance
with the lower name has dialled. The flow of the other moves there (replication.md §24.9). This is decided when the
second of the two has logged on, so no stranger can end a link.
"""

import asyncio
import itertools
import os
import random
import ssl
import traceback
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

from amps._core.replication.stream import SourceFlow
from amps.config import ServerConfig, TransportConfig
from amps.config.model_replication import DestinationConfig, DestinationTransport
from amps.server.clock import Clock
from amps.server.eventlog import EventLog
from amps.server.records import KIND_SPILLED_PUBLISH, raw_control_record
from amps.server.replication import frames, hello
from amps.server.replication.completeness import partners
from amps.server.replication.core_sessions import CoreSession, CoreSessions
from amps.server.replication.destinations import SENDING_S, Connection, Destination
from amps.server.replication.dialling import Connect, Dialler
from amps.server.replication.frames import Content, Frame, ProtocolError
from amps.server.replication.hello import Flow, Identity, Refused, check_identity, check_version
from amps.server.replication.incoming import Incoming
from amps.server.replication.instance_config import (
    BadConfigFrame,
    InstanceConfig,
    config_frame,
    own_config,
    read_config_frame,
)
from amps.server.replication.link import Channel, Link, Reader, Writer
from amps.server.replication.log_access import LogAccess
from amps.server.replication.logons import Credentials, Gate
from amps.server.replication.reachability import FLOOD_INTERVAL_S, Reachability
from amps.server.replication.state_file import (
    SavedDestination,
    destinations_path,
    read_destinations,
    write_destinations,
)
from amps.server.replication.transfers import Transfers
from amps.server.replication.validation import Violation, validate
from amps.server.replication.write_times import WriteTimes
from amps.server.runtime import Runtime
from amps.server.shared.replication_requests import LinkState
from amps.server.shared.spill_files import write_spilled_record

TICK_S = 0.5
HELLO_S = 10.0
STRANGERS_MAX = 64
"""Connections that have not logged on. Another one ends the oldest of them."""
LINGER_S = 2.0
"""A link without flows stays for so long after a failed validation: the other side may be about to open its flow."""
STOP_S = 2.0
"""So long a stop waits until destinations that are connected have acknowledged what is in the log when it begins."""
STOP_POLL_S = 0.01

GateMaker = Callable[[TransportConfig | DestinationTransport], Gate]
CredentialsMaker = Callable[[DestinationTransport], Credentials]
TlsMaker = Callable[[DestinationTransport], ssl.SSLContext | None]


class Replication:
    """All links of one instance."""

    def __init__(
        self,
        config: ServerConfig,
        runtime: Runtime,
        log: EventLog,
        identity: Identity,
        *,
        connect: Connect,
        credentials: CredentialsMaker,
        gates: GateMaker,
        clock: Clock,
        rng: random.Random,
        tell: Callable[..., None],
        tls: TlsMaker = lambda transport: None,
        failed: Callable[[str], None],
        new_epoch: Callable[[], None],
    ) -> None:
        """`tell` sends a message to the supervisor. `failed` receives the traceback when work has stopped for good.
        `new_epoch` gives the log another epoch, and starts replication anew with it.
        """
        assert config.transaction_log is not None, "the configuration requires one"
        self.log = log
        self.identity = identity
        self.rng = rng
        self.sources: list[SourceFlow | None] = [None] * len(config.destinations)
        self.declared_names: set[int] = set()
        self.access = LogAccess(config, runtime, log)
        self.core = CoreSessions(runtime, True, self._moved, self._transfer_wanted, failed)
        self.links: list[Link] = []
        self.destinations: list[Destination] = []
        self._config = config
        self._runtime = runtime
        self._clock = clock
        self._write_times = WriteTimes(clock, runtime.control.watermarks()[0])
        self._connect = connect
        self._credentials = credentials
        self._gates = gates
        self._tls = tls
        self._tell = tell
        self._failed = failed
        self._new_epoch = new_epoch
        self._own_config = own_config(config)
        self._config_frame = config_frame(config)
        self._peer_configs: dict[Link, InstanceConfig] = {}
        self._config_sent: set[Link] = set()
        self._dialled_by: dict[Link, DestinationTransport] = {}
        self._labels: dict[Link, str] = {}
        """By link: the destination of the first flow that has logged on."""
        self._flow_tasks: dict[Channel, asyncio.Task[None]] = {}
        self._incoming: list[Incoming] = []
        self._diallers: list[Dialler] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._spill_number = itertools.count()
        self._state_path = destinations_path(config.transaction_log.journal_directory, config.name)
        self._saved: dict[str, SavedDestination] = {}
        self._save_failed = ""
        self._reachability = Reachability(config.name, clock.time_ns())
        self._reachable: list[str] | None = None
        self._flood_at_s = 0.0
        self._left: asyncio.TimerHandle | None = None
        self._transfers = Transfers(
            config, self._first_hops, self._send_transfer, self.core.pass_transfer_request
        )

    # --- life -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to follow the log, and to dial."""
        saved, problem = read_destinations(self._state_path, self.identity.uuid, self.identity.epoch)
        if problem is not None:
            self.log.log("1E-0013", path=self._state_path, reason=problem)
        for index, destination in enumerate(self._config.destinations):
            made = Destination(
                index,
                destination,
                self._runtime,
                self.access,
                self.identity,
                saved.get(destination.label, SavedDestination()),
                self._clock,
                self._write_times,
                self._source_made,
            )
            self.destinations.append(made)
            made.begin()
        self.core.begin()
        self._tell_reachable()
        for made in self.destinations:
            dialler = Dialler(self, made, self._connect)
            self._diallers.append(dialler)
            self._begin(dialler.run())
        self._tick()

    def _source_made(self, index: int, source: SourceFlow | None) -> None:
        self.sources[index] = source

    async def stop(self) -> None:
        """End in order: what is in the log goes to the connected destinations, and links end with BYE."""
        self._stopping = True
        for incoming in self._incoming:
            incoming.finish_acks()
        loop = asyncio.get_running_loop()
        until_s = loop.time() + STOP_S
        # Other instances may go on to send records: those need not go on from here any more.
        end_position = self.core.link.written()
        while loop.time() < until_s and any(
            each.connection is not None and each.source.acked_position < end_position
            for each in self.destinations
        ):
            self.core.schedule()
            await asyncio.sleep(STOP_POLL_S)
        end = Refused(hello.STOPPING, "the instance stops")
        for link in list(self.links):
            link.end(end)
        self._end_tasks()
        self._save()
        self.core.stop()

    def abort(self) -> None:
        """End as if this process had died: nothing is sent or stored any more."""
        self._stopping = True
        self.core.stop()
        for link in list(self.links):
            link.abort()
        self._end_tasks()

    def _end_tasks(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    def wake(self) -> None:
        """The core has worked."""
        self.core.schedule()

    def schedule(self) -> None:
        """Request a turn."""
        self.core.schedule()

    def durable(self) -> int:
        """Log position below which the journal is durable."""
        return self._runtime.control.durable

    def log_end(self) -> int:
        """Log position of the end of the log at this moment, which need not be durable."""
        return self._runtime.control.watermarks()[0]

    def _begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _guarded(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except Exception:
            self._failed(traceback.format_exc())

    def _link_failed(self, trace: str) -> None:
        self.log.log("01-0005", place="replication", data=trace)

    # --- turns ----------------------------------------------------------------------------------------------

    def _moved(self) -> None:
        """The log may have grown, or something was acknowledged: let all flows go on."""
        link = self.core.link
        consumed, written, durable = link.consumed(), link.written(), link.durable()
        now_s = asyncio.get_running_loop().time()
        more = False
        for destination in self.destinations:
            more |= destination.step(durable, now_s, self.log)
            connection = destination.connection
            if connection is not None and destination.source.sent_position < durable:
                connection.wake()
            if self._left is None and destination.leaves_scan(durable, now_s):
                self._left = asyncio.get_running_loop().call_later(SENDING_S, self._look_at_left)
        for incoming in self._incoming:
            more |= incoming.step(consumed, written, durable)
        self.access.release_pages(self._reading())
        self.core.wants_durable = any(each.connection is not None for each in self.destinations) or any(
            each.wants_durable for each in self._incoming
        )
        if more:
            self.core.schedule()

    def _look_at_left(self) -> None:
        """See whether connections have scanned what was left to them."""
        self._left = None
        self.core.schedule()

    def _reading(self) -> Iterator[int]:
        """Log positions at which a flow will continue soon."""
        for destination in self.destinations:
            yield from destination.reading()
        for incoming in self._incoming:
            yield incoming.scanned_position

    def _tick(self) -> None:
        if self._stopping:
            return
        try:
            self._look_around()
        except Exception:
            self._failed(traceback.format_exc())
            return
        asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _look_around(self) -> None:
        now_s = asyncio.get_running_loop().time()
        self._write_times.note(self._runtime.control.watermarks()[0])
        for destination in self.destinations:
            destination.count()
        for link in self.links:
            link.wake()  # an answer may be due, because all was sent
        for incoming in self._incoming:
            incoming.look()
        self.access.release_unused()
        self.access.evaluations.report()
        self._save()
        if now_s >= self._flood_at_s:
            self._flood()
        self._tell_reachable()

    def _save(self) -> None:
        """Store the state of the destinations, if it has changed."""
        now = {each.config.label: each.saved() for each in self.destinations}
        if now == self._saved:
            return
        try:
            write_destinations(self._state_path, self.identity.uuid, self.identity.epoch, now)
        except OSError as problem:
            if str(problem) != self._save_failed:
                self._save_failed = str(problem)
                self.log.log("1E-0014", path=self._state_path, reason=problem.strerror or str(problem))
            return
        self._saved, self._save_failed = now, ""

    def spill(self, session: CoreSession, record: bytes) -> bool:
        """Pass a record that is too large for the ring in a file. False: there is no room now. Raises OSError."""
        if self.core.link.has_controls_waiting:
            return False
        token = f"{self.core.index}.{os.getpid()}.{next(self._spill_number)}"
        path = self._runtime.spill_path(token)
        write_spilled_record(record, path)
        pushed = self.core.link.ring.push(
            raw_control_record(token.encode(), KIND_SPILLED_PUBLISH, session.slot, session.serial)
        )
        if not pushed:
            path.unlink()
        return bool(pushed)

    # --- links ----------------------------------------------------------------------------------------------

    def accept(self, reader: Reader, writer: Writer, address: str) -> None:
        """Another instance has connected; it has to say who it is."""
        if self._stopping:
            writer.close()
            return
        strangers = [each for each in self.links if not (each.dialled or each.trusted or each.end_reason)]
        if len(strangers) >= STRANGERS_MAX:
            # An instance logs on at once. Whoever keeps a connection without a word must not keep it out.
            strangers[0].end(Refused(hello.LOST, "too many connections that have not logged on"), tell=False)
        transport = self._config.replication_transport
        assert transport is not None, "there is a listening socket"
        link = self._make_link(reader, writer, address, dialled=False, has_tls=transport.tls is not None)
        link.channels[0].begin()
        self._begin(self._welcome(link))

    def new_link(self, reader: Reader, writer: Writer, address: str, transport: DestinationTransport) -> Link:
        """Begin a link that this side has dialled."""
        link = self._make_link(reader, writer, address, dialled=True, has_tls=transport.tls is not None)
        self._dialled_by[link] = transport
        return link

    def _make_link(self, reader: Reader, writer: Writer, address: str, *, dialled: bool, has_tls: bool) -> Link:
        link = Link(
            reader,
            writer,
            dialled=dialled,
            has_tls=has_tls,
            address=address,
            received=self._received,
            ended=self._link_ended,
            failed=self._link_failed,
        )
        self.links.append(link)
        link.start()
        return link

    def _link_ended(self, link: Link) -> None:
        self.links.remove(link)
        self._peer_configs.pop(link, None)
        self._config_sent.discard(link)
        self._dialled_by.pop(link, None)
        self._labels.pop(link, None)
        if link.trusted and not self._stopping:
            self._links_changed()

    def _links_changed(self) -> None:
        if self._reachability.set_neighbours(
            link.peer.name for link in self.links if link.trusted and link.peer is not None
        ):
            self._flood()
        self._tell_reachable()

    async def _welcome(self, link: Link) -> None:
        """Let another instance begin its flow on a link that it has dialled."""
        channel = link.channels[0]
        try:
            try:
                async with asyncio.timeout(HELLO_S):
                    content = Content(await channel.expect(frames.HELLO))
            except TimeoutError:
                raise Refused(hello.TIMEOUT, "there was no HELLO in time") from None
            check_version(content)
            peer, flow = Identity.from_content(content), Flow.from_content(content)
            self._check_peer(peer)
            flow.check_peer(self.identity)
            self._check_other_links(link, peer)
        except (Refused, ProtocolError) as problem:
            end = problem if isinstance(problem, Refused) else Refused(hello.PROTOCOL, str(problem))
            if not end.use_link and not end.by_peer:
                self.log.log("1E-0015", address=link.address, code=end.code, reason=end.reason)
            link.end(end)
            return
        link.peer = peer
        transport = self._config.replication_transport
        assert transport is not None, "there is a listening socket"
        await self._run_incoming(link, channel, flow, self._gates(transport))

    def _check_peer(self, peer: Identity) -> None:
        known = [link.peer for link in self.links if link.trusted and link.peer is not None]
        check_identity(self.identity, peer, known)

    def _check_other_links(self, link: Link, peer: Identity) -> None:
        """Refuse a connection early if the link that this side has dialled stays. Raises Refused."""
        for other in self._links_to(peer):
            if other.dialled and self._same_run(other, peer) and self._gives_way(link, other, peer):
                raise self._shared_link()

    def _gives_way(self, link: Link, other: Link, peer: Identity) -> bool:
        """Whether a link ends because of another one that the other side has dialled. Both sides decide alike."""
        if link.has_tls != other.has_tls:
            return other.has_tls
        return link.dialled != (self.identity.name < peer.name)

    def _links_to(self, peer: Identity) -> list[Link]:
        """The links to an instance that have logged on."""
        return [
            link
            for link in self.links
            if link.trusted and link.peer is not None and link.peer.uuid == peer.uuid
        ]

    def _shared_link(self) -> Refused:
        return Refused(
            hello.DUPLICATE_LINK,
            "the two instances share the other link",
            use_link=True,
            instance_uuid=self.identity.uuid,
        )

    @staticmethod
    def _same_run(link: Link, peer: Identity) -> bool:
        return link.peer is not None and link.peer.run == peer.run

    def met(self, link: Link, peer: Identity) -> None:
        """The instance at the end of a dialled link is known. Raises Refused."""
        self._check_peer(peer)
        link.peer = peer
        if any(
            not other.dialled and self._same_run(other, peer) and self._gives_way(link, other, peer)
            for other in self._links_to(peer)
        ):
            raise self._shared_link()

    def logged_on(self, link: Link, label: str) -> None:
        """A flow has logged on. Of several links between two instances one stays. Raises Refused."""
        peer = link.peer
        assert peer is not None
        if link.trusted:
            return
        for other in self._links_to(peer):
            if not self._same_run(other, peer):
                other.end(Refused(hello.LOST, "the other instance was started again"))
            elif other.dialled != link.dialled:
                end = self._shared_link()
                if self._gives_way(link, other, peer):
                    raise end
                other.end(end)
            elif link.dialled or self._labels.get(other) != label:
                raise Refused(
                    hello.DUPLICATE_LINK,
                    f"the instance {peer.name!r} is connected by another destination; two destinations must not "
                    "lead to one instance",
                )
            else:
                other.end(Refused(hello.RECONNECT, "the other instance has connected again"))
        self._labels[link] = label
        link.trust()
        for state in self._reachability.states(asyncio.get_running_loop().time()):
            link.send(frames.encode_json(frames.LINKSTATE, state))
        self._links_changed()
        for dialler in self._diallers:
            dialler.wake()

    def link_unused(self, link: Link, end: Refused) -> None:
        """A flow of the link has ended; the link ends if it has no other."""
        if link.end_reason is not None or any(channel.open for channel in link.channels):
            return
        if link.trusted and end.code == hello.VALIDATION:
            asyncio.get_running_loop().call_later(LINGER_S, self._end_if_unused, link, end)
        else:
            link.end(end)

    def _end_if_unused(self, link: Link, end: Refused) -> None:
        if not any(channel.open for channel in link.channels):
            link.end(end)

    def usable_link(self, destination: Destination, met: str) -> Link | None:
        """A link to an instance of the destination, on which this side has no flow as a source. `met`: the uuid of the
        instance that has answered at one of its addresses last.
        """
        taken = {each.connection.peer.uuid for each in self.destinations if each.connection is not None}
        for link in self.links:
            peer = link.peer
            if (
                link.trusted
                and peer is not None
                and link.end_reason is None
                and not link.source_channel.open
                and peer.uuid not in taken
                and (link.has_tls or not _demands_tls(destination.config))
                and (peer.uuid == met or hello.is_meant(destination.config, self._config.destinations, peer))
                and hello.destination_matches(destination.config, peer)
            ):
                return link
        return None

    def credentials(self, transport: DestinationTransport) -> Credentials:
        """What this side logs on with."""
        return self._credentials(transport)

    def tls(self, transport: DestinationTransport) -> ssl.SSLContext | None:
        """The TLS settings of a transport."""
        return self._tls(transport)

    # --- frames of links --------------------------------------------------------------------------------------

    def _received(self, link: Link, frame: Frame) -> None:
        content = Content(frame)
        if frame.type == frames.CONFIG:
            assert link.peer is not None
            try:
                there = read_config_frame(content.values, link.peer.name, link.peer.group)
            except BadConfigFrame as problem:
                raise ProtocolError(str(problem)) from None
            self._peer_configs[link] = there
            for channel in link.channels:
                channel.notify()
        elif frame.type == frames.LINKSTATE:
            if self._reachability.heard(content, asyncio.get_running_loop().time()):
                self._send_to_all(frames.encode_json(frames.LINKSTATE, content.values), link)
                self._tell_reachable()
        elif frame.type == frames.XFER_REQ:
            self._transfers.received(content)
        else:
            self._opened(link, frame.stream, Flow.from_content(content))

    async def peer_config(self, link: Link, channel: Channel) -> InstanceConfig:
        """Send this instance's CONFIG if it was not sent, and wait for the other's."""
        if link not in self._config_sent:
            self._config_sent.add(link)
            link.send(frames.encode_json(frames.CONFIG, self._config_frame))
        await channel.until(lambda: link in self._peer_configs)
        return self._peer_configs[link]

    def violations(self, destination: Destination, peer_config: InstanceConfig) -> list[Violation]:
        """The differences between the configurations that forbid the flow."""
        return validate(self._own_config, destination.index, peer_config)

    def _opened(self, link: Link, stream: int, flow: Flow) -> None:
        """The other side begins its flow on a link that exists."""
        channel = link.sink_channel
        if stream != channel.stream:
            raise ProtocolError("OPEN of the flow that goes the other way")
        transport = self._dialled_by.get(link) or self._config.replication_transport
        assert transport is not None
        self._begin(self._run_opened(link, channel, flow, self._gates(transport)))

    async def _run_opened(self, link: Link, channel: Channel, flow: Flow, gate: Gate) -> None:
        earlier = self._flow_tasks.get(channel)
        if earlier is not None and not earlier.done():
            channel.end_flow(Refused(hello.RECONNECT, "the source begins again", by_peer=True))
            await asyncio.wait([earlier])
        channel.begin()
        try:
            flow.check_peer(self.identity)
        except Refused as refusal:
            channel.finish(refusal)
            self.link_unused(link, refusal)
            return
        await self._run_incoming(link, channel, flow, gate)

    def tail_lost(self) -> None:
        """The log has lost records that were durable, and others have them: begin a new epoch.

        The lost transaction ids are given to other records, so what was acknowledged under them means nothing.
        """
        for destination in self.destinations:
            destination.forget()
        self._new_epoch()

    # --- incoming flows -------------------------------------------------------------------------------------

    async def _run_incoming(self, link: Link, channel: Channel, flow: Flow, gate: Gate) -> None:
        assert link.peer is not None
        task = asyncio.current_task()
        assert task is not None
        self._flow_tasks[channel] = task
        channel.send_json(
            frames.HELLO_ACK,
            {
                **self.identity.to_json(),
                "compression": hello.chosen_compression(flow.compression),
                "reverse": any(
                    hello.destination_matches(each, link.peer) for each in self._config.destinations
                ),
            },
        )
        incoming = Incoming(self, channel, link.peer, flow, gate)
        try:
            end = await incoming.run()
        except Refused as refusal:
            end = refusal
        except ProtocolError as problem:
            end = Refused(hello.PROTOCOL, str(problem))
            link.end(end)
        finally:
            if self._flow_tasks.get(channel) is task:
                del self._flow_tasks[channel]
        if not incoming.began and not end.use_link:
            self.log.log("1E-0015", address=link.address, code=end.code, reason=end.reason)
        channel.finish(end)
        self.link_unused(link, end)

    def end_earlier(self, incoming: Incoming) -> None:
        """The upstream begins a flow: end an earlier one of the same destination. Raises Refused (DUPLICATE_LINK)."""
        self.logged_on(incoming.channel.link, incoming.flow.label)
        for other in list(self._incoming):
            if other.upstream.uuid != incoming.upstream.uuid or other is incoming:
                continue
            if other.flow.label != incoming.flow.label:
                raise Refused(
                    hello.DUPLICATE_LINK,
                    f"the instance {self.identity.name!r} is connected by the destination {other.flow.label!r}; two "
                    "destinations must not lead to one instance",
                )
            other.channel.end_flow(Refused(hello.RECONNECT, "the other instance has connected again"))

    def partners(self) -> list[str] | None:
        """The names of the instances that send to this one what they have; None: not all of them are connected."""
        return partners(
            (None if each.connection is None else each.connection.peer for each in self.destinations),
            {link.peer.uuid: there for link, there in self._peer_configs.items() if link.peer is not None},
            (each.upstream.name for each in self._incoming),
            self.identity,
        )

    def incoming_began(self, incoming: Incoming) -> None:
        """The flow is there."""
        self._incoming.append(incoming)
        flow, link = incoming.flow, incoming.channel.link
        self.log.log("1E-0012", client=flow.client_name, peer=incoming.upstream.name, address=link.address)
        self._raise_incoming("connect-incoming-replication", incoming)
        self.core.schedule()

    def incoming_ended(self, incoming: Incoming) -> None:
        """It is not there any more."""
        self._incoming.remove(incoming)
        end = incoming.end or incoming.channel.link.end_reason
        self.log.log(
            "1E-0016", client=incoming.flow.client_name, reason=end.reason if end is not None else ""
        )
        self._raise_incoming("disconnect-incoming-replication", incoming)

    # --- events and requests ------------------------------------------------------------------------------------

    def raise_event(self, kind: str, connection: Connection) -> None:
        """Run the actions for an event of a destination."""
        if not self._stopping:
            self._tell(
                "event",
                kind,
                {
                    "AMPS_REPLICATION_PEER_NAME": connection.peer.name,
                    "AMPS_REPLICATION_CLIENT_NAME": connection.flow.client_name,
                    "AMPS_REPLICATION_REMOTE_ADDRESS": connection.address,
                    "AMPS_REPLICATION_GROUP_NAME": connection.peer.group,
                    "AMPS_REPLICATION_TRANSPORT_NAME": connection.transport,
                },
            )

    def _raise_incoming(self, kind: str, incoming: Incoming) -> None:
        if not self._stopping:
            self._tell(
                "event",
                kind,
                {
                    "AMPS_REPLICATION_PEER_NAME": incoming.upstream.name,
                    "AMPS_REPLICATION_CLIENT_NAME": incoming.flow.client_name,
                    "AMPS_REPLICATION_REMOTE_ADDRESS": incoming.channel.link.address,
                    "AMPS_REPLICATION_GROUP_NAME": incoming.upstream.group,
                },
            )

    def states(self) -> Sequence[LinkState]:
        """The state of each destination, for requests."""
        return [destination.state() for destination in self.destinations]

    def downgrade(self, destination: int, unacknowledged_s: float | None) -> None:
        """Nothing waits for a destination from now on. `unacknowledged_s`: why an action does it."""
        each = self.destinations[destination]
        each.downgrade()
        if unacknowledged_s is None:
            self.log.log("1E-0018", destination=each.config.label)
        else:
            self.log.log("1E-0017", destination=each.config.label, seconds=int(unacknowledged_s))
        self._mode_changed("downgrade-replication", each)

    def upgrade(self, destination: int) -> None:
        """Acknowledgements wait for a destination again."""
        each = self.destinations[destination]
        each.upgrade()
        self.log.log("1E-0019", destination=self._client_name(each))
        self._mode_changed("upgrade-replication", each)

    def _mode_changed(self, kind: str, destination: Destination) -> None:
        for link in self.links:
            link.wake()
        self.core.schedule()
        self._tell("event", kind, self._variables(destination))

    def _variables(self, destination: Destination) -> dict[str, str]:
        connection = destination.connection
        saved = destination.saved()
        transports = destination.config.transports
        return {
            "AMPS_REPLICATION_PEER_NAME": saved.peer_name,
            "AMPS_REPLICATION_CLIENT_NAME": self._client_name(destination),
            "AMPS_REPLICATION_REMOTE_ADDRESS": connection.address if connection is not None else "",
            "AMPS_REPLICATION_GROUP_NAME": saved.peer_group or destination.config.group or "",
            "AMPS_REPLICATION_TRANSPORT_NAME": connection.transport
            if connection is not None
            else (transports[0].name if transports else ""),
        }

    def _client_name(self, destination: Destination) -> str:
        if destination.connection is not None:
            return destination.connection.flow.client_name
        transports = destination.config.transports
        kind = transports[0].type if transports else "amps-replication"
        return hello.client_name(self.identity.name, destination.config, kind)

    def reconnect(self, destination: int) -> bool:
        """Close the connection of a destination, and begin to connect. Return whether there was one."""
        connection = self.destinations[destination].connection
        if connection is not None:
            connection.close()
        self._diallers[destination].hurry()
        return connection is not None

    # --- reachable instances --------------------------------------------------------------------------------

    def _first_hops(self) -> dict[str, str]:
        return self._reachability.first_hops(asyncio.get_running_loop().time())

    def _flood(self) -> None:
        self._flood_at_s = asyncio.get_running_loop().time() + FLOOD_INTERVAL_S
        self._send_to_all(frames.encode_json(frames.LINKSTATE, self._reachability.own_state()), None)

    def _send_to_all(self, frame: bytes, but: Link | None) -> None:
        for link in list(self.links):
            if link.trusted and link is not but:
                link.send(frame)

    def _tell_reachable(self) -> None:
        """Tell the core, which asks for queue messages, if there are queues."""
        if not self._config.queues:
            return
        reachable = sorted(self._first_hops())
        if reachable != self._reachable:
            self._reachable = reachable
            self.core.tell_reachable(reachable)

    def _send_transfer(self, neighbour: str, content: dict[str, Any]) -> None:
        for link in self.links:
            if link.trusted and link.peer is not None and link.peer.name == neighbour:
                link.send(frames.encode_json(frames.XFER_REQ, content))
                return

    def _transfer_wanted(self, queue: int, owner: str, bookmarks: bytes, wanted: int) -> None:
        self._transfers.wanted(queue, owner, bookmarks, wanted)


def _demands_tls(config: DestinationConfig) -> bool:
    """Whether all that goes to a destination is to be encrypted: each of its transports is."""
    return bool(config.transports) and all(transport.tls is not None for transport in config.transports)
