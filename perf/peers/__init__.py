"""The servers that are measured, by name."""

from perf.peers.amps import AmpsPeer
from perf.peers.base import Peer
from perf.peers.nats import NatsCore, NatsJetStream, NatsJetStreamSynced
from perf.peers.redis import RedisAlways, RedisEverySecond, RedisLargeReads, RedisReads

PEERS: dict[str, type[Peer]] = {
    peer.name: peer
    for peer in (
        AmpsPeer,
        NatsJetStream,
        NatsJetStreamSynced,
        NatsCore,
        RedisEverySecond,
        RedisAlways,
        RedisReads,
        RedisLargeReads,
    )
}

FAMILIES = ("amps", "nats", "redis")


def chosen(names: list[str], scenario: str) -> list[type[Peer]]:
    """The peers of a scenario for names given by the user: full names or families such as `nats`."""
    found = [
        peer
        for name, peer in PEERS.items()
        if scenario in peer.scenarios
        and any(name == wanted or name.split("-")[0] == wanted for wanted in names)
    ]
    unknown = [name for name in names if name not in FAMILIES and name not in PEERS]
    if unknown:
        raise ValueError(
            f"no peer is called {', '.join(unknown)}; there are {', '.join((*FAMILIES, *PEERS))}"
        )
    return found


__all__ = ["FAMILIES", "PEERS", "Peer", "chosen"]
