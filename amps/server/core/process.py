"""The core process: the loop around the sequencer.

It runs turns as long as there is work (`amps._core.sequencer.sequencer`). Then it sets its sleep flag, checks once
more, and waits for its wake-up. All decisions are made in `amps._core.sequencer.sequencer`. This module opens and
closes the log for it, does periodic work between turns, and communicates with the supervisor.

Messages of the supervisor (one msgpack list per datagram): in `["transport died", i]`, `["drain"]`, `["clock", round]`;
out `["ready", seconds, directories]`, `["transport drained", i]`, `["refused", text, may pass]`, `["failed", text]`,
`["clock passed", round]`.

Requests about journals (list, archive, compress, remove; journal_retention.py) and about queues (queue_answers.py) come
from the services process over `runtime.core_requests`: `[id, verb, options]` in, `[id, "ok"|"more"|"error", …]` out.

A full disk, or one on which no files can be made, does not end the core. Messages that would need the next journal are
refused, all other work goes on, and the core tries again and again to make that journal (refusing.py).

The core exits with 0 after a drain. It exits with EXIT_STORAGE when a write or a sync on the journal's device fails:
nothing more may be acknowledged (transaction_log.md §20, 35), and only a recovery shows what the log contains. It exits
with EXIT_REFUSED when recovery refuses, or cannot be done now. The supervisor distinguishes the cases by the messages.
"""

import contextlib
import mmap
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

import msgpack

from amps._core.journal.writer import IndexBuilder, LogWriter
from amps._core.sequencer.sequencer import WOKEN_BY_SIGNAL, CoreTurns, Sequencer
from amps._core.shm.memory import CORE_DRAINED, CORE_FAILED, CORE_RECOVERING, CORE_RUNNING, Placement
from amps.config import ServerConfig
from amps.journal.disk import DirectoryGone, Disk, Identity
from amps.journal.files import JournalHeader
from amps.journal.names import find_journals, identity_path, watermark_path
from amps.journal.queues_ack import LogMark
from amps.journal.watermark import WatermarkFile
from amps.server import remedies
from amps.server.core.action_pins import ActionPins, begin_action_positions, watched_queues
from amps.server.core.destination_pins import DestinationPins
from amps.server.core.disk import WatchedDisk
from amps.server.core.flusher import Flusher
from amps.server.core.free_space import FreeSpaceWatch
from amps.server.core.identity import keep_identity
from amps.server.core.journal_files import JournalFiles, StorageFailure
from amps.server.core.lock import DirectoryInUse, DirectoryLock, lock_directory
from amps.server.core.older import RecoveryRefused
from amps.server.core.queue_answers import answer_about_queues
from amps.server.core.queues import CoreQueues
from amps.server.core.recovery import Recovered, recover
from amps.server.core.refusing import Refusing
from amps.server.core.sow_states import CoreStates
from amps.server.core.take_overs import TakeOvers
from amps.server.core.transient_files import TransientFiles
from amps.server.eventlog import EventLog
from amps.server.records import RESERVED_NAMES, control_record
from amps.server.runtime import Runtime
from amps.server.stopping import EXIT_STORAGE
from amps.server.topics import TopicMatcher

EXIT_REFUSED = 78
BATCH_BYTES = 1 << 18
IDLE_WAIT_MS = 100
ANSWER_WAIT_MS = 1
# What is overdue for so long, although a turn found nothing to do, waits for room on the disk.
BLOCKED_AFTER_MS = 1000
BLOCKED_WAIT_MS = 10
# How long messages of the supervisor and failures of the flusher may go unnoticed while there is work.
LOOK_INTERVAL_NS = 10_000_000
BUSY_POLL_NS = 100_000
ORPHAN_DRAIN_NS = 6_000_000_000
REQUESTS_PER_LOOK = 16
REQUEST_BYTES_MAX = 65536


class Core:
    """The whole core process. It is made in the child after the fork."""

    def __init__(
        self,
        config: ServerConfig,
        runtime: Runtime,
        log: EventLog,
        supervisor: socket.socket,
        *,
        disk: Disk | None = None,
        now_ns: Callable[[], int] | None = None,
        background: bool = True,
        directories: Mapping[str, Identity] | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """Disk, clock, chance and threads can be replaced for the simulation; `background`: see Flusher, JournalFiles.
        `now_ns`: UNIX time; None: that of the runtime.

        `directories`: identities of the log's directories before the tree was restarted; they must still be there.
        """
        self._config = config
        self._runtime = runtime
        self._log = log
        self._supervisor = supervisor
        self._lock: DirectoryLock | None = None
        self._journal_files: JournalFiles | None = None
        self._flusher: Flusher | None = None
        self._transient_files = TransientFiles(runtime, config.name)
        self.turns = CoreTurns(
            runtime.control,
            runtime.egress,
            [wake_up.fd for wake_up in runtime.transport_wake_ups],
            runtime.core_wake_up.fd,
            supervisor.fileno(),
            runtime.core_requests.fileno(),
            BATCH_BYTES,
            self._as_record,
        )
        self._take_overs = TakeOvers(log)
        self._placement = Placement(runtime.control, runtime.transports)
        self._disk = disk or Disk()
        self._now_ns = now_ns or runtime.clock.time_ns
        self._file_now_ns = now_ns or time.time_ns  # by which the file system dates files
        self._clock_round = 0  # a round of amps/server/advancing.py to answer; 0: none
        self._clock_position = 0  # the end of the journal at the first idle moment of that round
        self._background = background
        self._random_bytes = random_bytes
        self._directories = dict(directories or {})
        self._had_log = directories is not None
        self._refusing: Refusing | None = None
        self._queues: CoreQueues | None = None
        self._states: CoreStates | None = None
        self._action_pins: ActionPins | None = None
        self._waiting_answers: deque[bytes] = deque()
        self._draining = False
        self._orphaned_until_ns = 0  # how long transports may drain after the supervisor died
        self.sequencer: Sequencer

    def run(self) -> int:
        """Recover, then serve until drained. Return the exit code of the process."""
        began = time.monotonic()
        control = self._runtime.control
        control.state = CORE_RECOVERING
        try:
            self.open()
        except (RecoveryRefused, DirectoryInUse, StorageFailure, OSError) as problem:
            control.state = CORE_FAILED
            reason = self._with_remedy(problem)
            may_pass = isinstance(problem, StorageFailure | OSError)
            if may_pass and not self._had_log:
                reason += " and start the server again"
            self._log.log("1D-0002", reason=reason)
            self._tell("refused", f"the transaction log cannot be opened: {reason}", may_pass)
            return EXIT_REFUSED
        control.state = CORE_RUNNING
        self._tell("ready", time.monotonic() - began, self._directories)
        try:
            self._serve()
            self.close()
        except StorageFailure as problem:
            control.state = CORE_FAILED
            reason = self._with_remedy(problem)
            self._log.log("1D-0003", reason=reason)
            self._tell("failed", reason)
            return EXIT_STORAGE
        control.state = CORE_DRAINED
        return 0

    def _with_remedy(self, problem: Exception) -> str:
        """The text of a failure, with its place and its remedy, complete in itself."""
        cause = problem if isinstance(problem, OSError) else problem.__cause__
        if not isinstance(cause, OSError):
            return str(problem)  # refusals contain it
        text = (problem.strerror or str(problem)) if isinstance(problem, DirectoryGone) else str(problem)
        settings = self._config.transaction_log
        if settings is not None and str(self._runtime.directory.path) not in text:
            text = f"{text}, JournalDirectory {settings.journal_directory}"
        return f"{text}; {remedies.for_files(cause.errno)}"

    # --- opening and closing ------------------------------------------------------------------------------

    def open(self) -> None:
        """Recover and prepare for serving. Raises RecoveryRefused, StorageFailure, OSError."""
        config = self._config
        now_ns = self._now_ns()
        transient = LogWriter(self._transient_files, False)
        journal: LogWriter | None = None
        recovered = Recovered()
        settings = config.transaction_log
        if settings is not None:
            archive = settings.journal_archive_directory
            self._find_directories([settings.journal_directory] + ([archive] if archive is not None else []))
            if self._had_log and not find_journals(settings.journal_directory, archive, config.name):
                raise StorageFailure(
                    f"there are no journals in {settings.journal_directory} any more; put them back"
                )
            self._lock = lock_directory(settings.journal_directory, config.name, self._log.log)
            self._flusher = Flusher(
                self._runtime,
                settings.flush_interval_s,
                WatermarkFile(watermark_path(settings.journal_directory, config.name), self._disk),
                self._disk,
                self._background,
                not settings.o_direct,
            )
            files = self._journal_files = JournalFiles(
                settings.journal_directory,
                config.name,
                settings.journal_size_bytes,
                settings.preallocated_journal_files,
                self._runtime,
                self._flusher,
                self._log.log,
                self._disk,
                self._background,
                archive,
                config.tuning.topic_index,
            )
            if config.tuning.free_space_warning is not None and self._background:
                directories = [settings.journal_directory] + ([archive] if archive is not None else [])
                files.chores.append(
                    FreeSpaceWatch(directories, config.tuning.free_space_warning, self._log.log)
                )
            index: IndexBuilder | None = None

            def make_index(info: JournalHeader) -> IndexBuilder:
                nonlocal index
                index = IndexBuilder(
                    files.index_memory(info.number, info.size), info.number, info.start_position, info.size
                )
                return index

            expiration_s = settings.inactive_client_ack_expiration_s
            recovered = recover(
                settings.journal_directory,
                config.name,
                make_index,
                self._log.log,
                self._disk,
                archive,
                0 if expiration_s is None else now_ns - int(expiration_s * 1e9),
            )
            files.retention.start(recovered.journals, recovered.clients)
            self._begin_replication(files, settings.journal_directory, recovered)
            journal = LogWriter(files, True)
        states = None
        last_txid = recovered.last_txid
        if config.sow_topics:
            states = CoreStates(
                config, self._runtime, self._log, self._disk, now_ns, recovered.last_txid
            )
            last_txid = max(last_txid, states.take_files())
        next_txid = max(last_txid + 1, now_ns // 1_000_000_000 * 1_000_000_000 + 1)
        transient.open_first(0, 0, next_txid)
        if journal is not None and self._journal_files is not None and self._flusher is not None:
            self._open_journal(journal, index, recovered, next_txid)
        queues = self._recover_queues(journal, recovered) if config.queues and journal is not None else None
        self._queues = queues
        if states is not None:
            self._recover_states(states, journal, recovered, next_txid)
        self._states = states
        if journal is not None:
            self._begin_actions(journal.position)
        matcher = TopicMatcher(config)
        # Timestamps in the log increase, also over a restart with a clock that was set back.
        began_ns = max(now_ns, recovered.last_timestamp_ns)
        self.sequencer = Sequencer(
            journal,
            transient,
            matcher.is_logged,
            self._open_spill,
            next_txid,
            recovered.publishers,
            began_ns,
            None if queues is None else (queues.adapter, queues.topics),
            recovered.refused,
            write_vector if config.replicates else None,
            None if states is None else states.for_sequencer,
        )
        if states is not None:
            self._begin_states(states, recovered)
        self.sequencer.replication_index = self._runtime.replication_index
        if queues is not None and self._config.replicates:
            self.sequencer.publish_decisions_as(f"{RESERVED_NAMES}{self._config.name}/queue")
        for topic_id, (topic, message_type) in enumerate(recovered.topics):
            if journal is not None and not recovered.finished:
                journal.note_topic(self.sequencer.topic_number(topic, message_type), topic_id)
        if self._journal_files is not None:
            self._refusing = Refusing(self.sequencer, self._journal_files, self._runtime.control, self._log)
            self._journal_files.retention.client_names = self.sequencer.client_names
            self._journal_files.retention.refused_transactions = self.sequencer.refused_transactions
            try:
                self._journal_files.wait_for_spares()
            except StorageFailure:
                # An instance with a log can serve it, and accept messages that still fit; others are refused later.
                if recovered.active is None:
                    raise
        for transport, ring in enumerate(self._runtime.ingress):
            self.sequencer.attach_transport(transport, ring)
        written = None if journal is None or self._flusher is None else self._flusher.written
        self.turns.begin(self.sequencer, self._room_in_transient_log, written, self._after_turn)
        self.sequencer.publish_watermarks(self._runtime.control)

    def _begin_replication(self, files: JournalFiles, directory: Path, recovered: Recovered) -> None:
        """Keep the identity of the log, and the journals that destinations lack. Raises OSError."""
        config = self._config
        begins_anew = recovered.active is None
        if not config.replicates and not (begins_anew and identity_path(directory, config.name).exists()):
            return
        keep_identity(self._disk, directory, config.name, begins_anew, self._log.log, self._random_bytes)
        if config.destinations:
            pins = DestinationPins(
                self._runtime.control,
                [destination.label for destination in config.destinations],
                files.retention.number_at,
            )
            files.retention.blockers.append(pins.oldest_journal)
            files.retention.explain = pins.explain

    def _find_directories(self, directories: list[Path]) -> None:
        """Make the directories of the log at the first start; later check that they are the same. Raises OSError."""
        for directory in directories:
            if not self._had_log:
                make_directory(self._disk, directory)
            known = self._directories.get(str(directory))
            self._directories[str(directory)] = self._disk.expect(directory, known)

    def _recover_queues(self, journal: LogWriter, recovered: Recovered) -> CoreQueues:
        """Make the queues of the recovered log. Raises RecoveryRefused, OSError."""
        files, active = self._journal_files, recovered.active
        assert files is not None
        queues = CoreQueues(self._config, self._runtime, self._log, self._disk)
        journals = [entry.header for entry in recovered.journals] + ([active] if active is not None else [])
        queues.recover(
            journals, journal.position, self._log_mark(journal), lambda id_: recovered.publishers.get(id_, 0)
        )
        queues.checkpoints.wake = files.wake
        files.chores.append(queues.checkpoints)
        retention = files.retention
        retention.blockers.append(lambda: queues.oldest_journal(retention.number_at))
        return queues

    def _recover_states(
        self, states: CoreStates, journal: LogWriter | None, recovered: Recovered, next_txid: int
    ) -> None:
        """Complete the SOW topics from the recovered log. Raises RecoveryRefused, OSError."""
        active = recovered.active
        journals = [entry.header for entry in recovered.journals] + ([active] if active is not None else [])
        states.recover(journals, 0 if journal is None else journal.position, next_txid)
        if journal is not None and self._journal_files is not None:
            states.read_journals(journal)
            retention = self._journal_files.retention
            retention.blockers.append(lambda: states.oldest_journal(retention.number_at))
            self._journal_files.chores.append(states)
            states.wake = self._journal_files.wake

    def _begin_states(self, states: CoreStates, recovered: Recovered) -> None:
        for name, message_type in states.known_topics():
            self.sequencer.topic_number(name, message_type)
        active = recovered.active
        oldest = recovered.journals[0].header if recovered.journals else active
        self.sequencer.log_txid = 0 if oldest is None else oldest.first_txid

    def _log_mark(self, journal: LogWriter) -> LogMark:
        """The end of the log."""
        assert self._journal_files is not None
        info = self._journal_files.in_use
        return LogMark(journal.position, info.number, info.start_position, info.first_txid)

    def _begin_actions(self, position: int) -> None:
        """Read the positions of actions on queues, before anything is added to the log. Raises OSError."""
        config, settings, files, queues = (
            self._config,
            self._config.transaction_log,
            self._journal_files,
            self._queues,
        )
        assert settings is not None
        assert files is not None
        begin_action_positions(config, settings.journal_directory, self._disk, position, self._log.log)
        watched = watched_queues(config)
        if watched and queues is not None:
            self._action_pins = ActionPins(
                lambda: min(queues.oldest_position(number) for number in watched),
                self._runtime.action_progress,
                files.retention.number_at,
            )
            files.retention.blockers.append(self._action_pins.oldest_journal)

    def _open_journal(
        self, journal: LogWriter, index: IndexBuilder | None, recovered: Recovered, next_txid: int
    ) -> None:
        files, flusher = self._journal_files, self._flusher
        assert files is not None
        assert flusher is not None
        active = recovered.active
        self._runtime.control.first_journal_number = recovered.first_number
        if active is None:
            files.start(recovered.spares, recovered.first_number - 1)
            journal.open_first(recovered.first_number, 0, next_txid)
        elif recovered.finished:
            assert index is not None
            files.start(recovered.spares, active.number)
            files.finish_recovered(active, index)
            journal.open_first(active.number + 1, active.start_position + active.size, next_txid)
        else:
            files.start(recovered.spares, active.number)
            files.resume(active)
            journal.resume(
                active.number,
                active.start_position,
                active.size,
                recovered.position,
                index,
                len(recovered.topics),
                recovered.name_ids,
                recovered.last_refused_offset,
            )
        if active is not None:
            files.make_missing_topic_indexes(recovered.first_number, active.number + recovered.finished)
        # Recovery has synced everything, and so has bringing a file into use.
        flusher.start(journal.position)

    def close(self) -> None:
        """Make everything durable and end. Raises StorageFailure."""
        self._take_overs.end()
        if self._flusher is not None:
            self._flusher.drain()
            self._check_flusher()
        if self._journal_files is not None:
            self._journal_files.stop()
            journal = self.sequencer.journal
            if journal is not None and journal.index is not None:
                self._journal_files.write_publishers(journal.index, journal.position)
            if journal is not None and self._queues is not None:
                self._queues.checkpoints.write_now(self._log_mark(journal))
        if self._states is not None:
            self._states.close()

    def _as_record(self, reply: object) -> bytes:
        """The record that carries a reply to a transport."""
        if isinstance(reply, tuple) and reply[0] == "kick":
            self._take_overs.happened(reply[3], reply[4])
        return control_record(reply)

    def _open_spill(self, token: bytes) -> mmap.mmap:
        path = self._runtime.spill_path(token.decode())
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            path.unlink()
            return mmap.mmap(descriptor, 0)
        finally:
            os.close(descriptor)

    # --- the loop -----------------------------------------------------------------------------------------

    def _serve(self) -> None:
        turns = self.turns
        control = self._runtime.control
        look_ns = 0
        while True:
            beat_ns = time.monotonic_ns()
            control.core_beat(beat_ns)
            worked = self.turn()
            if worked:
                self._placement.keep_apart(beat_ns)
                # A turn right after one that has worked mostly finds nothing: the others had no time to react.
                if self._idle_ms():
                    turns.busy_poll(BUSY_POLL_NS)
                if beat_ns < look_ns:
                    continue
            else:
                if self._draining and not self._pending() and not self._transports_drain(beat_ns):
                    return
                if self._clock_round:
                    self._pass_clock()
                turns.sleeps()
                if self._flusher is not None:
                    # After setting the sleep flag: a transport that needs more from now on sends a wake-up.
                    self._flusher.demand(control.durable_wanted(self._runtime.transports))
                woken = WOKEN_BY_SIGNAL
                if not self._pending():
                    wait_ms = ANSWER_WAIT_MS if turns.blocked or self._clock_round else self._idle_ms()
                    woken = turns.wait(wait_ms, self._orphaned_until_ns != 0, bool(self._waiting_answers))
                turns.wakes()
                if woken == WOKEN_BY_SIGNAL and beat_ns < look_ns:
                    continue
            look_ns = beat_ns + LOOK_INTERVAL_NS
            self.look()

    def _pass_clock(self) -> None:
        """After a turn without work: report the round when what the new time has caused is durable and sent."""
        journal = self.sequencer.journal
        if self.turns.blocked:
            return
        if journal is not None and self._flusher is not None:
            if not self._clock_position:
                self._clock_position = journal.position
            if self._runtime.control.durable < self._clock_position:
                self._flusher.demand(self._clock_position)
                return
        self._tell("clock passed", self._clock_round)
        self._clock_round = 0

    def _transports_drain(self, now_ns: int) -> bool:
        """Whether transports may still push records, without a supervisor that would have waited for them."""
        control, transports = self._runtime.control, range(self._runtime.transports)
        return now_ns < self._orphaned_until_ns and any(
            control.transport_alive(index) for index in transports
        )

    def _idle_ms(self) -> int:
        """How long the core may sleep without input, in milliseconds; 0: a queue has something to do now."""
        if self._states is not None and self._states.carries:
            return 0
        due = [ns for ns in (self.sequencer.queues_due_ns, self.sequencer.states_due_ns) if ns is not None]
        due_ns = min(due, default=None)
        if due_ns is None:
            return IDLE_WAIT_MS
        left_ms = (due_ns - self._now_ns()) // 1_000_000 + 1
        return BLOCKED_WAIT_MS if left_ms < -BLOCKED_AFTER_MS else min(IDLE_WAIT_MS, max(0, left_ms))

    def _pending(self) -> bool:
        return self._room_in_transient_log() and self.sequencer.pending()

    def _room_in_transient_log(self) -> bool:
        return self._transient_files.trim()

    def turn(self) -> bool:
        """Process one batch of every transport. True: there was work. Raises StorageFailure."""
        return self.turns.turn(self._now_ns())

    def _after_turn(self) -> None:
        """Do the work that follows a turn of the sequencer."""
        if self._refusing is not None:
            self._refusing.after_turn()
        if self._queues is not None:
            assert self.sequencer.journal is not None
            self._queues.checkpoints.turn(self.sequencer.journal.position)
        if self._states is not None:
            self._states.after_turn()
        if self._states is not None and self._states.carries:
            self._states.turn()
            if not self._states.carries and self._journal_files is not None:
                self._journal_files.wake()

    def _check_flusher(self) -> None:
        if self._flusher is not None and self._flusher.failed:
            failed = self._flusher.failed
            raise StorageFailure(f"syncing a journal failed: {os.strerror(failed)}") from OSError(
                failed, os.strerror(failed)
            )

    # --- supervisor ---------------------------------------------------------------------------------------

    def _tell(self, *message: object) -> None:
        # `_listen` detects a dead supervisor.
        with contextlib.suppress(OSError):
            self._supervisor.send(msgpack.packb(message))

    def look(self) -> None:
        """Do the work besides messages: flusher, supervisor, requests, dead transports, take-overs to log.

        Raises StorageFailure.
        """
        self._check_flusher()
        self._listen()
        if self._refusing is not None and not self._draining:
            self._refusing.look()
        journal = self.sequencer.journal
        pages = None if self._flusher is None else self._flusher.pages
        if pages is not None and journal is not None:
            now_ns = time.monotonic_ns()
            if pages.wants_to_know(journal.position, now_ns):
                pages.keep_from(journal.position, now_ns, self.sequencer.undelivered_from)
        if self._queues is not None and journal is not None:
            self._queues.look(time.monotonic(), lambda: self._log_mark(journal), journal.position)
            if self._action_pins is not None and self._queues.all_written:
                self._action_pins.look(journal.position)
        if self._states is not None and self._journal_files is not None:
            self._states.look(self.sequencer, self._journal_files.retention.beginning)
        self._answer_requests()
        self._take_overs.look()
        for index in list(self.turns.replacing):
            self._replace_transport(index)

    def _listen(self) -> None:
        while True:
            try:
                data = self._supervisor.recv(65536, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            if not data:
                # Without a supervisor no process restarts or stops the others: drain and end. Transports do the same.
                if not self._draining:
                    self._orphaned_until_ns = time.monotonic_ns() + ORPHAN_DRAIN_NS
                self._drain()
                return
            message = msgpack.unpackb(data)
            if message[0] == "drain":
                self._drain()
            elif message[0] == "clock":
                self._clock_round, self._clock_position = message[1], 0
            elif message[0] == "transport died":
                self.turns.replacing.add(message[1])

    def _answer_requests(self) -> None:
        """Answer requests of the services process. While it does not read the answers, no further request is read."""
        channel = self._runtime.core_requests
        for _ in range(REQUESTS_PER_LOOK):
            try:
                while self._waiting_answers:
                    channel.send(self._waiting_answers[0])
                    self._waiting_answers.popleft()
                request = channel.recv(REQUEST_BYTES_MAX)
            except OSError:  # no request, no room for answers, or no services process
                return
            if not request:
                return
            answers = answer_about_queues(request, self.sequencer)
            if answers is None:
                answers = self._answer_about_journals(request)
            self._waiting_answers.extend(answers)

    def _answer_about_journals(self, request: bytes) -> list[bytes]:
        if self._journal_files is None:
            return [msgpack.packb([None, "error", "there is no TransactionLog in the configuration"])]
        return self._journal_files.retention.answer(request, self._file_now_ns())

    def _drain(self) -> None:
        if not self._draining and self._lock is not None:
            self._lock.ending()
        self._draining = True

    def _replace_transport(self, index: int) -> None:
        """Forget a dead transport's sessions when all its records are processed, and report its ring as free."""
        ring = self._runtime.ingress[index]
        if not self.sequencer.ring_is_empty(index):
            return
        self.turns.replacing.discard(index)
        self.sequencer.attach_transport(index, ring)
        self._tell("transport drained", index)


def make_directory(disk: Disk, directory: Path) -> None:
    """Make a directory whose name survives a crash of the machine, as synced files in it do."""
    directory.mkdir(parents=True, exist_ok=True)
    for parent in directory.absolute().parents:
        # Directories further up may be unreadable, or on file systems that cannot sync them; then they existed before.
        with contextlib.suppress(OSError):
            disk.sync_directory(parent)


def write_vector(path: str, pairs: bytearray) -> bool:
    """Write the sequences of all publishers into a file for the replication process. False: there is no room."""
    try:
        with open(path, "wb", buffering=0) as file:
            return file.write(pairs) == len(pairs)
    except OSError:
        return False


def run_core(
    config: ServerConfig,
    runtime: Runtime,
    log: EventLog,
    supervisor: socket.socket,
    directories: Mapping[str, Identity] | None,
) -> int:
    """The body of the core process; returns its exit code. `directories`: see Core."""
    # The supervisor requests the stop: signals to the whole process group must not end the core early.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    disk = WatchedDisk(runtime.disk_activity)
    return Core(config, runtime, log, supervisor, disk=disk, directories=directories).run()
