"""Waking the transports that sleep, after a change of the control page that they wait for.

The core and its flusher wake transports themselves. This is for the replication process, whose watermarks decide
together with theirs when a message counts as persisted (docs/replication.md, "Watermarks of a destination").

Invariant: The caller has published its change before, by `ControlPage.set_destination`. A transport sets its sleep
flag, reads the version of the destinations once more, and only then sleeps. So it sees the change, or gets a wake-up.
"""

from amps.server.runtime import Runtime


def wake_transports(runtime: Runtime) -> None:
    """Wake each transport worker that sleeps."""
    for index in range(runtime.workers):
        if runtime.control.transport_sleeping(index):
            runtime.transport_wake_ups[index].send()
