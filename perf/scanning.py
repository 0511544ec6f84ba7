"""Finding messages in the bytes that a consumer has received, at little cost per message.

A consumer's time is the load's, not the server's, and both share the processors. Consecutive messages mostly have the
same length, and their handles have the same offset. A regular expression finds the first message of such a *run*. The
handles of the others are cut out at once, at the same offset. A run ends where a byte beside a handle, or the end of a
message, is not at the offset of the first message; there the expression searches again. If runs are short, the
expression finds every message.
"""

import functools
import re
import struct

SHORT_RUNS = 8
"""After this number of messages without a run the expression finds the rest of the chunk."""


class MessageScanner:
    """Finds messages of one protocol: by the pattern of one, whose only group is the handle, and by their end."""

    def __init__(self, pattern: re.Pattern[bytes], message_end: bytes) -> None:
        """`message_end`: the bytes at the end of each message, and nowhere else; two bytes or more."""
        self._pattern = pattern
        self._message_end = message_end

    def scan(self, data: memoryview) -> tuple[list[bytes], int]:
        """The handles of all whole messages, and the offset of the end of the last one: 0 if there is none."""
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
                handles += run
                end += len(run) * (end - begin)
            else:
                alone += 1
        if rest := self._pattern.findall(data, end):
            handles += rest
            end += bytes(data[end:]).rindex(self._message_end) + len(self._message_end)
        return handles, end

    def _run(self, data: memoryview, at: int, length: int, handle: int, handle_end: int) -> tuple[bytes, ...]:
        """The handles of the messages from `at` on with the layout of the one before, which has this length."""
        count = (len(data) - at) // length
        if not count or not handle:
            return ()
        layout = (length, handle, handle_end, len(self._message_end))
        fields = cutter(count, *layout).unpack_from(data, at)
        expected = cutter(1, *layout).unpack_from(data, at - length)
        same = count
        for place in (0, 2, 3, 4):
            column = fields[place::5]
            if column.count(expected[place]) < count:
                same = min(same, next(row for row, found in enumerate(column) if found != expected[place]))
        return fields[1 : 5 * same : 5]


@functools.lru_cache(maxsize=10_000)
def cutter(count: int, length: int, handle: int, handle_end: int, end_bytes: int) -> struct.Struct:
    """Cuts out of each message of a run: the handle between the bytes beside it, and both ends of the message's end."""
    rest = length - handle_end - 1 - end_bytes
    return struct.Struct(f"{handle - 1}xs{handle_end - handle}ss{rest}xs{end_bytes - 2}xs" * count)
