"""Constants of the documented API (client.md §1.1, §1.2, §9.7). Types of commands and acknowledgements are texts."""

from collections.abc import Sequence
from typing import Final

from amps.client import EPOCH as _EPOCH
from amps.client import MOST_RECENT as _MOST_RECENT
from amps.client import NOW as _NOW
from amps.client import ConnectionState as _State
from amps.client.protocol.options import interval_text


class CommandType:
    """Types of commands and messages, as `Message.get_command` returns them; also `Message.Command`."""

    Unknown: Final = ""
    Publish: Final = "publish"
    Subscribe: Final = "subscribe"
    Unsubscribe: Final = "unsubscribe"
    SOW: Final = "sow"
    Heartbeat: Final = "heartbeat"
    SOWDelete: Final = "sow_delete"
    DeltaPublish: Final = "delta_publish"
    Logon: Final = "logon"
    SOWAndSubscribe: Final = "sow_and_subscribe"
    DeltaSubscribe: Final = "delta_subscribe"
    SOWAndDeltaSubscribe: Final = "sow_and_delta_subscribe"
    StartTimer: Final = "start_timer"
    StopTimer: Final = "stop_timer"
    GroupBegin: Final = "group_begin"
    GroupEnd: Final = "group_end"
    OOF: Final = "oof"
    Ack: Final = "ack"
    Flush: Final = "flush"


class AckTypes:
    """Types of acknowledgements; also `Message.AckType`."""

    Received: Final = "received"
    Parsed: Final = "parsed"
    Processed: Final = "processed"
    Persisted: Final = "persisted"
    Completed: Final = "completed"
    Stats: Final = "stats"


class Options:
    """Options of commands, each with a comma at its end, so that they can be concatenated; also `Message.Options`.

    Intervals are texts such as "250ms", or seconds.
    """

    Live: Final = "live,"
    OOF: Final = "oof,"
    Replace: Final = "replace,"
    NoEmpties: Final = "no_empties,"
    SendKeys: Final = "send_keys,"
    Timestamp: Final = "timestamp,"
    NoSowKey: Final = "no_sowkey,"
    Cancel: Final = "cancel,"
    Expire: Final = "expire,"
    Pause: Final = "pause,"
    Resume: Final = "resume,"
    FullyDurable: Final = "fully_durable,"

    @staticmethod
    def MaxBacklog(count: int) -> str:
        """The number of unacknowledged queue messages that the subscription may have."""
        return f"max_backlog={count},"

    @staticmethod
    def Conflation(interval: str | float) -> str:
        """The interval of conflation; "auto" adapts to the reader."""
        return f"conflation={interval_text(interval)},"

    @staticmethod
    def ConflationKey(*fields: str) -> str:
        """The fields that identify messages for conflation."""
        return _list("conflation_key", fields)

    @staticmethod
    def TopN(count: int) -> str:
        """The maximum number of records."""
        return f"top_n={count},"

    @staticmethod
    def SkipN(count: int) -> str:
        """The number of records to skip."""
        return f"skip_n={count},"

    @staticmethod
    def Rate(rate: int | str) -> str:
        """The speed of a replay: messages a second, "500KB", or "2X"."""
        return f"rate={rate},"

    @staticmethod
    def RateMaxGap(interval: str | float) -> str:
        """The longest pause of a replay with a multiple of the original speed."""
        return f"rate_max_gap={interval_text(interval)},"

    @staticmethod
    def Select(*fields: str) -> str:
        """The fields to deliver, such as "-/", "+/id"."""
        return _list("select", fields)

    @staticmethod
    def Projection(*fields: str) -> str:
        """The fields of an aggregated query."""
        return _list("projection", fields)

    @staticmethod
    def Grouping(*fields: str) -> str:
        """The fields by which an aggregated query groups."""
        return _list("grouping", fields)

    @staticmethod
    def AckConflationInterval(interval: str | float) -> str:
        """The interval at which the server combines persisted acknowledgements; an option of logon."""
        return f"ack_conflation={interval_text(interval)},"

    @staticmethod
    def BookmarkNotFound(action: str) -> str:
        """What a replay from unknown bookmarks does: "now", "epoch" or "fail"."""
        return f"bookmark_not_found={action},"


def _list(name: str, fields: Sequence[str]) -> str:
    return f"{name}=[{','.join(fields)}],"


class Bookmarks:
    """Places where a replay begins; also `Client.Bookmarks`."""

    EPOCH: Final = _EPOCH
    NOW: Final = _NOW
    MOST_RECENT: Final = _MOST_RECENT
    RECENT: Final = _MOST_RECENT


class Reason:
    """Reasons in acknowledgements and `oof` messages, as `Message.get_reason` returns them."""

    Duplicate: Final = "duplicate"
    """The publisher's number was not above its highest one."""
    BadFilter: Final = "bad filter"
    """The content filter does not parse."""
    BadRegexTopic: Final = "bad regex topic"
    """The topic expression does not parse."""
    SubscriptionAlreadyExists: Final = "subscription already exists"
    """The subscription id is active."""
    Deleted: Final = "deleted"
    """Of `oof`: the record was deleted."""
    Expired: Final = "expired"
    """Of `oof`: the record expired."""
    Match: Final = "match"
    """Of `oof`: the record no longer matches."""
    InvalidTopic: Final = "invalid topic"
    """The topic is not set up for this operation."""
    NameInUse: Final = "name in use"
    """Another connection has the client name."""
    AuthFailure: Final = "auth failure"
    """The credentials were refused."""
    NotEntitled: Final = "not entitled"
    """The user has no permission."""


class ConnectionStateListener:
    """The states that connection state listeners are called with."""

    Disconnected: Final = _State.DISCONNECTED
    """The connection is lost or closed."""
    Shutdown: Final = _State.SHUTDOWN
    """The client is closed for good."""
    Connected: Final = _State.CONNECTED
    """The connection is open."""
    LoggedOn: Final = _State.LOGGED_ON
    """The logon has succeeded; recovery is not finished."""
    PublishReplayed: Final = _State.PUBLISH_REPLAYED
    """The messages of the publish store have been sent again."""
    HeartbeatInitiated: Final = _State.HEARTBEAT_INITIATED
    """Heartbeats have begun."""
    Resubscribed: Final = _State.RESUBSCRIBED
    """All subscriptions have been entered again."""
    UNKNOWN: Final = _State.UNKNOWN
    """Never reported."""
