"""What goes wrong while writing to a server, in words for whoever runs the job."""


class WriteOptionError(ValueError):
    """Options or columns that cannot be written; found on the driver, before anything is published."""


class WriteError(RuntimeError):
    """A partition could not be written, or cannot be written exactly once; the task fails."""
