"""Authenticators: they supply the password that a client logs on with."""

from typing import Protocol

from amps.client.errors import AuthenticationException


class Authenticator(Protocol):
    """Supplies credentials. Passwords and tokens (OAuth, Kerberos …) are plain text to the library."""

    def authenticate(self, username: str, password: str) -> str:
        """Return the text to send as password. Called before logon, with the values of the connection string."""

    def retry(self, username: str, password: str) -> str:
        """Return the password of the next attempt, after the server answered with a challenge carrying these values."""

    def completed(self, username: str, password: str, reason: str) -> None:
        """Logon succeeded. May raise to reject the server: the connection is then closed."""


class DefaultAuthenticator:
    """Sends the password of the connection string and cannot answer challenges."""

    def authenticate(self, username: str, password: str) -> str:
        """Return the password unchanged."""
        return password

    def retry(self, username: str, password: str) -> str:
        """Raises AuthenticationException."""
        raise AuthenticationException(
            "the server asks for another password and the default authenticator has none; pass authenticator="
        )

    def completed(self, username: str, password: str, reason: str) -> None:
        """Accept every server."""
