"""What the two sides of a link tell each other about themselves, and the refusals that follow (replication.md §24.2).

`Identity` is an instance: name, group, the uuid of its directory, the epoch of its log, and a number of this run of its
replication process. `Flow` is what a source says about one flow: HELLO has both, HELLO_ACK the acceptor's identity,
OPEN a flow alone.

The functions here only compare. They know neither links nor configuration files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from amps.config.model_replication import DestinationConfig
from amps.server.replication.frames import Content, ProtocolError, available

PROTOCOL_VERSION = 1
NAME_CHARS_MAX = 1024

# Codes of BYE (replication.md §24.2, docs/replication.md).
WRONG_PEER = "WRONG_PEER"
SELF = "SELF"
DUP_NAME = "DUP_NAME"
DUPLICATE_LINK = "DUPLICATE_LINK"
VERSION = "VERSION"
AUTH_REFUSED = "AUTH"
ENTITLEMENT_REFUSED = "ENTITLEMENT"
VALIDATION = "VALIDATION"
PROTOCOL = "PROTOCOL"
TIMEOUT = "TIMEOUT"
STOPPING = "STOPPING"
STORAGE = "STORAGE"
RECONNECT = "RECONNECT"
LOST = "LOST"
NO_ROOM = "the log accepts no records now"
"""The reason of STORAGE while the disk is full."""


class Refused(Exception):
    """A flow or a link ends for a reason with a code, which the other side learns by BYE.

    `by_peer`: the other side has refused. `use_link`: the two instances have another link, which the flow is to use.
    `instance_uuid`: with `use_link`, the instance that refuses.
    """

    def __init__(
        self, code: str, reason: str, *, by_peer: bool = False, use_link: bool = False, instance_uuid: str = ""
    ) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason
        self.by_peer = by_peer
        self.use_link = use_link
        self.instance_uuid = instance_uuid


@dataclass(frozen=True, slots=True)
class Identity:
    """An instance. `run` differs for each start of its replication process; `admin_address` may be empty."""

    name: str
    group: str
    uuid: str
    epoch: str
    run: str
    version: str = ""
    admin_address: str = ""

    def to_json(self) -> dict[str, Any]:
        """The keys of HELLO and HELLO_ACK."""
        return {
            "name": self.name,
            "group": self.group,
            "instance_uuid": self.uuid,
            "journal_epoch": self.epoch,
            "run": self.run,
            "version": self.version,
            "admin_addr": self.admin_address,
        }

    @classmethod
    def from_content(cls, content: Content) -> "Identity":
        """Read the keys. Raises ProtocolError."""
        made = cls(
            content.text("name", chars_max=NAME_CHARS_MAX),
            content.text("group", chars_max=NAME_CHARS_MAX),
            content.text("instance_uuid", chars_max=64),
            content.text("journal_epoch", chars_max=64),
            content.text("run", chars_max=64),
            content.text("version", "", 256),
            content.text("admin_addr", "", 1024),
        )
        for text in (made.name, made.group, made.uuid, made.epoch):
            # These are parts of names in the log, whose separators are white space.
            if not text or any(ord(each) < 32 for each in text):
                raise ProtocolError("a name, group, uuid or epoch is empty or has control characters")
        if " " in made.uuid or " " in made.epoch:
            raise ProtocolError("a uuid or epoch has a space")
        return made


@dataclass(frozen=True, slots=True)
class Flow:
    """What a source tells about a flow. `label` is that of its destination; `ack_interval_ms` 0: at once.

    `expected_name`, `expected_group`: the peer must have that name or group (decision 25.1), or, if only the
    name is given, either. `compression`: algorithms that the source offers, in its order.
    """

    label: str
    client_name: str
    sync: bool
    ack_interval_ms: int
    expected_name: str | None = None
    expected_group: str | None = None
    compression: tuple[str, ...] = ()
    pass_through: bool = False

    def to_json(self) -> dict[str, Any]:
        """The keys of HELLO and OPEN."""
        return {
            "destination": self.label,
            "client_name": self.client_name,
            "sync": self.sync,
            "ack_interval_ms": self.ack_interval_ms,
            "expect": {"name": self.expected_name, "group": self.expected_group},
            "compression": list(self.compression),
            "pass_through": self.pass_through,
        }

    @classmethod
    def from_content(cls, content: Content) -> "Flow":
        """Read the keys. Raises ProtocolError."""
        expect = content.values.get("expect", {})
        if not isinstance(expect, dict):
            raise ProtocolError("expect is no JSON object")
        name, group = expect.get("name"), expect.get("group")
        if not isinstance(name, str | None) or not isinstance(group, str | None):
            raise ProtocolError("name or group in expect is no text")
        return cls(
            content.text("destination", chars_max=NAME_CHARS_MAX),
            content.text("client_name", chars_max=4 * NAME_CHARS_MAX),
            content.flag("sync"),
            content.number("ack_interval_ms", 1000, 86_400_000),
            name,
            group,
            tuple(content.texts("compression", 16, 16)),
            content.flag("pass_through"),
        )

    def check_peer(self, peer: Identity) -> None:
        """Check that an instance is one that the flow may go to (decision 25.1). Raises Refused."""
        if not matches(self.expected_name, self.expected_group, peer):
            wanted = (
                f"group {self.expected_group!r}"
                if self.expected_group is not None
                else f"name or group {self.expected_name!r}"
            )
            raise Refused(
                WRONG_PEER,
                f"destination {self.label!r} is for an instance with {wanted}, this one has the name "
                f"{peer.name!r} and the group {peer.group!r}; correct Group, Name or InetAddr of the destination",
            )


def matches(name: str | None, group: str | None, peer: Identity) -> bool:
    """Whether an instance is meant by the name and the group of a destination (decision 25.1)."""
    if group is not None:
        return peer.group == group
    return name in (peer.name, peer.group)


def destination_matches(destination: DestinationConfig, peer: Identity) -> bool:
    """Whether a destination may go to an instance."""
    return matches(destination.name, destination.group, peer)


def is_meant(destination: DestinationConfig, others: Sequence[DestinationConfig], peer: Identity) -> bool:
    """Whether a destination may use a link of an instance that has not answered at its addresses (decision 25.91).

    One with addresses and a name beside its group stands for one partner, so the name must be that of the instance. No
    other destination gets an instance that one is named after.
    """
    if destination.name == peer.name:
        return True
    if any(other.name == peer.name for other in others):
        return False
    stands_for_one = destination.name is not None and destination.group is not None
    return not (stands_for_one and any(transport.addresses for transport in destination.transports))


def client_name(source: str, destination: DestinationConfig, transport_type: str) -> str:
    """The name of a flow in logs and statistics (replication.md §6)."""
    place = destination.label
    if destination.group is not None and destination.group != destination.label:
        place += f"@{destination.group}"
    return f"{source}!{place}!{'sync' if destination.is_sync else 'async'}!{transport_type}"


def flow_of(source: str, destination: DestinationConfig, transport_type: str, compression: str) -> Flow:
    """What this instance tells about the flow to a destination."""
    return Flow(
        destination.label,
        client_name(source, destination, transport_type),
        destination.is_sync,
        round(destination.ack_conflation_s * 1000),
        destination.name,
        destination.group,
        (compression,) if available(compression) else (),
        destination.pass_through is not None,
    )


def check_version(content: Content) -> None:
    """Check that both sides have a protocol in common. Raises Refused, ProtocolError."""
    versions = content.values.get("proto")
    if not isinstance(versions, list):
        raise ProtocolError("proto is no list")
    if PROTOCOL_VERSION not in versions:
        raise Refused(
            VERSION,
            f"this instance has version {PROTOCOL_VERSION} of the replication protocol, the other one has "
            f"{versions[:8]}; use versions of the server that have one in common",
        )


def check_identity(own: Identity, peer: Identity, connected: Sequence[Identity]) -> None:
    """Check the identity of an instance against this one and the connected ones. Raises Refused."""
    if peer.uuid == own.uuid:
        raise Refused(SELF, "the destination is the instance itself; correct its InetAddr")
    if peer.name == own.name:
        raise Refused(DUP_NAME, f"both instances have the name {own.name!r}; each needs a name of its own")
    for other in connected:
        if other.name == peer.name and other.uuid != peer.uuid:
            raise Refused(
                DUP_NAME,
                f"another instance with the name {peer.name!r} is connected; each needs a name of its own",
            )


def chosen_compression(offered: Sequence[str]) -> str | None:
    """The first offered algorithm that this installation has."""
    return next((each for each in offered if available(each)), None)
