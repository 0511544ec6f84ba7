"""Profiles of a client's process with py-spy, which samples all threads from outside."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from perf.clients.processors import of_servers
from perf.pump import PeerError

LINE = re.compile(r":\d+\)$")
"""The number of a line, at the end of a frame."""
SAMPLES_PER_S = 250
SHOWN = 25
STOP_S = 60.0


def executable() -> str:
    beside_python = Path(sys.executable).with_name("py-spy")
    found = str(beside_python) if beside_python.exists() else shutil.which("py-spy")
    if not found:
        raise PeerError("py-spy is not installed: pip install py-spy")
    return found


@contextlib.contextmanager
def profiled(folded: Path | None) -> Iterator[None]:
    """Sample this process; write its stacks to `folded`, and the functions that use most time beside it (`.txt`)."""
    if folded is None:
        yield
        return
    folded.parent.mkdir(parents=True, exist_ok=True)
    arguments = ["record", "--pid", str(os.getpid()), "--rate", str(SAMPLES_PER_S), "--nonblocking"]
    command = [executable(), *arguments, "--format", "raw", "--output", str(folded), "--duration", "unlimited"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as sampler:
        os.sched_setaffinity(sampler.pid, of_servers())
        assert sampler.stdout is not None
        first = sampler.stdout.readline()
        while first and "Sampling" not in first:
            first = sampler.stdout.readline()
        if not first:
            raise PeerError("py-spy ended at once; it may need the right to trace processes")
        try:
            yield
        finally:
            sampler.send_signal(signal.SIGINT)
            sampler.communicate(timeout=STOP_S)
    folded.with_suffix(".txt").write_text(summary(folded.read_text()))


def summary(folded: str) -> str:
    """The functions with the most samples, of their own and with those that they call."""
    own: Counter[str] = Counter()
    inclusive: Counter[str] = Counter()
    total = 0
    for line in folded.splitlines():
        stack, _, samples = line.rpartition(" ")
        frames = [LINE.sub(")", frame) for frame in stack.split(";")]
        total += int(samples)
        own[frames[-1]] += int(samples)
        for frame in set(frames):
            inclusive[frame] += int(samples)
    lines = [f"{total} samples", "", "own time"]
    lines += [f"{count / total:7.1%}  {frame}" for frame, count in own.most_common(SHOWN)]
    lines += ["", "with the functions called"]
    lines += [f"{count / total:7.1%}  {frame}" for frame, count in inclusive.most_common(SHOWN)]
    return "\n".join(lines) + "\n"
