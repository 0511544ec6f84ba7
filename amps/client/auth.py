"""How a client gets the password it logs on with."""

from typing import Protocol

from amps.client.errors import AuthenticationException


class Authenticator(Protocol):
    """Supplies credentials. Passwords and tokens (OAuth, Kerberos …) are plain text to the library."""

    def authenticate(self, username: str, password: str) -> str:
        """Before logon, with the values of the connection string: the text to send as password."""

    def retry(self, username: str, password: str) -> str:
        """The server answered with a challenge carrying these values: the password of the next try."""

    def completed(self, username: str, password: str, reason: str) -> None:
        """Logon succeeded. May raise to reject the server: the connection is then closed."""


class DefaultAuthenticator:
    """Sends the password of the connection string and cannot answer challenges."""

    def authenticate(self, username: str, password: str) -> str:
        """The password as it is."""
        return password

    def retry(self, username: str, password: str) -> str:
        """Raises AuthenticationException."""
        raise AuthenticationException(
            "the server asks for another password and the default authenticator has none; pass authenticator="
        )

    def completed(self, username: str, password: str, reason: str) -> None:
        """Accept every server."""
