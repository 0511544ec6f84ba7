"""The elements of `Replication`: destinations, what they get, and how to connect to them (replication.md §5).

`amps.config.replication` has the rules between these elements. The elements of the transport that accepts other
instances are those of any transport, in `amps.config.elements`.
"""

from amps.config.model_replication import CHECKS, MANDATORY_CHECKS
from amps.config.readers import list_of, one_of, read_pattern, read_text
from amps.config.schema import Block, Leaf, Options, Synonym
from amps.config.units import read_address, read_boolean, read_count, read_interval, shown

_SHORTEST_PAUSE_S = 0.001
_AUTHENTICATE = Block({"Module": Leaf(read_text, required=True), "Options": Options()})


def read_destination_count(text: str) -> int:
    """Read the number of destinations that stay in sync mode: a whole number of at least 1."""
    try:
        count = read_count(text)
    except ValueError:
        raise ValueError(
            f"{shown(text)} is no number; names of instances are not accepted here, write how many destinations "
            "shall stay in sync mode, such as 1"
        ) from None
    if count < 1:
        raise ValueError(f"{shown(text)} protects no destination; write 1 or more, or leave the element out")
    return count


def _read_check(text: str) -> str:
    """Read the name of a check that may be skipped (replication.md §16, 25.6)."""
    if text in MANDATORY_CHECKS:
        raise ValueError(
            f"the check {text} cannot be skipped, because a queue that differs there would lose messages; remove it "
            "from the list, and define the queue alike on both instances"
        )
    if text not in CHECKS:
        known = ", ".join(check for check in CHECKS if check not in MANDATORY_CHECKS)
        raise ValueError(f"{shown(text)} is no check; write some of {known}")
    return text


def _read_peer_address(text: str) -> tuple[str, int]:
    """Read the address of another instance: host and port."""
    host, port = read_address(text)
    if host is None or port == 0:
        raise ValueError(f"{shown(text)} names no server; write host:port, such as other-host:10005")
    return host, port


def _read_pause(text: str) -> float:
    """Read one interval of `ReconnectTimeout`, in seconds."""
    pause_s = read_interval(text)
    if pause_s < _SHORTEST_PAUSE_S:
        raise ValueError(f"{shown(text)} leaves no time to connect; write 1ms or more")
    return pause_s


_COMPRESSION = Leaf(one_of("none", "zlib", "zstd", "lz4"))

_TOPIC = Block(
    {
        "Name": Leaf(read_text, required=True),
        "MessageType": Leaf(read_text, required=True),
        "Filter": Leaf(read_text),
        "ExcludeValidation": Leaf(list_of(_read_check), default=(), may_be_empty=True),
    },
    required=True,
    repeatable=True,
)

_TRANSPORT = Block(
    {
        "Name": Leaf(read_text),
        "Type": Leaf(one_of("amps-replication", "amps-replication-secure"), required=True),
        "InetAddr": Leaf(list_of(_read_peer_address), repeatable=True),
        "ReconnectTimeout": Leaf(list_of(_read_pause)),
        "Authenticator": _AUTHENTICATE,
        "Authentication": _AUTHENTICATE,
        "Entitlement": _AUTHENTICATE,
        "Certificate": Leaf(read_text),
        "PrivateKey": Leaf(read_text),
        "Ciphers": Leaf(read_text),
        "SecureSocketProtocols": Leaf(
            list_of(one_of("SSLv2", "SSLv3", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"), " "),
            default=("TLSv1.1", "TLSv1.2", "TLSv1.3"),
        ),
        "VerifyClient": Leaf(read_boolean, default=False),
        "CAFile": Leaf(read_text),
        "CAPath": Leaf(read_text),
        "CompressionType": _COMPRESSION,
        "Compression": Synonym("CompressionType"),
        "IPProtocolPrefer": Leaf(one_of("ipv4", "ipv6"), default="ipv4"),
    },
    required=True,
    repeatable=True,
)

REPLICATION = Block(
    {
        "Destination": Block(
            {
                "Name": Leaf(read_text),
                "Group": Leaf(read_text),
                "SyncType": Leaf(one_of("sync", "async"), required=True),
                "Topic": _TOPIC,
                "PassThrough": Leaf(read_pattern),
                "Transport": _TRANSPORT,
                "AckConflationInterval": Leaf(read_interval, default=1.0),
                "CompressionType": _COMPRESSION,
                "Compression": Synonym("CompressionType"),
            },
            repeatable=True,
        )
    }
)
