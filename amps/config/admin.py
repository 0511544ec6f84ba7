"""`Admin`: the administration interface over HTTP (operations.md §4).

It is a transport like others, with the name `amps-admin`: its address, TLS and security elements have the same meaning.
Only the default of the address differs: a port alone is served on the loopback addresses of this host, because by
default every client that can connect has full access. Write an address, such as 0.0.0.0:8085, for other hosts.

Two elements are not documented: `AllowedHost` has names of the interface besides the usual ones. `TrustedOrigin` has
other origins whose pages have the rights of the interface's own pages (`amps/server/admin/origins.py`).
"""

import re
from pathlib import Path

from amps.config.model import AdminConfig, TlsConfig, TransportConfig
from amps.config.model_base import ModuleUse
from amps.config.readers import read_pattern, read_text
from amps.config.schema import Block, Checker, Leaf, NotSupportedYet, Options, Section
from amps.config.tls import try_out
from amps.config.units import read_address, read_boolean, read_interval, shown
from amps.config.web_origins import origin_of, split_authority

ADMIN_TRANSPORT = "amps-admin"
_NO_STATISTICS = (
    "statistics are neither sampled nor kept; the interface shows the values at the time of a request"
)
_NO_CONSOLE = "there is no web console; the interface has pages to browse, below /amps"


def _read_header(text: str) -> tuple[str, str]:
    """Read one header of a response, in the form in which it is sent."""
    name, colon, value = text.partition(":")
    if not colon or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}", name):
        raise ValueError(f"{shown(text)} is no header; write it as it is sent, such as Vary: Origin")
    if not re.fullmatch(r"[\t\x20-\x7e\x80-\xff]{0,4096}", value):
        raise ValueError(f"{shown(text)} has characters that no header may have; leave them out")
    if name.lower() in ("content-length", "content-type", "transfer-encoding", "connection"):
        raise ValueError(f"{name} is set by the server itself; remove it")
    return name, value.strip()


def _read_host(text: str) -> str:
    """Read a host name without a port; with `*.` before it, it matches every name with this ending."""
    name = text.removeprefix("*.")
    try:
        host, port = split_authority(name)
    except ValueError:
        host, port = "", None
    if not host or port is not None or (name != text and host.startswith("[")):
        raise ValueError(
            f"{shown(text)} is no name of a host; write it without a port, such as amps.example.com or *.example.com"
        )
    return "*." + host if name != text else host


def _read_origin(text: str) -> str:
    scheme, _, authority = text.removesuffix("/").partition("://")
    try:
        return origin_of(scheme, authority)
    except ValueError:
        raise ValueError(
            f"{shown(text)} is no origin; write scheme, host and port, such as https://amps.example.com:8443"
        ) from None


def _read_challenge(text: str) -> str:
    scheme = text.split(" ", 1)[0].lower()
    if scheme in ("negotiate", "ntlm"):
        raise NotSupportedYet("Kerberos and NTLM authentication")
    if scheme != "basic":
        raise ValueError(f'{shown(text)} is no way to ask for credentials; write Basic realm="…"')
    _read_header(f"WWW-Authenticate: {text}")
    return text


_MODULE_USE = Block({"Module": Leaf(read_text, required=True), "Options": Options()})

ADMIN = Block(
    {
        "InetAddr": Leaf(read_address),
        "FileName": Leaf(read_text, default=":memory:", unused=_NO_STATISTICS),
        "Interval": Leaf(read_interval, unused=_NO_STATISTICS),
        "WWWAuthenticate": Leaf(_read_challenge),
        "Authentication": _MODULE_USE,
        "Entitlement": _MODULE_USE,
        "AnonymousPaths": Leaf(read_pattern),
        "Header": Leaf(_read_header, repeatable=True),
        "ExternalInetAddr": Leaf(read_text),
        "AccessControlAllowOrigin": Leaf(read_pattern),
        "AllowedHost": Leaf(_read_host, repeatable=True),
        "TrustedOrigin": Leaf(_read_origin, repeatable=True),
        "SessionOptions": Leaf(
            read_text, unused="there are no sessions; every request has its own credentials"
        ),
        "SQLTransport": Leaf(read_text),
        "SQLTransportInetAddr": Leaf(read_text, unused=_NO_CONSOLE),
        "Galvanometer": Leaf(read_boolean, default=False, unused=_NO_CONSOLE),
        "Certificate": Leaf(read_text),
        "PrivateKey": Leaf(read_text),
        "Ciphers": Leaf(read_text),
    }
)


def read_admin(
    section: Section | None,
    authentication: ModuleUse | None,
    entitlement: ModuleUse | None,
    transports: tuple[TransportConfig, ...],
    checker: Checker,
) -> AdminConfig | None:
    """Return the interface, None without `InetAddr`. The modules are the resolved ones of `Admin`."""
    if section is None:
        return None
    if section.has("SQLTransport"):
        checker.has_no_effect(section.where("SQLTransport"), _NO_CONSOLE)
    tls = _read_tls(section, checker)
    address = section.first("InetAddr")
    if address is None:
        return None
    host, port = address
    for other in transports:
        if other.port == port != 0 and (other.host in (None, host) or host is None):
            checker.error(
                section.where("InetAddr"),
                f"the transport {shown(other.name)} has the address {other.address}; give each its own",
            )
    return AdminConfig(
        transport=TransportConfig(
            name=ADMIN_TRANSPORT,
            type="tcps" if tls is not None else "tcp",
            protocol="http",
            host=host,
            port=port,
            tls=tls,
            authentication=authentication,
            entitlement=entitlement,
        ),
        challenge=section.first("WWWAuthenticate"),
        anonymous_paths=section.first("AnonymousPaths"),
        headers=tuple(section.all("Header")),
        allowed_origins=section.first("AccessControlAllowOrigin"),
        allowed_hosts=tuple(section.all("AllowedHost")),
        trusted_origins=tuple(section.all("TrustedOrigin")),
        external_address=section.first("ExternalInetAddr"),
    )


def _read_tls(section: Section, checker: Checker) -> TlsConfig | None:
    certificate, private_key = section.first("Certificate"), section.first("PrivateKey")
    if certificate is None and private_key is None:
        if section.nodes.get("Ciphers"):
            checker.error(
                section.where("Ciphers"), "Ciphers has no meaning without Certificate and PrivateKey"
            )
        return None
    for name in ("Certificate", "PrivateKey"):
        if not section.nodes.get(name):
            checker.error(
                section.node, f"{name} is required for HTTPS; add {name} with the path of a PEM file"
            )
    if certificate is None or private_key is None:
        return None
    tls = TlsConfig(
        certificate=Path(certificate),
        private_key=Path(private_key),
        ciphers=section.first("Ciphers"),
        protocols=("TLSv1.2", "TLSv1.3"),
    )
    try_out(tls, section, checker)
    return tls
