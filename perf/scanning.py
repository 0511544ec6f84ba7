"""Finding messages in what a consumer has received, at little cost per message.

A consumer's time is the load's, not the server's, and both share the processors. Messages that follow each other mostly
have the same length, and their handles are at the same place: a regular expression finds the first of such a *run*, and
its place is that of all others, which are cut out at once. A run ends where a byte beside a handle, or the mark at a
message's end, is not where it was in the first; there the expression is asked again. Where runs are short it finds
everything.
"""

import functools
import re
import struct

SHORT_RUNS = 8
"""So many messages without a run behind them, and the expression finds what is left of a chunk."""


class MessageScanner:
    """Messages of one protocol: the pattern of one, whose only group is the handle, and what all of them end with."""

    def __init__(self, pattern: re.Pattern[bytes], message_end: bytes) -> None:
        """`message_end`: what a message ends with, and nothing else does."""
        self._pattern = pattern
        self._message_end = message_end

    def scan(self, data: memoryview) -> tuple[list[bytes], int]:
        """The handles of all whole messages, and where the last of them ends: 0 if there is none."""
        handles: list[bytes] = []
        end = 0
        alone = 0
        while alone < SHORT_RUNS:
            message = self._pattern.search(data, end)
            if message is None:
                return handles, end
            handles.append(message[1])
            begin, end = end, message.end()
            handle, handle_end = message.start(1) - begin, message.end(1) - begin
            run = self._run(data, end, end - begin, handle, handle_end)
            if run:
                cut = handles_of(end - begin, handle, handle_end)
                handles += [found for (found,) in cut.iter_unpack(run)]
                end += len(run)
            else:
                alone += 1
        if rest := self._pattern.findall(data, end):
            handles += rest
            end += bytes(data[end:]).rindex(self._message_end) + len(self._message_end)
        return handles, end

    def _run(self, data: memoryview, at: int, length: int, handle: int, handle_end: int) -> memoryview:
        """The messages from `at` on that are laid out as the one before it, which has this length."""
        count = (len(data) - at) // length
        run = data[at : at + count * length]
        for place in (handle - 1, handle_end, length - len(self._message_end), length - 1):
            expected = data[at - length + place]
            column = run[place::length].tobytes()
            if column.count(expected) < len(column):
                same = len(column) - len(column.lstrip(bytes((expected,))))
                run = run[: same * length]
        return run


@functools.cache
def handles_of(length: int, handle: int, handle_end: int) -> struct.Struct:
    """Cuts the handle out of each message of a run."""
    return struct.Struct(f"{handle}x{handle_end - handle}s{length - handle_end}x")
