"""What goes wrong while a stream is read, in words for whoever runs the query."""


class StreamReadError(RuntimeError):
    """A stream cannot be read, or not without a gap; the query fails with this one sentence."""
