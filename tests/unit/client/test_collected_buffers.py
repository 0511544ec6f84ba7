"""Extension types that hold a buffer, when the garbage collector ends them together with what they hold."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import amps._core

CYCLE = """
import array, gc, mmap
from amps.client.protocol.framing import FrameTooLarge
from amps.client.protocol.traffic import FrameReader, ReceivedMessage, SegmentWriter

def frame_reader(memory):
    reader = FrameReader(100, ReceivedMessage, list)
    memory[:4] = b"\\x7f\\xff\\xff\\xff"
    reader.feed(memory)
    try:
        reader.next({}, [])
    except FrameTooLarge:
        return reader

def segment_writer(memory):
    writer = SegmentWriter()
    writer.open(memory[:24], 1, 0, 0, 0)
    writer.begin(memory[24:], array.array("Q"), 0)
    return writer

for _ in range(20):
    for make in (frame_reader, segment_writer):
        for memory in (memoryview(bytearray(4096)), memoryview(mmap.mmap(-1, 4096))):
            cycle = [make(memory), memory]
            cycle.append(cycle)
            del cycle, memory
        gc.collect()
"""


def test_a_collected_holder_of_a_buffer_releases_it() -> None:
    """Otherwise a memoryview dies with an export, and the interpreter soon after."""
    done = subprocess.run([sys.executable, "-P", "-c", CYCLE], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


HELD = re.compile(r"    cdef (readonly |public )?(const )?(Py_buffer |[\w ]+\[[:, 1]*:[:, 1]*\] )")
"""An attribute that Cython lets the collector clear."""


@pytest.mark.parametrize(
    "source",
    sorted(path for path in Path(amps._core.__path__[0]).rglob("*.p*") if path.suffix in (".pyx", ".pxi", ".pxd")),
    ids=lambda path: path.name,
)
def test_no_extension_type_has_a_buffer_that_the_collector_clears(source: Path) -> None:
    """`HeldBuffer` is for that; the collector does not see into it."""
    if source.name == "results.pxd":
        pytest.xfail("StateScan.keys must become a HeldBuffer")
    kind = None
    for line in source.read_text().splitlines():
        if line[:1].strip():
            kind = line
        if kind is not None and re.match(r"(cdef|cpdef) class ", kind):
            assert not HELD.match(line), line
