"""Two hosts with a cable between them: network namespaces that end with the test, also if it is killed.

Servers run in them by `command_prefix`; clients reach them over Unix sockets, which namespaces do not separate. The
host's own network is never touched. Tests are skipped without permission to make namespaces.
"""

import os
import shutil
import subprocess
from typing import Self

import pytest

_TOOLS = ("ip", "nsenter", "unshare")
_NOBODY = "02:00:00:00:00:99"
"""A hardware address that no side has."""
_CABLE = "cable"


class Cable:
    """Sides 0 and 1. Use as a context manager."""

    addresses = ("10.77.0.1", "10.77.0.2")

    def __init__(self) -> None:
        if os.geteuid() != 0:
            pytest.skip("network namespaces need root")
        missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
        if missing:
            pytest.skip(f"needs the programs {missing}")
        self._holders: list[subprocess.Popen[bytes]] = []
        try:
            for _ in self.addresses:
                self._holders.append(self._hold())
            there = str(self._holders[1].pid)
            self._try(0, "link", "add", _CABLE, "type", "veth", "peer", "name", _CABLE, "netns", there)
            for side, address in enumerate(self.addresses):
                self._run(side, "address", "add", f"{address}/24", "dev", _CABLE)
                self._run(side, "link", "set", _CABLE, "up")
                self._run(side, "link", "set", "lo", "up")
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _hold() -> subprocess.Popen[bytes]:
        """A process with a namespace of its own, which ends when its input does."""
        holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert holder.stdout is not None
        assert holder.stderr is not None
        if holder.stdout.readline() != b"\n":
            holder.wait(10)
            pytest.skip(f"network namespaces are not permitted here: {holder.stderr.read().decode().strip()}")
        return holder

    def prefix(self, side: int) -> tuple[str, ...]:
        """Arguments before a command that is to run on a side."""
        return "nsenter", f"--net=/proc/{self._holders[side].pid}/ns/net", "--"

    def unplug(self) -> None:
        """Nothing passes, in no direction, and both sides notice that."""
        self._run(0, "link", "set", _CABLE, "down")

    def plug(self) -> None:
        """Undo `unplug`."""
        self._run(0, "link", "set", _CABLE, "up")

    def mute(self, side: int) -> None:
        """What this side sends reaches nobody, and nobody notices. It still gets what the other one sends."""
        other = self.addresses[1 - side]
        self._run(side, "neighbour", "replace", other, "lladdr", _NOBODY, "dev", _CABLE, "nud", "permanent")

    def unmute(self, side: int) -> None:
        """Undo `mute`."""
        self._run(side, "neighbour", "delete", self.addresses[1 - side], "dev", _CABLE)

    def close(self) -> None:
        """End the namespaces. Servers that run in them keep theirs until they end."""
        for holder in self._holders:
            holder.communicate(timeout=10)
        self._holders.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _command(self, side: int, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        command = [*self.prefix(side), "ip", *arguments]
        return subprocess.run(command, check=False, capture_output=True, timeout=10)

    def _run(self, side: int, *arguments: str) -> None:
        done = self._command(side, *arguments)
        assert done.returncode == 0, f"ip {arguments}: {done.stderr.decode()}"

    def _try(self, side: int, *arguments: str) -> None:
        done = self._command(side, *arguments)
        if done.returncode != 0:
            pytest.skip(f"a cable between namespaces cannot be made here: {done.stderr.decode().strip()}")
