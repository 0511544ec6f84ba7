"""The chains of one SOW topic in the core: the key of each message, and their file (sow.md §3.1).

The sequencer asks for the key of each message (`key`). New links are appended to the file after the turn, and synced by
the housekeeping thread. What the file has not got after a failure is made again from the log, whose messages are asked
for again at a start.
"""

from pathlib import Path

from amps._core.sow.shaping import KeyMaker
from amps.journal.disk import Disk
from amps.server.core.chain_file import BadChainFile, ChainFile
from amps.server.core.chain_keys import NONE, ChainKeys, Link
from amps.server.core.older import RecoveryRefused


class TopicChains:
    """The chains of a topic, with their file if it has one."""

    def __init__(self, keys: KeyMaker, validation: bool, path: Path | None, disk: Disk, up_to: int | None) -> None:
        """`path` None: the chains are in memory only. `up_to`: the last transaction id of the log; None: the log does
        not record the topic. Raises RecoveryRefused, OSError.
        """
        self._keys = keys
        self._missing = keys.text_key(b"")
        self._file: ChainFile | None = None
        self._unwritten: list[Link] = []
        self._unsynced = False
        links: list[Link] = []
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._file = ChainFile(disk, path, keys.definition, up_to)
            except BadChainFile as problem:
                raise RecoveryRefused(str(problem)) from problem
            links = self._file.links
        self._chains = ChainKeys(validation, links)

    def key(self, payload: bytes, txid: int) -> int:
        """The key of a message; 0: it belongs to two chains, or cannot be read."""
        texts = self._keys.fields.texts(payload)
        if texts is None:
            return NONE
        primary, *secondaries = (self._keys.text_key(text) if text else NONE for text in texts)
        return self._chains.resolve(primary, secondaries, self._missing, txid)

    def write(self) -> None:
        """Append new links to the file, if there is one. Raises OSError; nothing is lost then."""
        self._unwritten += self._chains.take_new_links()
        if self._file is None:
            self._unwritten.clear()
        elif self._unwritten:
            self._file.append(self._unwritten, self._unwritten[-1].txid)
            self._unwritten.clear()
            self._unsynced = True

    @property
    def unsynced(self) -> bool:
        """Whether the file has links that are not durable."""
        return self._unsynced

    def sync(self) -> None:
        """Make the file durable. Raises OSError."""
        if self._file is not None and self._unsynced:
            self._unsynced = False
            self._file.sync()

    def close(self) -> None:
        """Write everything, and close the file. Raises OSError."""
        self.write()
        self.sync()
        if self._file is not None:
            self._file.close()
