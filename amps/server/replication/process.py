"""The replication process: its event loop, listening sockets, the supervisor's messages, heartbeats, and its end.

The supervisor sends `drain` when the transports have ended. Then destinations that are connected get what they lack,
for a moment, and links end with BYE. If the supervisor dies, this process ends at once: flows resume from the log.
"""

import asyncio
import contextlib
import os
import random
import secrets
import signal
import socket
import ssl
import time
import traceback
from typing import Any

import msgpack
import uvloop

from amps.config import ServerConfig
from amps.journal.disk import Disk
from amps.server.children import EXIT_NEW_EPOCH
from amps.server.clock import ManualClock
from amps.server.core.identity import keep_identity, read_identity
from amps.server.eventlog import EventLog
from amps.server.replication.connections import Accepting, connect, tls_of
from amps.server.replication.credentials import make_credentials
from amps.server.replication.gate import Gates
from amps.server.replication.hello import Identity
from amps.server.replication.replication import Replication
from amps.server.runtime import Runtime
from amps.server.shared.allocation import keep_chunk_memory
from amps.server.shared.listeners import tls_context
from amps.server.shared.replication_requests import ReplicationRequests
from amps.version import VERSION

BEAT_S = 0.5
EXIT_FAILED = 70


def identity_of(config: ServerConfig) -> Identity:
    """This instance, as it tells other instances. Raises OSError."""
    assert config.transaction_log is not None
    uuid, epoch = read_identity(config.transaction_log.journal_directory, config.name)
    admin = config.admin
    address = "" if admin is None else admin.external_address or admin.transport.address
    return Identity(config.name, config.group, uuid, epoch, secrets.token_hex(8), VERSION, address)


class ReplicationProcess:
    """The process. It is made in the child after the fork."""

    def __init__(
        self,
        config: ServerConfig,
        runtime: Runtime,
        log: EventLog,
        supervisor: socket.socket,
        sockets: list[socket.socket],
    ) -> None:
        self._config = config
        self._runtime = runtime
        self._log = log
        self._supervisor = supervisor
        self._sockets = sockets
        self._gates = Gates(config)
        self._accepting: Accepting | None = None
        self._replication: Replication
        self._draining: asyncio.Task[None] | None = None
        self._stopped: asyncio.Future[None]

    def run(self) -> int:
        """Serve until the supervisor requests the drain. Returns the exit code of the process."""
        loop = uvloop.new_event_loop()
        asyncio.set_event_loop(loop)
        loop.run_until_complete(self._main())
        # The loop is not closed: it would wait for threads that resolve names.
        return 0

    async def _main(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._unexpected)
        self._stopped = loop.create_future()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # The supervisor requests the stop.
            loop.add_signal_handler(number, lambda: None)
        runtime, config = self._runtime, self._config
        self._replication = replication = Replication(
            config,
            runtime,
            self._log,
            identity_of(config),
            connect=connect,
            credentials=lambda transport: make_credentials(config, transport),
            gates=self._gates.of,
            clock=runtime.clock,
            rng=random.Random(),
            tell=self._tell,
            tls=tls_of,
            failed=self._failed,
            new_epoch=self._new_epoch,
        )
        assert runtime.replication_index is not None
        wake_up = runtime.transport_wake_ups[runtime.replication_index]
        await replication.start()

        def woken() -> None:
            wake_up.clear()
            replication.wake()

        loop.add_reader(wake_up.fd, woken)
        loop.add_reader(self._supervisor.fileno(), self._listen)
        requests = ReplicationRequests(runtime.replication_requests, config.min_sync_destinations)
        loop.add_reader(requests.fileno(), lambda: requests.answer_requests(replication))
        self._open()
        self._beat()
        self._tell("ready")
        await self._stopped

    def _open(self) -> None:
        transport = self._config.replication_transport
        if transport is None or not self._sockets:
            return
        tls: ssl.SSLContext | None = tls_context(transport.tls) if transport.tls is not None else None
        self._accepting = Accepting(transport.name, self._sockets, tls, self._replication.accept, self._log)
        self._accepting.begin()

    def _beat(self) -> None:
        index = self._runtime.replication_index
        assert index is not None
        self._runtime.control.transport_beat(index, time.monotonic_ns())
        asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    def _failed(self, trace: str) -> None:
        """End the process, because a part of its work has stopped for good. The supervisor starts another."""
        self._log.log("01-0005", place="replication", data=trace)
        os._exit(EXIT_FAILED)

    def _new_epoch(self) -> None:
        """Begin a new epoch, and end: the supervisor starts another process, which uses it. Raises OSError."""
        config = self._config
        assert config.transaction_log is not None
        keep_identity(Disk(), config.transaction_log.journal_directory, config.name, True, self._log.log)
        os._exit(EXIT_NEW_EPOCH)

    def _unexpected(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log a failure that no code awaits, except OSErrors of connections (TLS handshakes), caused by others."""
        problem = context.get("exception")
        if not isinstance(problem, OSError):
            trace = "".join(traceback.format_exception(problem)) if problem is not None else ""
            self._log.log("01-0005", place="replication", data=f"{context.get('message')}\n{trace}")

    # --- supervisor -----------------------------------------------------------------------------------------

    def _tell(self, *message: object) -> None:
        # `_listen` detects the end of the supervisor.
        with contextlib.suppress(OSError):
            self._supervisor.send(msgpack.packb(message))

    def _listen(self) -> None:
        while True:
            try:
                data = self._supervisor.recv(65536, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._end_alone()
            self._heard(*msgpack.unpackb(data))

    def _end_alone(self) -> None:
        """End without the supervisor, which would have told the core. The core waits for processes that seem alive."""
        assert self._runtime.replication_index is not None
        self._runtime.control.set_transport_alive(self._runtime.replication_index, False)
        self._runtime.core_wake_up.send()
        os._exit(0)

    def _heard(self, what: str, *rest: Any) -> None:
        if what == "drain":
            if self._draining is None:
                self._draining = asyncio.get_running_loop().create_task(self._drain())
        elif what == "switch":
            self._gates.switch(*rest)
        elif what == "clock":
            if isinstance(self._runtime.clock, ManualClock):
                self._runtime.clock.run_due()
            self._replication.wake()
            self._tell("clock passed", rest[0])

    async def _drain(self) -> None:
        if self._accepting is not None:
            self._accepting.stop()
        try:
            await self._replication.stop()
        except Exception:
            self._failed(traceback.format_exc())
        await asyncio.sleep(0)  # BYE leaves
        self._stopped.set_result(None)


def run_replication(
    config: ServerConfig,
    runtime: Runtime,
    log: EventLog,
    supervisor: socket.socket,
    sockets: list[socket.socket],
) -> int:
    """The body of the replication process; returns its exit code."""
    keep_chunk_memory()
    return ReplicationProcess(config, runtime, log, supervisor, sockets).run()
