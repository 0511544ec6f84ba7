"""Description of the machine, and of the measured version of this project."""

import os
import platform
import subprocess
from pathlib import Path

import psutil

from amps.version import VERSION


def description(directory: Path) -> dict[str, object]:
    """Processor, memory, kernel, file system of the data directory, Python and load at the start."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "kernel": platform.release(),
        "file_system": file_system(directory),
        "python": platform.python_version(),
        "load_average_before": round(os.getloadavg()[0], 2),
    }


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def file_system(directory: Path) -> str:
    found = subprocess.run(["stat", "-f", "-c", "%T", str(directory)], capture_output=True, text=True)
    return found.stdout.strip() or "unknown"


def own_version() -> str:
    """Version of this project, with the commit."""
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True)
    return f"amps {VERSION} {commit.stdout.strip()}".strip()
