"""The origin of a request: a script or a browser, and in a browser the page that sent it (operations.md §4, §5).

Operations are documented as GETs, so that a script runs one with a single line. A browser sends GETs also for pages
that it shows or fetches in advance, and for links that the user did not mean to follow, without the user's knowledge.
So three properties of each request are checked:

- `Host` must be a known name of this interface. Otherwise an attacker's name may have been pointed to this address, to
  make the attacker's page look like one of this interface. Addresses are always accepted: no name leads to them.
  Without `Host` only HTTP/1.0 is accepted, which no browser uses.
- `Origin`, else `Referer`, names the page that sent the request; `Sec-Fetch-Site` tells whether it is of another site.
  A value that cannot be read, including `null`, counts as another site's.
- A client that sends a header which browsers send and simple programs do not is treated as a browser: its GETs run no
  operations.

Headers that a page can set prove nothing: only `Host`, `Origin`, `Referer` and `Sec-…` are beyond its control.
`X-Forwarded-…` and headers that override the method are ignored.
"""

import asyncio
import socket
from dataclasses import dataclass

import pcre2
from multidict import CIMultiDictProxy

from amps.config import AdminConfig
from amps.config.web_origins import host_of, is_address, origin_of, origin_of_url, split_authority
from amps.server.admin.tree import Refused

Headers = CIMultiDictProxy[str]

BROWSER_HEADERS = frozenset(
    ("origin", "referer", "accept-language", "upgrade-insecure-requests", "purpose", "x-purpose", "x-moz")
)
"""In lower case. All headers that begin with `sec-` count as well."""
BROWSER_AGENTS = ("mozilla/", "opera/")
_SENT_BY_PROGRAMS_TOO = {"accept-language": "*", "sec-fetch-mode": "cors"}
"""Node.js and Deno send these headers with these values, which browsers do not send without others."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """The origin of a request. `target`: path and query. `own_origin`: the interface's origin, as named in the request.

    `origin`: the header; empty without one. `foreign_page`: the origin of the other site's page that sent the request,
    or another indication of such a page; None: there is none. `browser_sign`: a header by which a browser is
    recognised; None: the request may come from a script.
    """

    target: str
    own_origin: str
    origin: str
    foreign_page: str | None
    browser_sign: str | None


class Origins:
    """The names and origins of one interface, and the origins that it trusts."""

    def __init__(self, admin: AdminConfig) -> None:
        self._scheme = "https" if admin.transport.tls is not None else "http"
        self._readers = pcre2.compile(admin.allowed_origins) if admin.allowed_origins else None
        self._trusted = frozenset(admin.trusted_origins)
        own_name = socket.gethostname()
        names = ["localhost", own_name, own_name.partition(".")[0], *admin.allowed_hosts]
        names += [host_of(origin) for origin in admin.trusted_origins]
        if admin.transport.host is not None and ":" not in admin.transport.host:
            names.append(admin.transport.host)
        self._names: set[str] = set()
        self._endings = tuple(name.removeprefix("*") for name in names if name.startswith("*."))
        for name in names:
            self._know(name)

    async def learn_full_name(self) -> None:
        """Add the host's full name to the known names. It may take long if a name service does not answer."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(socket.gethostname(), None, flags=socket.AI_CANONNAME)
        except OSError:
            return
        for _, _, _, name, _ in found:
            self._know(name)

    def _know(self, name: str) -> None:
        try:
            self._names.add(split_authority(name)[0])
        except ValueError:
            return  # empty, a wildcard, or not possible in a request

    def provenance(self, version: tuple[int, int], raw_target: str, headers: Headers) -> Provenance:
        """Determine the origin of a request. Raises Refused.

        `version`: of HTTP. `raw_target`: as sent; a whole URL names the host, as `Host` does.
        """
        target, authority = raw_target, self._checked_host(version, headers)
        if not raw_target.startswith("/"):
            scheme, separator, rest = raw_target.partition("://")
            if scheme.lower() not in ("http", "https") or not separator:
                raise Refused(400, "the request has no path")
            end = min(place for place in (rest.find("/"), rest.find("?"), len(rest)) if place >= 0)
            authority, target = rest[:end], rest[end:] or "/"
            target = target if target.startswith("/") else "/" + target
            self._check_name(authority)
        own = origin_of(self._scheme, authority) if authority is not None else ""
        origins = headers.getall("Origin", [])
        return Provenance(
            target,
            own,
            origins[0] if origins else "",
            self._foreign_page(own, origins, headers),
            browser_sign(headers),
        )

    def _checked_host(self, version: tuple[int, int], headers: Headers) -> str | None:
        hosts = headers.getall("Host", [])
        if len(hosts) > 1:
            raise Refused(400, "the request has several Host headers")
        if not hosts:
            if version >= (1, 1):
                raise Refused(400, "the request has no Host header")
            return None
        self._check_name(hosts[0])
        return hosts[0]

    def _check_name(self, authority: str) -> None:
        try:
            host, _ = split_authority(authority)
        except ValueError:
            raise Refused(400, "the Host of the request cannot be read") from None
        if not (is_address(host) or host in self._names or host.endswith(self._endings)):
            raise Refused(
                421,
                f"this interface is not known as {host[:255]}; if it is, add "
                f"<AllowedHost>{host[:255]}</AllowedHost> to Admin in its configuration",
            )

    def _foreign_page(self, own: str, origins: list[str], headers: Headers) -> str | None:
        pages = origins or headers.getall("Referer", [])
        trusted = False
        for page in pages:
            try:
                found = origin_of_url(page)
            except ValueError:
                return page[:255] or "a page without a name"
            if len(pages) > 1 or (found != own and found not in self._trusted):
                return found
            trusted = found in self._trusted
        site = ",".join(headers.getall("Sec-Fetch-Site", ["none"]))
        if site in ("none", "same-origin") or trusted:
            return None
        return f"a page of another origin ({site[:100]})"

    def may_read(self, asked: Provenance) -> bool:
        """Whether the page that sent the request, if any, may read the answer."""
        return not asked.origin or asked.foreign_page is None or self._is_reader(asked.origin)

    def answered_origin(self, asked: Provenance | None, own: str) -> str | None:
        """The header `Access-Control-Allow-Origin`: the origin whose pages may read the answer. None: it is not sent.

        `own`: the interface's origin by the name of its host.
        """
        if asked is not None and asked.origin:
            if self._is_reader(asked.origin):
                return asked.origin
            if self._trusted and asked.foreign_page is None:
                return asked.origin
        return own if self._readers is not None else None

    def _is_reader(self, origin: str) -> bool:
        """Whether the pattern of readers matches an origin. If matching fails, the answer is False."""
        try:
            return self._readers is not None and self._readers.search(origin) is not None
        except (pcre2.LibraryError, UnicodeError):
            return False


def browser_sign(headers: Headers) -> str | None:
    """The first header by which a browser is recognised, in lower case; None: it may be a script."""
    for sent_name, value in headers.items():
        name = sent_name.lower()
        if (name in BROWSER_HEADERS or name.startswith("sec-")) and _SENT_BY_PROGRAMS_TOO.get(name) != value:
            return name
        if name == "user-agent" and any(agent in value.lower() for agent in BROWSER_AGENTS):
            return name
        if name == "accept" and "text/html" in value.lower():
            return name
    return None
