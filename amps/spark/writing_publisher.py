"""One attempt of a task: it publishes the rows of a partition, each exactly once.

1. Log on under the partition's publisher name. This ends the connection of an attempt that still runs elsewhere
   (transaction_log.md §6). The server answers with the last number it has of the publisher, which gives the number of
   rows of this run that it has (`writing_numbers`).
2. Skip those rows, and compare them with the log. The rows of a repeated task must be the same in the
   same order; if they are not, the task fails, so that it neither leaves gaps nor publishes rows twice. The log is read
   up to its durable end, so the skipped rows are known to be persisted.
3. Publish the rest. Frames are kept until they are acknowledged as persisted, and sent again after a reconnect.
4. End when everything is acknowledged.

A message that the server refuses would be a gap that a later attempt cannot detect from the last number alone. So the
task waits for the acknowledgement of the first message to each topic before it sends the next: the topic may be
reserved, or the user not entitled to it. Any refusal fails the task. The comparison detects the gap of a refusal in the
middle of a topic.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from amps.client import (
    AMPSException,
    Client,
    DisconnectedException,
    MemoryPublishStore,
    Message,
    MessageStream,
    StoreFullException,
    TimedOutException,
)
from amps.client.servers.rivals import Rivals
from amps.spark.writing_connection import PASSING, check_recorded, log_on
from amps.spark.writing_errors import WriteError
from amps.spark.writing_numbers import Numbering
from amps.spark.writing_options import WriteOptions
from amps.spark.writing_rows import MessageRow

LONGEST_HEARTBEAT_S = 10.0
REFUSAL_WAIT_S = 1.0


@dataclass(frozen=True, slots=True)
class Written:
    """The result of an attempt."""

    rows: int
    """The number of rows of the partition, all persisted now."""
    found: int
    """The number of them that an earlier attempt had published."""


class PartitionPublisher:
    """Publishes one partition; use `with`, then `publish_all` once."""

    def __init__(
        self, options: WriteOptions, numbering: Numbering, before_publish: Callable[[], None] | None = None
    ) -> None:
        """before_publish: called before each row that is published, not for skipped rows; may wait."""
        self._before_publish = before_publish
        self._options = options
        self._numbering = numbering
        self._store = MemoryPublishStore(max_bytes=options.unacknowledged_bytes, on_full="raise")
        self._client = Client(
            numbering.publisher,
            options.uri,
            publish_store=self._store,
            timeout=options.timeout_s,
            heartbeat=min(LONGEST_HEARTBEAT_S, options.timeout_s),
            logon_options="ack_conflation=100ms",
        )
        self._client.set_failed_write_handler(self._on_refusal)
        self._refusal: str | None = None
        self._rows = 0
        self._reopened_at = 0  # the server's last number at the last reconnect
        # The driver has already checked a topic that was given as an option.
        self._recorded = {options.topic} if options.topic is not None else set()
        self._accepted: set[str] = set()
        self._stalled_since: float | None = None
        self._rivals = Rivals()
        self._persisted_when_stalled = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._store.close()  # the next attempt repeats messages not known to be persisted
        self._client.close(timeout=0)

    def publish_all(self, rows: Iterator[MessageRow]) -> Written:
        """Publish the rows that the server lacks, and wait until all are persisted. Raises WriteError on failure."""
        ack = log_on(self._client, self._options.timeout_s)
        last_sequence = ack.sequence or 0
        found = self._numbering.rows_present(last_sequence)
        if last_sequence < self._numbering.floor:
            self._store.discard_up_to(self._numbering.floor)  # the first row's number follows
        if found:
            self._pass_over(rows, found, _publisher_id(ack))
        self._rows = found
        last = None
        for row in rows:
            self._publish(row)
            last = row
        self._drain()
        if last is not None and self._reopened_at >= self._numbering.number(self._rows - 1):
            self._confirm(last, _publisher_id(ack))
        return Written(self._rows, found)

    # Rows that the server already has

    def _pass_over(self, rows: Iterator[MessageRow], found: int, publisher_id: str) -> None:
        verify = self._options.verify
        first = {"all": 0, "last": found - 1, "none": found}[verify]
        for row in range(first):
            if next(rows, None) is None:
                raise self._differs(f"this attempt has {row} rows, the server has {found}")
        if first == found:
            return
        try:
            with self._replay(publisher_id, first, found) as stream:
                for row in range(first, found):
                    ours = next(rows, None)
                    if ours is None:
                        raise self._differs(f"this attempt has {row} rows, the server has {found}")
                    self._compare(row, ours, self._next_logged(stream, publisher_id), publisher_id)
        except AMPSException as error:
            raise WriteError(
                f"publisher {self._numbering.publisher!r} has {found} rows of this run at the server, which could not"
                f" be read again to compare them: {error}. The option verify limits the comparison"
            ) from error

    def _confirm(self, last: MessageRow, publisher_id: str) -> None:
        """Wait until the last row can be read from the log: it is then durable.

        If the server has the row after a reconnect, the row is in the log, but perhaps not durable.
        """
        if self._options.verify == "none":
            return
        row = self._rows - 1
        try:
            with self._replay(publisher_id, row, self._rows) as stream:
                self._compare(row, last, self._next_logged(stream, publisher_id), publisher_id)
        except AMPSException as error:
            raise WriteError(
                f"it could not be determined whether the last row is persisted: {error}"
            ) from error

    def _replay(self, publisher_id: str, first: int, found: int) -> MessageStream:
        """Return the log from the first row to compare to the last existing one, with messages of other publishers."""
        begin, end = self._numbering.number(first), self._numbering.number(found - 1)
        topic = self._options.topic
        return self._client.bookmark_subscribe(
            topic if topic is not None else ".*",
            f"[{publisher_id}|{begin}|:{publisher_id}|{end}|]",
            non_regex_topic=topic is not None,
            bookmark_not_found="fail",
            fully_durable=True,
        )

    def _next_logged(self, stream: MessageStream, publisher_id: str) -> Message | None:
        """Return this publisher's next message; None at the end."""
        begins_with = f"{publisher_id}|"
        while True:
            try:
                message = stream.get(self._options.timeout_s)
            except EOFError:
                return None
            if message is None:
                raise TimedOutException(f"no message arrived from the log for {self._options.timeout_s:g} s")
            if (message.bookmark or "").startswith(begins_with):
                return message

    def _compare(self, row: int, ours: MessageRow, logged: Message | None, publisher_id: str) -> None:
        number = self._numbering.number(row)
        if logged is None or (logged.bookmark or "").rstrip("|") != f"{publisher_id}|{number}":
            raise self._differs(
                f"row {row} is not in the log where it should be: it was refused, its journal was removed, or an"
                " earlier attempt published it to another topic"
            )
        if logged.topic != ours.topic or logged.data != ours.body:
            raise self._differs(f"row {row} differs from the server's row in its place")

    def _differs(self, what: str) -> WriteError:
        return WriteError(
            f"run {self._numbering.run} of publisher {self._numbering.publisher!r} has been written before, with other"
            f" rows: {what}. A repeated task must have the same rows in the same order, and another write a run_id,"
            " run_number or client_name of its own"
        )

    # Publishing

    def _publish(self, row: MessageRow) -> None:
        number = self._numbering.number(self._rows)
        publish = self._client.delta_publish if row.delta else self._client.publish
        if self._before_publish is not None:
            self._before_publish()
        while True:
            try:
                if row.topic not in self._recorded:
                    self._check_recorded(row.topic)
                given = publish(
                    row.topic,
                    row.body,
                    expiration=row.expiration,
                    correlation_id=row.correlation_id,
                    sow_key=row.sow_key,
                )
                break
            except StoreFullException:
                self._drain()
            except PASSING as error:
                self._reopen(error)
            except (ValueError, TypeError) as error:
                raise WriteError(f"row {self._rows} of the partition cannot be published: {error}") from error
        if given != number:
            raise WriteError(f"row {self._rows} was given the number {given} instead of {number}")
        self._rows += 1
        if row.topic not in self._accepted:
            self._drain()
            self._accepted.add(row.topic)
        if self._refusal is not None:
            raise self._refused()

    def _check_recorded(self, topic: str) -> None:
        if not self._options.allow_unrecorded:
            check_recorded(self._client, topic)
        self._recorded.add(topic)

    def _drain(self) -> None:
        """Wait until everything published is persisted or refused."""
        while True:
            before = self._store.last_persisted()
            try:
                self._client.publish_flush(timeout=self._options.timeout_s)
                break
            except DisconnectedException as error:
                self._reopen(error)
            except TimedOutException as error:
                if self._store.last_persisted() == before:
                    count = self._store.unpersisted_count()
                    raise WriteError(
                        f"no acknowledgement for {self._options.timeout_s:g} s (option timeout_s) while {count} rows"
                        " wait for one"
                    ) from error
        # The count is set before refused messages leave the store, the handler's text only afterwards.
        if self._client.stats.failed_writes:
            deadline = time.monotonic() + REFUSAL_WAIT_S
            while self._refusal is None and time.monotonic() < deadline:
                time.sleep(0.001)
            raise self._refused()

    def _reopen(self, error: AMPSException) -> None:
        """Reconnect after a loss of the connection. The client then sends unacknowledged messages again."""
        persisted = self._store.last_persisted()
        now = time.monotonic()
        if self._stalled_since is None or persisted > self._persisted_when_stalled:
            self._stalled_since, self._persisted_when_stalled = now, persisted
        elif now - self._stalled_since > self._options.timeout_s:
            raise WriteError(
                f"the connection was lost again and again without any progress: {error}"
            ) from error
        time.sleep(self._rivals.wait_s(error))
        last_sequence = log_on(self._client, self._options.timeout_s).sequence or 0
        if self._numbering.rows_present(last_sequence) > self._rows:
            raise WriteError("another attempt of this task has published more rows: this one gives up")
        self._reopened_at = last_sequence
        if last_sequence < persisted and persisted > self._numbering.floor:
            raise WriteError(
                f"the server has messages of publisher {self._numbering.publisher!r} up to number {last_sequence},"
                f" and had acknowledged {persisted}: it has lost some, or another server has taken its place"
            )

    def _on_refusal(self, message: Message, reason: str) -> None:
        """On the receive thread: store the first refusal."""
        if self._refusal is None:
            self._refusal = f"a message to topic {message.topic!r}: {reason or 'no reason given'}"

    def _refused(self) -> WriteError:
        return WriteError(f"the server refused {self._refusal or 'a message'}")


def _publisher_id(ack: Message) -> str:
    """Return the server's id of the publisher: the bookmark of a logon's acknowledgement is `<id>|<last number>|`."""
    publisher_id, bar, _ = (ack.bookmark or "").partition("|")
    if not bar or not publisher_id.isdigit():
        raise WriteError(f"the server's logon acknowledgement has no bookmark: {ack.bookmark!r}")
    return publisher_id
