"""Every exception the client raises, and the mapping from acknowledgement reasons to them.

All derive from `AMPSException`. Connection problems are also `ConnectionError`, time limits
`TimeoutError`, wrong use `RuntimeError`, so that code which only knows the built-in classes catches them
too. Four exceptions keep a deprecated name as a class in between: catching `BadFilter` catches
`BadFilterException`.

After a `CommandException` the client stays usable: one command was refused, nothing else.
"""

from amps.client.protocol.message import Message


class AMPSException(Exception):
    """Base of all. The attributes are None where they do not apply."""

    def __init__(
        self,
        text: str = "",
        *,
        reason: str | None = None,
        command_id: str | None = None,
        message: Message | None = None,
    ) -> None:
        super().__init__(text)
        self.reason = reason
        """The server's stable text for the cause, such as `bad filter`."""
        self.detail = message.detail if message is not None else None
        """A description of the error by the server."""
        self.position = message.position if message is not None else None
        """The index, counted from 0, of the wrong character in the refused filter."""
        self.command_id = command_id
        """The id of the command."""
        self.message = message
        """The acknowledgement that reported the failure."""


class ConnectionException(AMPSException, ConnectionError):
    """The connection could not be made, was refused, or is gone."""


class AlreadyConnected(ConnectionException):
    """Deprecated name of AlreadyConnectedException."""


class AlreadyConnectedException(AlreadyConnected):
    """connect() on a client that is connected."""


class AuthenticationError(ConnectionException):
    """Deprecated name of AuthenticationException."""


class AuthenticationException(AuthenticationError):
    """The server refused the credentials, or a challenge could not be answered."""


class NameInUseException(ConnectionException):
    """Another user's connection holds this client name."""


class ConnectionRefusedException(ConnectionException):
    """No server listens at the address, or the proxy or TLS handshake failed."""


class DisconnectedException(ConnectionException):
    """The client is not connected, or the connection was lost while a command was under way."""


class InvalidUriException(ConnectionException):
    """The connection string is malformed."""


class InvalidTransportOptionsException(ConnectionException):
    """The connection string has an unknown parameter or a bad value."""


class TransportTypeException(ConnectionException):
    """The scheme of the connection string names no known transport."""


class MessageTypeException(ConnectionException):
    """The server does not take this message type on this transport."""


class RetryOperationException(ConnectionException):
    """The connection was lost before the answer arrived: issue the command again."""


class StreamException(ConnectionException):
    """The byte stream is corrupt, or a message stream cannot continue."""


class LogonRequiredException(ConnectionException):
    """A command was sent before logon and the server does not log on implicitly."""


class DuplicateLogonException(ConnectionException):
    """This connection is logged on already."""


class CommandException(AMPSException):
    """The server refused one command; the client stays usable."""


class BadFilter(CommandException):
    """Deprecated name of BadFilterException."""


class BadFilterException(BadFilter):
    """The content filter does not parse."""


class BadRegexTopic(CommandException):
    """Deprecated name of BadRegexTopicException."""


class BadRegexTopicException(BadRegexTopic):
    """The topic expression does not parse, or a literal topic is needed here."""


class BadSowKeyException(CommandException):
    """A SOW key is missing or malformed."""


class InvalidTopicException(CommandException):
    """The topic is not set up for this operation, or no topic was given."""


class NotEntitledException(CommandException):
    """The user is not entitled to this operation."""


class SubscriptionAlreadyExistsException(CommandException):
    """The subscription id is active and `replace` was not asked for."""


class InvalidBookmarkException(CommandException):
    """The bookmark does not parse, or is not in the log and `bookmark_not_found=fail` was given."""


class InvalidOrderByException(CommandException):
    """The order_by clause does not parse."""


class InvalidSubIdException(CommandException):
    """A subscription or query id is missing or malformed."""


class InvalidOptionsException(CommandException):
    """Unknown or conflicting options."""


class MissingFieldsException(CommandException):
    """The command lacks a field it needs."""


class PublishException(CommandException):
    """The message could not be parsed or stored."""


class TransactionRefusedException(CommandException):
    """A message of the transaction was not leased to the connection any more; nothing was acknowledged or published."""


class UnknownException(CommandException):
    """The server's `reason` has no exception class in this library."""


class TimedOutException(AMPSException, TimeoutError):
    """The time limit of a waiting call has passed."""


class StoreException(AMPSException):
    """A publish store or bookmark store cannot do its work."""


class PublishStoreGapException(StoreException):
    """The server's last sequence for this client is below the last one that the store knows to be persisted."""


class StoreFullException(StoreException):
    """The publish store has reached its limit."""


class StoreCorruptException(StoreException):
    """A store file is damaged."""


class UsageException(AMPSException, RuntimeError):
    """The call is not possible in this state or on this thread; the program must be changed."""


_BY_REASON: dict[str, type[AMPSException]] = {
    "auth failure": AuthenticationException,
    "name in use": NameInUseException,
    "not entitled": NotEntitledException,
    "bad filter": BadFilterException,
    "bad regex topic": BadRegexTopicException,
    "regex topic not supported": BadRegexTopicException,
    "bad sow key": BadSowKeyException,
    "invalid sow key": BadSowKeyException,
    "no sow key": BadSowKeyException,
    "no sow keys": BadSowKeyException,
    "invalid topic": InvalidTopicException,
    "no topic": InvalidTopicException,
    "subid in use": SubscriptionAlreadyExistsException,
    "subscription already exists": SubscriptionAlreadyExistsException,
    "invalid bookmark": InvalidBookmarkException,
    "bad order by": InvalidOrderByException,
    "invalid orderby": InvalidOrderByException,
    "invalid sub id": InvalidSubIdException,
    "invalid query id": InvalidSubIdException,
    "invalid options": InvalidOptionsException,
    "unknown option": InvalidOptionsException,
    "invalid message type": MessageTypeException,
    "logon required": LogonRequiredException,
    "duplicate logon": DuplicateLogonException,
    "parse error": PublishException,
    "duplicate": PublishException,
    "sow store failed": PublishException,
    "bad transaction": PublishException,
    "not recorded": InvalidTopicException,
    "lease lost": TransactionRefusedException,
    "tx store failed": PublishException,
    "no client name": MissingFieldsException,
    "no filter": MissingFieldsException,
    "no filter or bookmark": MissingFieldsException,
    "no data": MissingFieldsException,
}


def exception_for(
    reason: str | None, command: str, *, command_id: str | None = None, message: Message | None = None
) -> AMPSException:
    """Return the exception for a failure ack. Servers may append details after a colon: `bad filter: at 3`."""
    text = (reason or "").strip().lower()
    kind = _BY_REASON.get(text) or _BY_REASON.get(text.partition(":")[0].strip(), UnknownException)
    told = f"{command} failed: {reason}" if reason else f"{command} failed; the server gave no reason"
    if message is not None and message.detail:
        told += f": {message.detail}"
    return kind(told, reason=reason, command_id=command_id, message=message)
