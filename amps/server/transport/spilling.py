"""Messages that are too large for the ring: passed to the core in a file of shared memory.

The ring carries the file's name. The core removes the file when it has read the message. Until the name is pushed, the
file belongs to the connection and is removed with it.
"""

import contextlib

from amps.server.records import KIND_SPILLED_PUBLISH, raw_control_record
from amps.server.shared.spill_files import write_spill
from amps.server.transport.context import WorkerContext
from amps.server.transport.session import Session


class Spilling:
    """Passes the large messages of one connection, one at a time."""

    def __init__(self, connection: Session, worker: WorkerContext) -> None:
        self._connection = connection
        self._worker = worker
        self._waiting: tuple[str, bytes] | None = None  # name of the file and the record that is to carry it

    def spill(self) -> bool:
        """Pass the current frame in a file. False: the ring is full and input is held, or writing failed."""
        connection, worker = self._connection, self._worker
        if self._waiting is None:
            token = worker.spill_token()
            try:
                write_spill(connection.ingress, worker.runtime.spill_path(token))
            except OSError as error:
                worker.log.log(
                    "01-0005",
                    place=connection.shown_name,
                    data=f"no room to pass a large message on: {error}",
                )
                connection.abort(None)
                return False
            record = raw_control_record(
                token.encode(), KIND_SPILLED_PUBLISH, connection.slot, connection.serial
            )
            self._waiting = token, record
        if not worker.core.ring.push(self._waiting[1]):
            connection.hold()
            worker.core.release_when_room(connection)
            return False
        self._waiting = None
        connection.ingress.finish_spill()
        connection.ingress.consume()
        return True

    def discard(self) -> None:
        """Remove a file that was not passed on: the connection ended, or the message is refused."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            with contextlib.suppress(OSError):
                self._worker.runtime.spill_path(waiting[0]).unlink()
