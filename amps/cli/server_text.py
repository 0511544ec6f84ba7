"""The parts of a server as users write it: `[SCHEME://][USER:PASSWORD@]HOST:PORT[/PATH][?OPTIONS]`."""

import re
from typing import NamedTuple, Self

from amps.client.uri import PROTOCOLS

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


class ServerText(NamedTuple):
    """A server. Missing parts are empty; `credentials` is None without an `@`. All are as written, with `%XX`."""

    scheme: str
    credentials: str | None
    address: str
    path: str
    query: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Take a server apart; nothing is checked."""
        found = _SCHEME.match(text)
        location, _, query = (text[found.end() :] if found is not None else text).partition("?")
        authority, _, path = location.partition("/")
        credentials, at, address = authority.rpartition("@")
        return cls(
            found[1] if found is not None else "", credentials if at else None, address, path.rstrip("/"), query
        )

    def __str__(self) -> str:
        scheme = f"{self.scheme}://" if self.scheme else ""
        credentials = "" if self.credentials is None else f"{self.credentials}@"
        path = f"/{self.path}" if self.path else ""
        return f"{scheme}{credentials}{self.address}{path}{'?' if self.query else ''}{self.query}"

    @property
    def message_type(self) -> str | None:
        """The message type at the end of the path; None if there is none."""
        segments = self.path.split("/")
        return None if not self.path or _ends_in_protocol(segments) else segments[-1]

    def with_message_type(self, name: str) -> "ServerText":
        """The same server with another message type."""
        segments = self.path.split("/") if self.path else ["amps"]
        if not _ends_in_protocol(segments):
            segments.pop()
        return self._replace(path="/".join([*segments, name]))


def _ends_in_protocol(segments: list[str]) -> bool:
    """Whether the path has no message type; the same rule as in `amps.client.uri`."""
    return segments[-1] == "amps" or (len(segments) == 1 and segments[0] in PROTOCOLS)
