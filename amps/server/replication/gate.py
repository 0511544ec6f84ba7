"""What the sink of a flow decides about its source: who may log on, and which topics are taken (replication.md §15).

The modules are those of any transport. Log on, log on for replication, and read and write of a topic are different
permissions; a record that comes by replication needs that of its topic for replication.
"""

from amps.config import ServerConfig, TransportConfig
from amps.config.model_replication import DestinationTransport
from amps.server.security import (
    SwitchableAuthenticator,
    SwitchableEntitlement,
    make_authenticator,
    make_entitlement,
)

REPLICATION = "replication"
"""The permission for a topic that replicated records need."""


class TransportGate:
    """The decisions about one flow's source. Answers about topics are not kept here; the caller keeps them."""

    def __init__(self, config: ServerConfig, transport: TransportConfig | DestinationTransport) -> None:
        """`transport`: the one that accepted the connection; for a flow that comes back over a connection that this
        instance opened, that of its destination.
        """
        self._authenticator = SwitchableAuthenticator(make_authenticator(config, transport))
        self._entitlement = SwitchableEntitlement(make_entitlement(config, transport))

    def switch(self, what: str, enabled: bool) -> None:
        """Switch authentication or entitlement on or off (operations.md §8.3)."""
        if what == "authentication":
            self._authenticator.enabled = enabled
        else:
            self._entitlement.enabled = enabled

    @property
    def allows_all(self) -> bool:
        """Whether no topic is ever refused."""
        return self._entitlement.allows_all

    def authenticate(self, user: str, password: str) -> tuple[bool, str, str]:
        """Return whether the credentials are accepted, the authenticated name, and the reason if they are not."""
        decision = self._authenticator.authenticate(user, password)
        return (
            decision.accepted,
            decision.identity,
            "" if decision.accepted else decision.reason or "auth failure",
        )

    def may_replicate(self, user: str) -> bool:
        """Whether a user may log on as a source of replication."""
        return self._entitlement.may_replicate(user)

    def allows_topic(self, user: str, topic: str) -> bool:
        """Whether records of a topic are taken from a user."""
        return self.allows_all or self._entitlement.allows(user, REPLICATION, topic)


class Gates:
    """The gates of all transports over which flows can come, so that all can be switched."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._by_transport: dict[int, TransportGate] = {}
        self._disabled: set[str] = set()

    def of(self, transport: TransportConfig | DestinationTransport) -> TransportGate:
        """The gate of a transport of the configuration."""
        gate = self._by_transport.get(id(transport))
        if gate is None:
            gate = self._by_transport[id(transport)] = TransportGate(self._config, transport)
            for what in self._disabled:
                gate.switch(what, False)
        return gate

    def switch(self, what: str, enabled: bool) -> None:
        """Switch authentication or entitlement on or off, for the whole instance."""
        self._disabled = self._disabled - {what} if enabled else self._disabled | {what}
        for gate in self._by_transport.values():
            gate.switch(what, enabled)
