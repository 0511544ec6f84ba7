"""A task's connection: made again for as long as the server may be away.

A server that is restarted refuses connections for a while, and one that loses a process drops them. Neither is a
reason to fail a task, so connecting is tried again with growing pauses until `timeout_s` have passed. What will not
change by waiting (a malformed URI, a refused logon, a wrong message type) fails at once.
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
"""What may be over when it is tried again."""


def log_on(client: Client, timeout_s: float) -> Message:
    """Connect and log on, if need be again and again; the logon's acknowledgement. WriteError if it cannot be done."""
    deadline = time.monotonic() + timeout_s
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            client.disconnect(timeout=0)  # what was not sent is in the store
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
        # At random, so that two attempts of one task, which take the client name from one another, do not do so
        # in step.
        time.sleep(pause_s * random.uniform(0.5, 1.0))
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def check_recorded(client: Client, topic: str) -> None:
    """WriteError if no transaction log records this topic: nothing could keep its messages from coming twice."""
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
