"""The client against a server, where a scripted peer would prove nothing."""

import pytest

from amps.client import EPOCH, Client, UnknownException
from tests.support.server import StartServer


@pytest.mark.parametrize("call", ["pause", "resume"])
def test_the_server_says_that_it_cannot_pause_subscriptions_yet(start_server: StartServer, call: str) -> None:
    """protocol.md D16: no topic is needed, so none is missed."""
    server = start_server(log_topics=[".*"])
    with Client("pausing", f"tcp://127.0.0.1:{server.port()}/amps/json") as client:
        client.bookmark_subscribe("t", EPOCH, handler=print, sub_id="S")
        with pytest.raises(UnknownException, match="not supported yet: pausing subscriptions"):
            getattr(client, call)("S")
        client.flush()
