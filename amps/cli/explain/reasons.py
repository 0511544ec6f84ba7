"""Explanations of reasons: of refused commands (`reason` of an acknowledgement) and of ended connections (07-0013).

A failure acknowledgement may have a `detail` besides; it describes the single case (docs/messages.md).
"""

from collections.abc import Mapping
from typing import NamedTuple

from amps.cli.explain.advice import Advice


class Reason(NamedTuple):
    """A reason: where it occurs, and its explanation."""

    where: str
    advice: Advice


_REFUSED = "reason of a refused command"
_ENDED = "reason of an ended connection"
_BOTH = "reason of a refused command or an ended connection"
REASONS: Mapping[str, Reason] = {
    "auth": Reason(
        _ENDED,
        Advice(
            "The logon was refused: wrong user or password, or another failure of the logon.",
            "Look at the failure acknowledgement of the logon, or at the record 25-0001 or 02-0030 of the server.",
        ),
    ),
    "auth failure": Reason(
        _REFUSED,
        Advice(
            "The user or the password is wrong, or the authentication module refused the user.",
            "Check both. For the command line see 'amps context show'. The record 25-0001 of the server says more.",
        ),
    ),
    "authentication disabled": Reason(
        "remark in the acknowledgement of a successful logon",
        Advice(
            "The server does not check passwords now: authentication was switched off.",
            "If that was not intended, switch it on again (SIGUSR2, or an action).",
        ),
    ),
    "bad filter": Reason(
        _REFUSED,
        Advice(
            "The filter cannot be parsed.",
            "The detail names the mistake and its position; 'amps subscribe' marks it. Fields begin with '/', texts "
            "are in single quotes: /side = 'buy' AND /price > 10.",
        ),
    ),
    "bad regex topic": Reason(
        _REFUSED,
        Advice(
            "The topic is meant as a regular expression and cannot be parsed.",
            "Correct the expression, or use the option non_regex_topic for a literal name.",
        ),
    ),
    "bad sow key": Reason(
        _REFUSED, Advice("A key of a record is malformed.", "Take keys from messages as they are.")
    ),
    "connection closed": Reason(_ENDED, Advice("The client, or the network, ended the connection.")),
    "duplicate": Reason(
        _REFUSED,
        Advice(
            "The publisher's sequence is not above its last one: the message is in the log already.",
            "None after a reconnect. Otherwise let one publisher at a time use a client name.",
        ),
    ),
    "duplicate logon": Reason(
        _REFUSED, Advice("The connection is logged on already.", "Log on once for each connection.")
    ),
    "entitlement": Reason(
        _ENDED,
        Advice(
            "The user may not log on.",
            "Grant the permission to log on in the entitlement module of the server.",
        ),
    ),
    "entitlement reset": Reason(
        _ENDED,
        Advice("Permissions were reset by an administrator.", "Reconnect; permissions are checked anew."),
    ),
    "heartbeat": Reason(
        _ENDED,
        Advice(
            "The client requested heartbeats and was silent for two intervals: it is stuck or overloaded, or the "
            "network dropped the connection.",
            "Keep message handlers short, or make the interval longer.",
        ),
    ),
    "invalid bookmark": Reason(
        _REFUSED,
        Advice(
            "The bookmark cannot be parsed, or it is not in the log and bookmark_not_found=fail was given.",
            "Use a bookmark of this server, epoch, now, or a time; keep journals long enough for the clients.",
        ),
    ),
    "invalid message type": Reason(
        _REFUSED,
        Advice(
            "The transport does not have the message type of the connection.",
            "Connect to the transport of this type, or correct the end of the connection string (/amps/json).",
        ),
    ),
    "invalid options": Reason(
        _REFUSED,
        Advice(
            "An option is unknown, malformed, or contradicts another one.", "The detail names the option."
        ),
    ),
    "invalid orderby": Reason(
        _REFUSED,
        Advice(
            "The order of a query cannot be parsed.", "Write fields with commas between: /price DESC, /id."
        ),
    ),
    "invalid sub id": Reason(
        _REFUSED,
        Advice(
            "The command names no subscription, or one that this connection does not have.",
            "Use the id of the subscribe command on the same connection.",
        ),
    ),
    "invalid topic": Reason(
        _REFUSED,
        Advice(
            "The topic is not configured for this operation: a query of a topic without records, a replay of a topic "
            "that is not recorded, an acknowledgement for no queue.",
            "Check the spelling and the message type; configure the topic in TransactionLog or SOW.",
        ),
    ),
    "journal damaged": Reason(
        _ENDED,
        Advice(
            "A part of the log that a replay needs cannot be read.",
            "See 1D-0010 and 1D-0017 in the event log; run 'amps journal verify'.",
        ),
    ),
    "logon required": Reason(
        _REFUSED, Advice("The first command of the connection was no logon.", "Log on before other commands.")
    ),
    "name in use": Reason(
        _BOTH,
        Advice(
            "Another client has the same client name. Of one user, the newer client takes the name over and the older "
            "is disconnected; another user is refused.",
            "Give each client a name of its own.",
        ),
    ),
    "no client name": Reason(
        _REFUSED, Advice("The logon has no client name.", "Give each client a name of its own.")
    ),
    "no filter or bookmark": Reason(
        _REFUSED,
        Advice("A sow_delete does not say what to delete.", "Give a filter, bookmarks, keys, or data."),
    ),
    "no sow key": Reason(_REFUSED, Advice("The command needs the key of a record.", "Give a key.")),
    "no topic": Reason(_REFUSED, Advice("The command has no topic.", "Give a topic.")),
    "not entitled": Reason(
        _REFUSED,
        Advice(
            "The user lacks the permission for this topic or operation.",
            "Grant it in the entitlement module of the server, or correct the topic. See 25-0002 in the event log.",
        ),
    ),
    "not supported yet": Reason(
        _REFUSED,
        Advice(
            "The command or option needs a feature that this version of the server does not have.",
            "The text after the colon names the feature; docs/features.md lists those that are missing.",
        ),
    ),
    "parse error": Reason(
        _REFUSED,
        Advice(
            "A header field is not of the form that it must have, such as a sequence that is no number.",
            "The detail names the field; check the client library.",
        ),
    ),
    "regex topic not supported": Reason(
        _REFUSED,
        Advice("The operation needs the literal name of a topic.", "Give a name, not an expression."),
    ),
    "result too large": Reason(
        _REFUSED,
        Advice(
            "The records of a query with an order do not fit into the memory that sorting may use.",
            "Narrow the filter, or query without an order and sort in the client.",
        ),
    ),
    "slow client": Reason(
        _ENDED,
        Advice(
            "The client read too slowly, and its limit of waiting messages was reached.",
            "Make its message handler faster, narrow its filter, use conflation, or raise the limits of slow clients.",
        ),
    ),
    "subscription already exists": Reason(
        _REFUSED,
        Advice(
            "The connection has a subscription of this id already.",
            "Use another id, or the option replace to change the subscription.",
        ),
    ),
    "bad transaction": Reason(
        _REFUSED,
        Advice(
            "A transaction is malformed, or beyond its limits; the detail says where.",
            "Correct it: a sequence, `persisted`, and at most 4,096 publishes and bookmarks.",
        ),
    ),
    "lease lost": Reason(
        _REFUSED,
        Advice(
            "A message of the transaction is not leased to this connection any more: nothing was done.",
            "Drop the result: another consumer gets the message. Raise LeasePeriod if the work takes longer.",
        ),
    ),
    "transaction undecided": Reason(
        _ENDED,
        Advice(
            "Another instance owns a message of the transaction, or it never came here: it may be recorded elsewhere.",
            "Connect again and repeat it, as an HAClient does. The detail names the instances of which more must be "
            "known; it is decided when they are connected, about a minute after the first try.",
        ),
    ),
    "not recorded": Reason(
        _REFUSED,
        Advice(
            "The transaction publishes to a topic that the transaction log does not record.",
            "Add the topic to the TransactionLog, or publish it outside the transaction.",
        ),
    ),
    "too many deferred acknowledgements": Reason(
        _REFUSED,
        Advice(
            "Too many acknowledgements wait for messages that are in no queue.",
            "Send them again after the messages have arrived, or lower DeferredAckExpiration.",
        ),
    ),
    "tx store failed": Reason(
        _BOTH,
        Advice(
            "The transaction log accepts no messages now: its disk is full or away.",
            "Make room at the server (2C-0011 and 01-0007 in the event log); publish unacknowledged messages again.",
        ),
    ),
    "unexpected failure": Reason(
        _ENDED,
        Advice("Code of the server failed in a way that is not provided for.", "Report the record 01-0005."),
    ),
    "unknown command": Reason(
        _ENDED,
        Advice(
            "The client sent a command that the server does not know, or bytes that are no frame.",
            "Check the protocol of the connection and the version of the client. See 02-0001 in the event log.",
        ),
    ),
}
