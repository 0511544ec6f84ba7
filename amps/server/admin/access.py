"""Authentication and permissions of the administration interface (operations.md §4, §5.4, §8).

Each request has its own credentials, if any; the modules are those of transports. The resource name of a permission is
the path of the resource, without the suffix of a format. Reading and operations both need the permission `read`.
"""

import base64
import binascii
from collections.abc import Mapping

import pcre2

from amps.config import AdminConfig, ServerConfig
from amps.server.admin.tree import Refused
from amps.server.security import (
    SwitchableAuthenticator,
    SwitchableEntitlement,
    make_authenticator,
    make_entitlement,
)


class Access:
    """The rules of one interface."""

    def __init__(self, config: ServerConfig, admin: AdminConfig) -> None:
        self._authenticator = SwitchableAuthenticator(make_authenticator(config, admin.transport))
        self._entitlement = SwitchableEntitlement(make_entitlement(config, admin.transport))
        self._anonymous = pcre2.compile(admin.anonymous_paths) if admin.anonymous_paths else None
        quoted = config.name.replace("\\", "").replace('"', "").encode("ascii", "replace").decode()
        self.challenge = admin.challenge or f'Basic realm="{quoted}"'

    def switch(self, what: str, enabled: bool) -> None:
        """Switch authentication or entitlement on or off, for the whole instance."""
        if what == "authentication":
            self._authenticator.enabled = enabled
        else:
            self._entitlement.enabled = enabled

    def is_anonymous(self, path: str) -> bool:
        """Whether a path, as requested, needs neither credentials nor a permission."""
        return self._anonymous is not None and _found(self._anonymous, path)

    def identify(self, headers: Mapping[str, str]) -> str:
        """Return the identity of the requester. Raises Refused."""
        user, password = _credentials(headers.get("Authorization", ""))
        decision = self._authenticator.authenticate(user, password)
        if not decision.accepted:
            raise Refused(401, "the credentials are missing or not accepted")
        return decision.identity

    def allows(self, identity: str, path: str) -> bool:
        """Whether a user may read the resource, or run the operation."""
        entitlement = self._entitlement
        return self.is_anonymous(path) or entitlement.allows_all or entitlement.allows(identity, "read", path)


def _found(pattern: "pcre2.Pattern", text: str) -> bool:
    """Whether a pattern matches. If matching fails, the answer is False, which allows nothing."""
    try:
        return pattern.search(text) is not None
    except (pcre2.LibraryError, UnicodeError):
        return False


def _credentials(header: str) -> tuple[str, str]:
    """User and password of an `Authorization` header; empty without one. Raises Refused."""
    if not header:
        return "", ""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        raise Refused(401, "only Basic credentials are accepted")
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeError):
        colon = ""
    if not colon:
        raise Refused(401, "the credentials cannot be read")
    return user, password
