"""How a destination gets a link, again and again (replication.md §6).

1. If a link to an instance of the destination exists, whoever has dialled it, the flow is opened there.
2. Otherwise the addresses are tried from the top of the list.
3. If none answers: a pause, which grows with each pass over the list. It ends early if a link comes in.
4. After any loss the search starts again at the top.

A pause is longer by a random part, so that instances that lost each other do not come back in step.
"""

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from amps.config.model_replication import DestinationTransport
from amps.server.eventlog import EventLog
from amps.server.replication import frames, hello
from amps.server.replication.destinations import Destination
from amps.server.replication.frames import Algorithm, Content, ProtocolError
from amps.server.replication.hello import Flow, Identity, Refused, flow_of
from amps.server.replication.link import Channel, Link, Reader, Writer
from amps.server.replication.logons import Credentials
from amps.server.replication.outgoing import Outgoing
from amps.server.replication.outgoing import Surroundings as FlowSurroundings

HELLO_S = 10.0
VALIDATION_PAUSE_S = 10.0
SPREAD = 0.1
"""The random part of a pause, at most."""
LASTING_S = 1.0
"""A flow that ended sooner than that counts as an attempt that failed."""
LASTING_FULL_S = 60.0
"""The same for one that ended because the disk is full there: it takes the same records again as far as before."""

Connect = Callable[[str, int, ssl.SSLContext | None, bool], Awaitable[tuple[Reader, Writer, str]]]
"""Connects to host and port, with TLS or without; whether IPv6 is preferred. Returns the address for logs, too."""


class Surroundings(FlowSurroundings, Protocol):
    """What dialling needs of this process."""

    log: EventLog
    identity: Identity
    rng: random.Random

    def usable_link(self, destination: Destination, met: str) -> Link | None:
        """A link to an instance of the destination, on which this side has no flow as a source. `met`: the uuid of the
        instance that has answered at one of its addresses last.
        """

    def new_link(self, reader: Reader, writer: Writer, address: str, transport: DestinationTransport) -> Link:
        """Begin a link that this side has dialled."""

    def met(self, link: Link, peer: Identity) -> None:
        """The instance at the end of a dialled link is known. Raises Refused."""

    def link_unused(self, link: Link, end: Refused) -> None:
        """A flow of the link has ended; the link ends if it has no other."""

    def credentials(self, transport: DestinationTransport) -> Credentials:
        """What this side logs on with."""

    def tls(self, transport: DestinationTransport) -> ssl.SSLContext | None:
        """The TLS settings of a transport."""


@dataclass(slots=True)
class _Outcome:
    """What became of one attempt."""

    end: Refused
    began: bool
    lasted_s: float = 0.0


class Dialler:
    """The search for a link of one destination."""

    def __init__(self, around: Surroundings, destination: Destination, connect: Connect) -> None:
        self._around = around
        self._destination = destination
        self._connect = connect
        self._link_came = asyncio.Event()
        self._in_a_hurry = False
        self._tried: set[Link] = set()
        """The links of the last pass."""
        self._met = ""
        """The uuid of the instance that has answered at an address of the destination last."""
        self._told: dict[str, str] = {}
        """By address: the last reason that was logged. It is not logged again until it changes."""

    def wake(self) -> None:
        """A link has come in."""
        self._link_came.set()

    def hurry(self) -> None:
        """Begin the next pass at once."""
        self._in_a_hurry = True
        self._link_came.set()

    async def run(self) -> None:
        """Search, run the flow, and search again, without end."""
        timeouts = self._timeouts()
        passes = 0
        while True:
            self._link_came.clear()
            self._tried.clear()
            self._in_a_hurry = False
            known = self._met
            outcomes = await self._search(timeouts[min(passes, len(timeouts) - 1)])
            last = outcomes[-1] if outcomes else None
            if self._met != known:
                self._link_came.set()  # a link that was there before may be usable now
            began = last is not None and last.began
            is_full = last is not None and last.end.code == hello.STORAGE
            if last is not None and began and last.lasted_s >= (LASTING_FULL_S if is_full else LASTING_S):
                passes = 0
                self._told.clear()
                continue
            pause_s = timeouts[min(passes, len(timeouts) - 1)]
            if any(outcome.end.code == hello.VALIDATION for outcome in outcomes):
                pause_s = max(pause_s, VALIDATION_PAUSE_S)
            passes = 0 if began and not is_full else passes + 1
            await self._pause(pause_s)

    def _timeouts(self) -> tuple[float, ...]:
        transports = self._destination.config.transports
        return transports[0].reconnect_timeouts_s if transports else (1.0,)

    async def _pause(self, pause_s: float) -> None:
        pause_s *= 1 + SPREAD * self._around.rng.random()
        try:
            async with asyncio.timeout(pause_s):
                while True:
                    await self._link_came.wait()
                    self._link_came.clear()
                    if self._in_a_hurry:
                        return
                    link = self._around.usable_link(self._destination, self._met)
                    if link is not None and link not in self._tried:
                        return
        except TimeoutError:
            return

    async def _search(self, limit_s: float) -> list[_Outcome]:
        """One pass. It ends after the first flow that began."""
        outcomes: list[_Outcome] = []
        for transport in self._destination.config.transports:
            for host, port in transport.addresses or ((None, 0),):
                link = self._around.usable_link(self._destination, self._met)
                if link is not None:
                    outcomes.append(await self._attempt(link.address, self._open(link, transport)))
                    if outcomes[-1].began:
                        return outcomes
                if host is None:
                    continue
                address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
                outcomes.append(await self._attempt(address, self._dial(transport, host, port, limit_s)))
                if outcomes[-1].began or outcomes[-1].end.use_link:
                    return outcomes
        return outcomes

    async def _attempt(self, address: str, work: Awaitable["_Outcome"]) -> _Outcome:
        """Do the work of one attempt, and log why it failed."""
        try:
            outcome = await work
        except Refused as refusal:
            outcome = _Outcome(refusal, False)
        if outcome.began or outcome.end.use_link:
            self._told.pop(address, None)
            if outcome.began and not outcome.end.use_link:
                self._around.log.log("1E-0002", **self._values(address, outcome.end))
        elif self._told.get(address) != str(outcome.end):
            self._told[address] = str(outcome.end)
            record_id = "1E-0010" if outcome.end.by_peer else "1E-0011"
            self._around.log.log(record_id, **self._values(address, outcome.end))
        return outcome

    def _values(self, address: str, end: Refused) -> dict[str, str]:
        """The values for records about an attempt."""
        return {
            "destination": self._destination.config.label,
            "address": address,
            "code": end.code,
            "reason": end.reason,
        }

    # --- one attempt ----------------------------------------------------------------------------------------

    def _flow(self, transport: DestinationTransport) -> Flow:
        return flow_of(
            self._around.identity.name, self._destination.config, transport.type, transport.compression
        )

    async def _dial(self, transport: DestinationTransport, host: str, port: int, limit_s: float) -> _Outcome:
        around = self._around
        flow = self._flow(transport)
        try:
            async with asyncio.timeout(limit_s):
                reader, writer, address = await self._connect(
                    host, port, around.tls(transport), transport.prefers_ipv6
                )
        except (OSError, ssl.SSLError, TimeoutError) as problem:
            reason = str(problem) or f"no answer within {limit_s:g} s"
            raise Refused(hello.LOST, f"it cannot be connected: {reason}") from None
        link = around.new_link(reader, writer, address, transport)
        self._tried.add(link)
        channel = link.channels[0]
        channel.begin()
        try:
            channel.send_json(
                frames.HELLO,
                {
                    "proto": [hello.PROTOCOL_VERSION],
                    **around.identity.to_json(),
                    **flow.to_json(),
                    "reverse": True,
                },
            )
            try:
                async with asyncio.timeout(HELLO_S):
                    answer = Content(await channel.expect(frames.HELLO_ACK))
            except TimeoutError:
                raise Refused(hello.TIMEOUT, "the other side did not answer HELLO in time") from None
            peer = Identity.from_content(answer)
            flow.check_peer(peer)
            self._met = peer.uuid
            around.met(link, peer)
        except (Refused, ProtocolError) as problem:
            end = problem if isinstance(problem, Refused) else Refused(hello.PROTOCOL, str(problem))
            if end.use_link and end.by_peer:
                self._met = end.instance_uuid
            link.end(end)
            raise end from None
        return await self._run(link, channel, flow, transport, answer)

    async def _open(self, link: Link, transport: DestinationTransport) -> _Outcome:
        """Open the flow on a link that exists."""
        self._tried.add(link)
        flow = self._flow(transport)
        channel = link.source_channel
        channel.begin()
        channel.send_json(frames.OPEN, flow.to_json())
        try:
            async with asyncio.timeout(HELLO_S):
                answer = Content(await channel.expect(frames.HELLO_ACK, skip_others=True))
        except (Refused, ProtocolError, TimeoutError) as problem:
            end = problem if isinstance(problem, Refused) else Refused(hello.TIMEOUT, "OPEN was not answered")
            channel.finish(end)
            self._around.link_unused(link, end)
            raise end from None
        return await self._run(link, channel, flow, transport, answer)

    async def _run(
        self, link: Link, channel: Channel, flow: Flow, transport: DestinationTransport, answer: Content
    ) -> _Outcome:
        around = self._around
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        outgoing: Outgoing | None = None
        try:
            credentials = around.credentials(transport)
            chosen = _chosen(answer, flow)
            outgoing = Outgoing(around, self._destination, channel, flow, transport.name, credentials, chosen)
            end = await outgoing.run()
        except Refused as refusal:
            end = refusal
        except ProtocolError as problem:
            end = Refused(hello.PROTOCOL, str(problem))
            link.end(end)
        except asyncio.CancelledError:
            channel.finish(None)
            raise
        channel.finish(end)
        around.link_unused(link, end)
        return _Outcome(end, outgoing is not None and outgoing.began, loop.time() - began_s)


def _chosen(answer: Content, flow: Flow) -> Algorithm | None:
    """The compression that the sink has chosen from the offered ones."""
    chosen = answer.optional_text("compression", 16)
    if chosen is not None and chosen not in flow.compression:
        raise ProtocolError(f"the compression {chosen!r} was not offered")
    return chosen  # type: ignore[return-value]
