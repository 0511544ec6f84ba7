"""A server on a host whose clock is set: the system's time of its processes jumps, the monotonic time does not."""

import mmap
from collections.abc import Mapping
from pathlib import Path

from tests.support.patched_servers import patched

_CODE = """
import mmap, time
with open({path!r}, "r+b") as _file:
    _offset_ns = memoryview(mmap.mmap(_file.fileno(), mmap.PAGESIZE)).cast("q")
_system_ns = time.time_ns
time.time_ns = lambda: _system_ns() + _offset_ns[0]
time.time = lambda: time.time_ns() / 1e9
"""


class SettableClock:
    """The clock of the servers started with `environment`. `directory`: an empty one."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "offset"
        path.write_bytes(bytes(mmap.PAGESIZE))
        self._file = path.open("r+b")
        self._offset_ns = memoryview(mmap.mmap(self._file.fileno(), mmap.PAGESIZE)).cast("q")
        self.environment: Mapping[str, str] = patched(directory, _CODE.format(path=str(path)))

    def set_forward(self, seconds: float) -> None:
        """Set the clock; back if the number is negative."""
        self._offset_ns[0] += int(seconds * 1e9)

    def close(self) -> None:
        """Release the file. Servers keep their time."""
        self._file.close()
