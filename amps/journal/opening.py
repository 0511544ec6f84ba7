"""Opening files of a log and of its server for reading, compressed with gzip or not; told by content, not by name."""

import gzip
import io
import zlib

GZIP_MAGIC = b"\x1f\x8b"
READ_ERRORS = (EOFError, gzip.BadGzipFile, zlib.error)
"""What reading a damaged compressed file raises."""

Stream = io.BufferedReader | gzip.GzipFile


def uncompressed(raw: Stream) -> Stream:
    """The stream itself, or what is compressed in it."""
    if raw.peek(2)[:2] == GZIP_MAGIC:
        return gzip.GzipFile(fileobj=raw)
    return raw
