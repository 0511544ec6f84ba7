"""Reading the state of an instance from its administration interface (operations.md §5)."""

import base64
import http.client
import io
import json
import socket
import ssl
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

import click

from amps.cli.failures import tell

DEFAULT_PORT = 8085
DEFAULT_ADDRESS = f"localhost:{DEFAULT_PORT}"
INSTANCE = "/amps/instance.json"
CALL_WAIT_S = 5.0
"""Limit of each read from the connection."""
ANSWER_WAIT_S = 15.0
"""Limit of a whole answer, from its first header on."""
ANSWER_BYTES_MAX = 64 * 2**20


class AdminFailure(click.ClickException):
    """The administration interface did not answer as it should. The text has the likely cause."""

    def show(self, file: Any = None) -> None:
        tell(self.message)


class _Until(io.RawIOBase):
    """The received bytes of a socket, up to a deadline: a server that sends little at a time cannot delay it."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._socket = sock
        self._deadline = deadline
        self._received = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self._deadline - time.monotonic()
        try:
            if left_s > 0:
                self._socket.settimeout(min(CALL_WAIT_S, left_s))
                return self._received.readinto(buffer)
        except TimeoutError:
            if left_s > CALL_WAIT_S:
                raise
        raise TimeoutError(f"the answer takes longer than {ANSWER_WAIT_S:g} s")

    def close(self) -> None:
        self._received.close()
        super().close()


class _Answer(http.client.HTTPResponse):
    """A response that is read, with its status and headers, up to a deadline."""

    def __init__(self, deadline: float, sock: socket.socket, *given: Any, **named: Any) -> None:
        super().__init__(sock, *given, **named)
        self.fp.close()
        self.fp = io.BufferedReader(_Until(sock, deadline))


@dataclass(frozen=True)
class AdminInterface:
    """The address of an administration interface, and the credentials for it."""

    scheme: str
    host: str
    port: int
    prefix: str = ""
    user: str = ""
    password: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None

    @classmethod
    def parse(
        cls, address: str, user: str = "", password: str | None = None, tls: ssl.SSLContext | None = None
    ) -> "AdminInterface":
        """The interface at `[http[s]://][USER:PASSWORD@]HOST[:PORT]`. Raises UsageError."""
        text = address if "://" in address else f"http://{address}"
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError:
            parts, port = None, None
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            shown = address.rpartition("@")[2]
            raise click.UsageError(f"{shown!r} is no address of an administration interface: write http://HOST:PORT")
        if parts.username is not None:
            user, password = unquote(parts.username), unquote(parts.password or "")
        host = parts.hostname
        return cls(parts.scheme, host, port or DEFAULT_PORT, parts.path.rstrip("/"), user, password, tls)

    @property
    def url(self) -> str:
        """The address without credentials."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.prefix}"

    def read(self) -> dict[str, Any]:
        """The values of the instance. Raises AdminFailure, after about ANSWER_WAIT_S at the latest."""
        try:
            status, body = self._get()
        except ssl.SSLError as error:
            raise AdminFailure(f"no encrypted connection to {self.url}: {error}") from None
        except (OSError, http.client.HTTPException) as error:
            raise AdminFailure(
                f"no administration interface answers at {self.url} ({_described(error)}): is the server running, and "
                f"does its configuration have <Admin><InetAddr>{self.port}</InetAddr></Admin>?"
            ) from None
        if status in (401, 403):
            raise AdminFailure(
                f"the administration interface at {self.url} refuses user {self.user!r} ({status}: "
                f"{_first_line(body)}): check the user (-user), the password (-password-file, AMPS_PASSWORD) and the "
                "permissions"
            )
        if status != 200:
            raise AdminFailure(f"{self.url} answers {status}: {_first_line(body)}")
        try:
            instance = json.loads(body)["amps"]["instance"]
        except (ValueError, KeyError, TypeError, RecursionError):
            instance = None
        if not isinstance(instance, dict):
            raise AdminFailure(f"{self.url} is no administration interface of such a server")
        return instance

    def _get(self) -> tuple[int, bytes]:
        deadline = time.monotonic() + ANSWER_WAIT_S
        connection = (
            http.client.HTTPSConnection(self.host, self.port, timeout=CALL_WAIT_S, context=self.tls)
            if self.scheme == "https"
            else http.client.HTTPConnection(self.host, self.port, timeout=CALL_WAIT_S)
        )
        headers = {"Accept": "application/json", "User-Agent": "amps-top", "Connection": "close"}
        if self.user or self.password:
            credentials = base64.b64encode(f"{self.user}:{self.password or ''}".encode()).decode()
            headers["Authorization"] = f"Basic {credentials}"
        try:
            connection.response_class = lambda *given, **named: _Answer(deadline, *given, **named)  # type: ignore[assignment]
            connection.request("GET", self.prefix + INSTANCE, headers=headers)
            answer = connection.getresponse()
            parts: list[bytes] = []
            size = 0
            while part := answer.read1(1 << 16):
                parts.append(part)
                size += len(part)
                if size > ANSWER_BYTES_MAX:
                    raise OSError(f"the answer has more than {ANSWER_BYTES_MAX} bytes")
            return answer.status, b"".join(parts)
        finally:
            connection.close()


def _described(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return str(error) or f"no answer within {CALL_WAIT_S:g} s"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or error.__class__.__name__


def _first_line(body: bytes) -> str:
    return body[:200].decode("utf-8", "replace").strip().partition("\n")[0]
