"""Opening files of a log and of its server for reading, compressed or not, as detected by content, not by name.

Event logs are compressed with gzip. Compressed journals are zstd, whatever the ending of their name; gzip is read too.
"""

import gzip
import io
import zlib
from typing import IO, cast

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
WINDOW_BYTES_MAX = 1 << 27

Stream = io.BufferedReader | gzip.GzipFile


class NotDecompressible(Exception):
    """The bytes at the place of a zstd frame are not one."""


READ_ERRORS = (EOFError, gzip.BadGzipFile, zlib.error, NotDecompressible)
"""The exceptions that reading a damaged compressed file raises."""


class _ZstdContent(io.RawIOBase):
    """The content of zstd frames, one after the other."""

    def __init__(self, raw: Stream) -> None:
        import zstandard

        self._failure = zstandard.ZstdError
        decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES_MAX)
        self._reader = decompressor.stream_reader(
            cast(IO[bytes], raw), read_across_frames=True, closefd=False
        )

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        try:
            return self._reader.readinto(buffer)
        except self._failure as error:
            raise NotDecompressible(str(error)) from error


def uncompressed(raw: Stream) -> Stream:
    """The stream itself, or a stream of its decompressed content."""
    magic = raw.peek(len(ZSTD_MAGIC))[: len(ZSTD_MAGIC)]
    if magic.startswith(GZIP_MAGIC):
        return gzip.GzipFile(fileobj=raw)
    if magic == ZSTD_MAGIC:
        return io.BufferedReader(_ZstdContent(raw), 1 << 20)
    return raw
