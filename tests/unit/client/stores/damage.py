"""Ways for a process that uses a publish store to die, and what the next process must find."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from amps.client import FilePublishStore

START = b'{"c":"publish","t":"t","a":"persisted","s":'
SEGMENT_BYTES = 4096


def frame_of(sequence: int, body: bytes) -> bytes:
    header = START + b"%d}" % sequence
    return (len(header) + len(body)).to_bytes(4, "big") + header + body


def body_of(sequence: int) -> bytes:
    return b"%d:" % sequence + b"\0x"[sequence % 2 :] * (sequence * 37 % 200)


def frames_of(store: Any) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    store.replay(lambda frame, sequence: found.__setitem__(sequence, frame))
    return found


def opened(path: Path, **options: Any) -> FilePublishStore:
    store = FilePublishStore(path, **{"segment_bytes": SEGMENT_BYTES, "sync": "never", **options})
    store.open("me")
    return store


def die_at_step(step: int, modules: tuple[str, ...], work: Callable[[int], object]) -> tuple[bool, list[int]]:
    """Run `work(fd)` in a forked child that dies before the n-th line it executes of some modules.

    Returns whether it died there, and the numbers that it had told on the descriptor.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        left = step

        def trace(frame: FrameType, event: str, arg: object) -> Any:
            nonlocal left
            if not frame.f_code.co_filename.endswith(modules):
                return None
            if event == "line":
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace

        try:
            os.close(reader)
            sys.settrace(trace)
            work(writer)
            os._exit(0)
        except BaseException as error:
            os.write(2, f"{error!r}\n".encode())
            os._exit(1)
    os.close(writer)
    told = b""
    while data := os.read(reader, 65536):
        told += data
    os.close(reader)
    status = os.waitpid(child, 0)[1]
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status), [int(word) for word in told.split()]
