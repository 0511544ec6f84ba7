"""Names of hosts and origins in HTTP requests, normalized so that they can be compared.

An authority is `host` or `host:port`; an origin is `scheme://host:port`. Names are in lower case and without a
final dot, addresses in their shortest form (IPv6 in brackets), ports always written.
"""

import ipaddress
import re
from urllib.parse import urlsplit

DEFAULT_PORTS = {"http": 80, "https": 443}
PORT_MAX = 65535
_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9A-Za-z._-]+))(?::([0-9]{0,5}))?")


def split_authority(text: str) -> tuple[str, int | None]:
    """Return host and port of an authority; the port is None if it has none. Raises ValueError."""
    matched = _AUTHORITY.fullmatch(text)
    if matched is None:
        raise ValueError("it is no host with or without a port")
    address, name, port_text = matched.groups()
    port = int(port_text) if port_text else None
    if port is not None and port > PORT_MAX:
        raise ValueError(f"there is no port {port}")
    if address is not None:
        return f"[{ipaddress.IPv6Address(address).compressed}]", port
    host = name.lower().removesuffix(".")
    if not host:
        raise ValueError("the host is missing")
    return host, port


def is_address(host: str) -> bool:
    """Whether a host, as `split_authority` returns it, is an address, not a name, which could be redirected."""
    if host.startswith("["):
        return True
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


def origin_of(scheme: str, authority: str) -> str:
    """Return the origin with this scheme and authority. Raises ValueError."""
    scheme = scheme.lower()
    if scheme not in DEFAULT_PORTS:
        raise ValueError("it begins neither with http:// nor with https://")
    host, port = split_authority(authority)
    return f"{scheme}://{host}:{DEFAULT_PORTS[scheme] if port is None else port}"


def origin_of_url(url: str) -> str:
    """Return the origin that a URL belongs to. Raises ValueError."""
    parts = urlsplit(url)
    return origin_of(parts.scheme, parts.netloc)


def host_of(origin: str) -> str:
    """Return the host of a normalized origin."""
    return split_authority(origin.partition("://")[2])[0]
