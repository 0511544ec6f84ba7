"""The replication process's side of the memory that it shares with the core: sessions of sinks, answers, durability.

A sink has a session with the core, under the name of its upstream. The core drops duplicates of its records, and
answers with the last transaction id of the upstream that is in the log. When the core refuses a record, it accepts no
more of that session: the flow ends, and a new one begins from what the log has.

All work is done in turns, as in the other processes. A turn reads the core's answers, lets what waited for the durable
watermark go on, and tells `moved` that the log may have grown. While the log grows fast, it rests after each.
"""

import asyncio
import contextlib
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from amps._core.wire.topics import TopicEntry
from amps.server.records import (
    KIND_DECLARE_NAME,
    KIND_DISCONNECT,
    KIND_LOG_COMPLETE,
    KIND_REACHABLE,
    KIND_REPLICATION_FLOW,
    KIND_REPLICATION_VECTOR,
    KIND_TRANSFER_REQUEST,
    RESERVED_NAMES,
    control_record,
)
from amps.server.replication import hello
from amps.server.replication.hello import Identity, Refused
from amps.server.runtime import Runtime
from amps.server.shared.core_link import CoreLink

SERIAL_MASK = 0xFFFFFFFF
NS_PER_S = 1_000_000_000
ROOM_POLL_S = 0.002
BUSY_BYTES = 1 << 17
"""Of the log, in one turn: written and synced bytes together."""
REST_S = 0.002
"""After a busy turn. A turn costs as much as many messages, and one for the messages of two milliseconds is enough."""


def upstream_name(upstream: Identity, own: Identity) -> str:
    """The name under which the log knows an upstream. A new epoch on either side is a new upstream."""
    return f"{RESERVED_NAMES}from {upstream.name} {upstream.epoch} {own.epoch}"


class CoreSession:
    """The session of one sink."""

    def __init__(self, slot: int, serial: int, name: str) -> None:
        self.slot = slot
        self.serial = serial
        self.name = name
        self.refused: Callable[[str], None] = lambda reason: None
        """Called when the core accepts no more. `refused`: no room; `malformed`: a record is not as it must be."""
        self.answer: asyncio.Future[list[Any]] | None = None


class CoreSessions:
    """All sessions, and the turns of the process. Made in the process; `begin` must be called in its event loop."""

    def __init__(
        self,
        runtime: Runtime,
        has_journal: bool,
        moved: Callable[[], None],
        transfer_wanted: Callable[..., None],
        failed: Callable[[str], None],
    ) -> None:
        """`moved`: the log may have grown, or the ring may have room. `transfer_wanted` gets queue number, owner,
        bookmarks, and how many messages are wanted. `failed` receives the traceback of a turn that raised.
        """
        assert runtime.replication_index is not None
        self._runtime = runtime
        self.index = runtime.replication_index
        self.link = CoreLink(runtime, self.index, has_journal, self.schedule)
        self._moved = moved
        self._transfer_wanted = transfer_wanted
        self._failed = failed
        self._sessions: dict[int, CoreSession] = {}
        self._next_slot = 0
        self._serial = time.monotonic_ns() // 1000 & SERIAL_MASK
        self._scheduled = False
        self._stopped = False
        self._seen = 0
        self._rests_until_s = 0.0
        self.wants_durable = False
        """Whether a flow waits for the durable watermark."""
        self._loop: asyncio.AbstractEventLoop

    def begin(self) -> None:
        """Take part from now on."""
        self._loop = asyncio.get_running_loop()
        self._runtime.control.set_transport_alive(self.index, True)
        self.schedule()

    def stop(self) -> None:
        """Take no more turns."""
        self._stopped = True
        self._runtime.control.set_transport_alive(self.index, False)

    @property
    def durable(self) -> int:
        """Log position below which the journal is durable."""
        return self._runtime.control.durable

    @property
    def refuses(self) -> bool:
        """Whether the core takes no records now, because the next journal cannot be made."""
        return self._runtime.control.refused_from_bytes == 0

    # --- sessions -------------------------------------------------------------------------------------------

    async def begin_session(self, name: str) -> tuple[CoreSession, int]:
        """Begin a session. Return it, and the last transaction id of the upstream that is durable in the log."""
        self._serial = (self._serial + 1) & SERIAL_MASK
        slot = next(slot for slot in range(len(self._sessions) + 1) if slot not in self._sessions)
        session = CoreSession(slot, self._serial, name)
        self._sessions[slot] = session
        try:
            last_txid, position = await self._ask(session, [name], KIND_REPLICATION_FLOW)
            await self.until_durable(position)
        except BaseException:
            self.end_session(session)
            raise
        return session, last_txid

    async def vector(self, session: CoreSession) -> bytes:
        """The highest sequence of each publisher: pairs of 8 bytes (publisher id, sequence), durable in the log."""
        path = Path(f"{self._runtime.directory.path}/vector.{session.slot}.{session.serial}")
        try:
            count, position = await self._ask(session, [str(path)], KIND_REPLICATION_VECTOR)
            await self.until_durable(position)
            data = path.read_bytes()
        except OSError as problem:
            raise Refused(hello.STORAGE, f"{path} cannot be read: {problem.strerror}") from None
        finally:
            with contextlib.suppress(OSError):
                path.unlink()
        return data[: 16 * count]

    def end_session(self, session: CoreSession) -> None:
        """End a session. What the core has read of it stays."""
        if self._sessions.get(session.slot) is session:
            del self._sessions[session.slot]
            self.link.push_control(control_record([], KIND_DISCONNECT, session.slot, session.serial))
            self.schedule()

    async def _ask(self, session: CoreSession, content: list[Any], kind: int) -> list[Any]:
        session.answer = self._loop.create_future()
        self.link.push_control(control_record(content, kind, session.slot, session.serial))
        self.schedule()
        try:
            return await session.answer
        finally:
            session.answer = None

    async def until_durable(self, position: int) -> None:
        """Wait until the log is durable up to a position."""
        done: asyncio.Future[None] = self._loop.create_future()
        self.link.when_durable(position, lambda: None if done.done() else done.set_result(None))
        self.schedule()
        await done

    async def room(self) -> None:
        """Wait a moment for room in the ring."""
        self.link.publish_pushed()
        self.schedule()
        await asyncio.sleep(ROOM_POLL_S)

    def declare_topic(self, entry: TopicEntry) -> bool:
        """Tell the core the number of a topic. False: there is no room now."""
        return self.link.declare(entry)

    def declare_name(self, name_class: int, name_id: int, text: bytes) -> bool:
        """Tell the core the text of a name id. False: there is no room now."""
        record = control_record([name_class, name_id, text], KIND_DECLARE_NAME)
        return not self.link.has_controls_waiting and bool(self.link.ring.push(record))

    def tell_complete(self, session: CoreSession, name: str, age_s: float, partners: list[str] | None) -> None:
        """Tell the core that all that was in the log of an upstream `age_s` ago was passed on before. `partners`: the
        names of the instances that send to this one what they have; None: not all of them are connected.
        """
        content = [name, max(0, int(age_s * NS_PER_S)), partners]
        self.link.push_control(control_record(content, KIND_LOG_COMPLETE, session.slot, session.serial))
        self.schedule()

    # --- records without a session ----------------------------------------------------------------------------

    def tell_reachable(self, names: list[str]) -> None:
        """Tell the core which instances can be reached."""
        self.link.push_control(control_record([names], KIND_REACHABLE))
        self.schedule()

    def pass_transfer_request(self, queue: int, requester: str, bookmarks: bytes, wanted: int) -> None:
        """Pass another instance's request for queue messages to the core."""
        self.link.push_control(control_record([queue, requester, bookmarks, wanted], KIND_TRANSFER_REQUEST))
        self.schedule()

    # --- turns ----------------------------------------------------------------------------------------------

    def schedule(self) -> None:
        """Request a turn soon: at once, or at the end of the rest after a busy one."""
        if not self._scheduled and not self._stopped:
            self._scheduled = True
            rest_s = self._rests_until_s - self._loop.time()
            if rest_s > 0:
                self._loop.call_later(rest_s, self._turn)
            else:
                self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        if self._stopped:
            return
        try:
            self._work()
        except Exception:
            self._failed(traceback.format_exc())

    def _work(self) -> None:
        link = self.link
        link.view.wake()
        # The ring's tail is read before the answers: a refusal of a record before it is among them.
        link.view.read()
        # This process never reads the transient log, and so holds none of it.
        link.view.set_transient_read(link.view.transient_written)
        for kind, slot, serial, *rest in link.answers():
            if kind == "transfer_wanted":
                self._transfer_wanted(*rest)
                continue
            session = self._sessions.get(slot)
            if session is None or session.serial != serial:
                continue
            if kind in ("refused", "malformed"):
                if session.answer is not None and not session.answer.done():
                    session.answer.set_exception(Refused(hello.STORAGE, hello.NO_ROOM))
                session.refused(kind)
            elif session.answer is not None and not session.answer.done():
                session.answer.set_result(rest)
        link.push_waiting()
        link.run_waiting()
        self._moved()
        link.publish_pushed()
        if self.wants_durable or link.durable_awaited:
            link.ask_for_durable()
        if self._was_busy():
            # It stays awake, so that nobody spends time on waking it.
            self._rests_until_s = self._loop.time() + REST_S
            self.schedule()
        elif not link.view.fall_asleep():
            self.schedule()

    def _was_busy(self) -> bool:
        """Whether the log has grown much since the last turn."""
        view = self.link.view
        before, self._seen = self._seen, view.journal_written + view.durable
        return self._seen - before >= BUSY_BYTES
