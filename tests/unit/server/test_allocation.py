"""Memory of output chunks: kept by the process, so that a busy turn costs no page faults."""

import ctypes
import os
import subprocess
import sys

import pytest

from amps.server.shared.allocation import KEEP_BYTES, LARGE_BYTES
from tests.support.server import package_path

CHUNK_BYTES = 128 << 10
TURNS = 200

PROGRAM = f"""
import resource, sys
from amps.server.shared.allocation import keep_chunk_memory
if sys.argv[1] == "kept":
    keep_chunk_memory()
def turn():
    chunks = [bytearray({CHUNK_BYTES}) for _ in range(4)]
    for chunk in chunks:
        chunk[::4096] = b"x" * len(chunk[::4096])
turn()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({TURNS}):
    turn()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    run = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, how],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": package_path()},
    )
    return int(run.stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="this C library has no such settings")
def test_chunks_are_used_again_without_page_faults() -> None:
    pages_a_turn = 4 * CHUNK_BYTES // 4096
    assert CHUNK_BYTES < LARGE_BYTES
    assert 4 * CHUNK_BYTES < KEEP_BYTES
    assert faults("kept") < pages_a_turn * TURNS // 10
    assert faults("as it is") > pages_a_turn * TURNS // 10
