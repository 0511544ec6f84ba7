"""The end of the replication process."""

import os
import socket
from typing import NoReturn

import pytest

from amps.config import ServerConfig
from amps.server.eventlog import EventLog
from amps.server.replication.process import ReplicationProcess
from amps.server.runtime import Runtime


def test_the_core_does_not_wait_for_it_when_the_supervisor_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """No supervisor tells the core that this process has ended: it does so itself."""

    def end(code: int) -> NoReturn:
        raise SystemExit(code)

    monkeypatch.setattr(os, "_exit", end)
    runtime = Runtime(1, replication=True)
    supervisor, here = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with here:
        supervisor.close()
        index = runtime.replication_index
        assert index is not None
        runtime.control.set_transport_alive(index, True)
        process = ReplicationProcess(
            ServerConfig(name="A", group="A"), runtime, EventLog(None, 0, 0), here, []
        )
        with pytest.raises(SystemExit, match="0"):
            process._listen()
    assert not runtime.control.transport_alive(index)
