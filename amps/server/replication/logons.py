"""The logon of a flow: credentials of its source, and what its sink decides about them (replication.md §15, §24.3).

The source sends AUTH. The sink answers with AUTH_RESULT: ok, deny, or challenge, to which the source answers with
another AUTH; at most ROUNDS_MAX of them.
"""

from typing import Any, Protocol

from amps.server.replication import frames, hello
from amps.server.replication.frames import Content
from amps.server.replication.hello import Refused
from amps.server.replication.link import Channel

ROUNDS_MAX = 16


class Credentials(Protocol):
    """What a source logs on with."""

    async def first(self) -> dict[str, str]:
        """The first AUTH: `user`, `password` or `token`, `method`. Raises OSError, ValueError if there is nothing."""

    def answer(self, challenge: str) -> dict[str, str] | None:
        """The AUTH after a challenge; None: there is no answer to it."""


class Gate(Protocol):
    """What a sink decides with."""

    def authenticate(self, user: str, password: str) -> tuple[bool, str, str]:
        """Whether these credentials are accepted, the authenticated name, and the reason if they are not."""

    def may_replicate(self, user: str) -> bool:
        """Whether a user may log on for replication."""

    def allows_topic(self, user: str, topic: str) -> bool:
        """Whether messages of a topic are taken from that user."""


async def log_on(channel: Channel, credentials: Credentials) -> str:
    """The source's side: return the user name of the credentials. Raises Refused."""
    try:
        words = await credentials.first()
    except (OSError, ValueError) as problem:
        raise Refused(hello.AUTH_REFUSED, f"there are no credentials for the logon: {problem}") from None
    for _ in range(ROUNDS_MAX):
        channel.send_json(frames.AUTH, words)
        answer = Content(await channel.expect(frames.AUTH_RESULT))
        result = answer.text("result", chars_max=16)
        if result == "ok":
            return words.get("user", "")
        if result == "deny":
            code = answer.text("code", hello.AUTH_REFUSED, 64)
            raise Refused(code, answer.text("reason", "the logon was refused"), by_peer=True)
        if result != "challenge":
            raise frames.ProtocolError(f"the unknown result {result!r} in AUTH_RESULT")
        next_words = credentials.answer(answer.text("challenge", ""))
        if next_words is None:
            raise Refused(hello.AUTH_REFUSED, "the Authenticator has no answer to the challenge")
        words = next_words
    raise Refused(hello.AUTH_REFUSED, f"the logon needs more than {ROUNDS_MAX} rounds")


async def admit(channel: Channel, gate: Gate) -> str:
    """The sink's side: return the authenticated name. Raises Refused."""
    offered = Content(await channel.expect(frames.AUTH))
    user = offered.text("user", "")
    secret = offered.text("password", offered.text("token", "", 65536), 65536)
    accepted, identity, reason = gate.authenticate(user, secret)
    if not accepted:
        _deny(channel, hello.AUTH_REFUSED, f"user {user!r}: {reason or 'auth failure'}")
    if not gate.may_replicate(identity or user):
        _deny(channel, hello.ENTITLEMENT_REFUSED, f"user {identity or user!r} may not log on for replication")
    channel.send_json(frames.AUTH_RESULT, {"result": "ok"})
    return identity or user


def _deny(channel: Channel, code: str, reason: str) -> Any:
    channel.send_json(frames.AUTH_RESULT, {"result": "deny", "code": code, "reason": reason})
    raise Refused(code, reason)
