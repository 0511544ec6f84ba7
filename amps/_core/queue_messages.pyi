"""Types of reading messages of queues; see queue_messages.pyx."""

from amps._core.log_reader import LogDirectory
from amps._core.shared import ControlPage

class MessageReader:
    def __init__(self, directory: LogDirectory, control: ControlPage) -> None: ...
    def release(self) -> None: ...
