"""The connection of a task: attempts to connect are repeated while the server is not available.

A server that is restarted refuses connections for a while, and one that loses a process drops them. A task does not
fail because of that: it repeats the attempt with growing pauses until `timeout_s` have passed. Permanent
errors (a malformed URI, a refused logon, a wrong message type) are raised at once.
"""

import random
import time

from amps.client import (
    AMPSException,
    AuthenticationException,
    Client,
    ConnectionRefusedException,
    DisconnectedException,
    Message,
    StreamException,
    TimedOutException,
)
from amps.spark.writing_errors import WriteError

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0

PASSING = (ConnectionRefusedException, DisconnectedException, StreamException, TimedOutException)
"""The temporary errors, after which another attempt may succeed."""


def log_on(client: Client, timeout_s: float) -> Message:
    """Connect and log on, with repeated attempts; return the logon's acknowledgement. Raises WriteError on failure."""
    deadline = time.monotonic() + timeout_s
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            client.disconnect(timeout=0)  # unsent messages are in the store
            client.connect()
            return client.logon()
        except PASSING as error:
            if time.monotonic() + pause_s > deadline:
                raise WriteError(
                    f"no connection to the server for {timeout_s:g} s (option timeout_s): {error}"
                ) from error
        except AuthenticationException as error:
            raise WriteError(f"the server refuses the logon: {error}") from error
        except AMPSException as error:
            raise WriteError(f"cannot log on to the server: {error}") from error
        # A random pause, so that two attempts of one task, which take the client name from each other, do not
        # reconnect in step.
        time.sleep(pause_s * random.uniform(0.5, 1.0))
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def check_recorded(client: Client, topic: str) -> None:
    """Raise WriteError if no transaction log records this topic: its messages could then be published twice."""
    try:
        client.bookmark_subscribe(topic, "0|1|", non_regex_topic=True).close()
    except PASSING:
        raise
    except AMPSException as error:
        raise WriteError(
            f"topic {topic!r} cannot be written exactly once: a bookmark subscription to it was refused"
            f" ({error.reason or error}). It must be recorded in the server's transaction log, and the user must be"
            " allowed to read it; option unrecorded=allow writes without that, and rows may then be lost or come twice"
        ) from error
