"""Logon and permissions to read and write topics: the built-in modules (operations.md §8.2, §8.5).

An authenticator decides once per connection. An entitlement answers per topic and permission; the connection caches
its answers. Modules that the documented system loads as libraries are Python objects with these two interfaces.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from amps.config import ModuleUse, ServerConfig
from amps.server.topics import topic_predicate


@dataclass(frozen=True, slots=True)
class Decision:
    """Outcome of an authentication. `identity` is the authenticated user name; `reason` goes into the ack."""

    accepted: bool
    identity: str = ""
    reason: str | None = None


class Authenticator(Protocol):
    """Decides about logons. `implicit_logon`: commands without a logon are allowed."""

    implicit_logon: bool

    def authenticate(self, user: str, password: str) -> Decision:
        """Decide about these credentials."""


class Entitlement(Protocol):
    """Answers whether a user has a permission. `allows_all`: it never refuses, so calls can be skipped."""

    allows_all: bool

    def may_log_on(self, user: str) -> bool:
        """Whether a user may log on."""

    def may_replicate(self, user: str) -> bool:
        """Whether a user may log on as a source of replication."""

    def allows(self, user: str, permission: str, topic: str) -> bool:
        """`permission` is `read`, `write` or `replication`: records of the topic may come by replication."""


def _enabled(use: ModuleUse, option: str, default: bool) -> bool:
    text = use.options.get(option)
    if text is None:
        return default
    return str(text).strip().lower() in ("true", "enabled", "1", "yes", "on")


class DefaultAuthenticator:
    """Accepts every client; the identity is empty unless AllowSpoofing is set."""

    def __init__(self, use: ModuleUse, implicit: bool) -> None:
        self.implicit_logon = implicit or not _enabled(use, "RequireLogon", True)
        self._spoofing = _enabled(use, "AllowSpoofing", False)
        self._require_user = _enabled(use, "RequireUsername", False)

    def authenticate(self, user: str, password: str) -> Decision:
        """Accept, unless a user name is required and missing."""
        if self._require_user and not user:
            return Decision(False, reason="auth failure")
        return Decision(True, user if self._spoofing else "", "authentication disabled")


class RefusingAuthenticator:
    """`amps-default-no-authentication-module`: always refuses."""

    implicit_logon = False

    def authenticate(self, user: str, password: str) -> Decision:
        """Refuse."""
        return Decision(False, reason="auth failure")


class FixedEntitlement:
    """The default entitlement modules: all or nothing."""

    def __init__(self, allow: bool) -> None:
        self.allows_all = allow

    def may_log_on(self, user: str) -> bool:
        """All or nothing."""
        return self.allows_all

    def may_replicate(self, user: str) -> bool:
        """All or nothing."""
        return self.allows_all

    def allows(self, user: str, permission: str, topic: str) -> bool:
        """All or nothing."""
        return self.allows_all


def _holds(text: str) -> Callable[[str], bool]:
    """The predicate of an expression without special characters, unanchored: topics that contain the text."""
    return lambda topic: text in topic


class SimpleAccessEntitlement:
    """`libamps_simple_access_entitlement`: topics by expression, denied before allowed."""

    allows_all = False

    def __init__(self, use: ModuleUse) -> None:
        self._allowed = self._predicates(use, "AllowedTopics", False)
        self._denied = self._predicates(use, "DeniedTopics", True)
        granted = use.options.get("GrantedPermissions")
        texts = [granted] if isinstance(granted, str) else list(granted or [])
        words = {word.strip().lower() for text in texts for word in text.replace(",", " ").split()}
        self._permissions = words or {"read", "write"}
        if "write" in self._permissions:
            self._permissions.add("replication")  # the module does not tell them apart (replication.md 25.53)

    @staticmethod
    def _predicates(use: ModuleUse, option: str, when_too_hard: bool) -> list[Callable[[str], bool]]:
        value = use.options.get(option)
        texts = [value] if isinstance(value, str) else list(value or [])
        return [topic_predicate(text, True, when_too_hard=when_too_hard) or _holds(text) for text in texts]

    def may_log_on(self, user: str) -> bool:
        """Every user may log on."""
        return True

    def may_replicate(self, user: str) -> bool:
        """Every user may log on."""
        return True

    def allows(self, user: str, permission: str, topic: str) -> bool:
        """Whether the permission is granted, and the topic is not denied, and allowed if allowed topics are listed."""
        if permission not in self._permissions or any(denied(topic) for denied in self._denied):
            return False
        return not self._allowed or any(allowed(topic) for allowed in self._allowed)


class SwitchableAuthenticator:
    """An authenticator that can be disabled. Then it accepts all, without a name unless the inner one gives a name."""

    def __init__(self, other: Authenticator) -> None:
        self._other = other
        self.enabled = True

    @property
    def implicit_logon(self) -> bool:
        """Whether commands without a logon are allowed."""
        return self._other.implicit_logon or not self.enabled

    def authenticate(self, user: str, password: str) -> Decision:
        """Decide about these credentials."""
        decision = self._other.authenticate(user, password)
        if decision.accepted or self.enabled:
            return decision
        return Decision(True, "", "authentication disabled")


class SwitchableEntitlement:
    """An entitlement that can be disabled; then it allows everything. `allows_all` is that of the inner one."""

    def __init__(self, other: Entitlement) -> None:
        self._other = other
        self.allows_all = other.allows_all
        self.enabled = True

    def may_log_on(self, user: str) -> bool:
        """Whether a user may log on."""
        return not self.enabled or self._other.may_log_on(user)

    def may_replicate(self, user: str) -> bool:
        """Whether a user may log on as a source of replication."""
        return not self.enabled or self._other.may_replicate(user)

    def allows(self, user: str, permission: str, topic: str) -> bool:
        """Whether a user has a permission for a topic."""
        return not self.enabled or self._other.allows(user, permission, topic)


class SecuredTransport(Protocol):
    """A transport with modules of its own; None: those of the instance."""

    @property
    def authentication(self) -> ModuleUse | None:
        """The module that decides about logons."""

    @property
    def entitlement(self) -> ModuleUse | None:
        """The module that decides about permissions."""


def make_authenticator(config: ServerConfig, transport: SecuredTransport) -> Authenticator:
    """The authenticator of a transport: its own, else the instance's, else the default module."""
    use = transport.authentication or config.authentication or ModuleUse("amps-default-authentication-module")
    if use.module == "amps-default-no-authentication-module":
        return RefusingAuthenticator()
    return DefaultAuthenticator(use, use.module == "amps-implicit-authentication-module")


def make_entitlement(config: ServerConfig, transport: SecuredTransport) -> Entitlement:
    """The entitlement of a transport: its own, else the instance's, else the default module."""
    use = transport.entitlement or config.entitlement or ModuleUse("amps-default-entitlement-module")
    if use.module == "amps-default-no-entitlement-module":
        return FixedEntitlement(False)
    if use.module == "amps-default-entitlement-module":
        return FixedEntitlement(True)
    return SimpleAccessEntitlement(use)
