"""Errors of writing to a server, with texts for the operator of the job."""


class WriteOptionError(ValueError):
    """Invalid options or columns; raised on the driver, before anything is published."""


class WriteError(RuntimeError):
    """A partition could not be written, or cannot be written exactly once; the task fails."""
