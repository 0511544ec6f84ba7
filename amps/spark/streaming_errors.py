"""Errors of reading a stream, with texts for the operator of the query."""


class StreamReadError(RuntimeError):
    """A stream cannot be read, or not without a gap; the query fails with this text, one sentence."""
