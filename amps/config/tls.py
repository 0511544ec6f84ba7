"""TLS settings of a transport, and their test while the configuration is read.

A certificate that cannot be loaded would stop the server at its start. `--verify-config` must report it before,
so the check builds the same context as the transport.
"""

import ssl
from pathlib import Path

from amps.config.findings import Severity
from amps.config.model import TlsConfig
from amps.config.model_replication import ClientTls
from amps.config.schema import Checker, Section

_VERSIONS = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
SECURE_REPLICATION = "amps-replication-secure"
_ELEMENTS = ("Ciphers", "SecureSocketProtocols", "VerifyClient", "CAFile", "CAPath")


def read_tls(transport: Section, checker: Checker) -> TlsConfig | None:
    """Return the TLS settings: for the secure types, and for `tcp` with both a certificate and a private key."""
    certificate, private_key = transport.first("Certificate"), transport.first("PrivateKey")
    kind = transport.first("Type")
    if kind in ("tcps", SECURE_REPLICATION) or (kind == "tcp" and (certificate or private_key)):
        for name in ("Certificate", "PrivateKey"):
            if transport.first(name) is None and not transport.nodes.get(name):
                checker.error(
                    transport.node, f"{name} is required for TLS; add {name} with the path of a PEM file"
                )
        if certificate is None or private_key is None:
            return None
    else:
        _refuse_tls(transport, SECURE_REPLICATION if kind == "amps-replication" else "tcps", checker)
        return None
    ca_file, ca_path = transport.first("CAFile"), transport.first("CAPath")
    tls = TlsConfig(
        certificate=Path(certificate),
        private_key=Path(private_key),
        ciphers=transport.first("Ciphers"),
        protocols=tuple(transport.first("SecureSocketProtocols")),
        verify_client=transport.first("VerifyClient"),
        ca_file=Path(ca_file) if ca_file else None,
        ca_path=Path(ca_path) if ca_path else None,
    )
    try_out(tls, transport, checker)
    return tls


def read_client_tls(transport: Section, checker: Checker) -> ClientTls | None:
    """Return the TLS settings of an outgoing connection; None without TLS. It needs no certificate of its own,
    unless the other side verifies clients (replication.md 25.50).
    """
    if transport.first("Type") != SECURE_REPLICATION:
        _refuse_tls(transport, SECURE_REPLICATION, checker)
        return None
    for one, other in (("Certificate", "PrivateKey"), ("PrivateKey", "Certificate")):
        if transport.nodes.get(one) and not transport.nodes.get(other):
            checker.error(
                transport.where(one),
                f"{one} needs {other}; add {other} with the path of a PEM file, or remove {one}",
            )
    paths = {
        name: Path(text) if (text := transport.first(name)) else None
        for name in ("Certificate", "PrivateKey", "CAFile", "CAPath")
    }
    tls = ClientTls(
        certificate=paths["Certificate"],
        private_key=paths["PrivateKey"],
        ciphers=transport.first("Ciphers"),
        protocols=tuple(transport.first("SecureSocketProtocols")),
        verify=transport.first("VerifyClient"),
        ca_file=paths["CAFile"],
        ca_path=paths["CAPath"],
    )
    try_out(tls, transport, checker)
    return tls


def _refuse_tls(transport: Section, secure_type: str, checker: Checker) -> None:
    for name in ("Certificate", "PrivateKey", *_ELEMENTS):
        if transport.nodes.get(name):
            checker.error(
                transport.where(name),
                f"{name} has no meaning without TLS; give Type {secure_type}, or remove {name}",
            )


def try_out(tls: TlsConfig | ClientTls, transport: Section, checker: Checker) -> None:
    """Load the files of the settings, and report errors."""
    context = ssl.SSLContext(
        ssl.PROTOCOL_TLS_CLIENT if isinstance(tls, ClientTls) else ssl.PROTOCOL_TLS_SERVER
    )
    if tls.certificate is not None and tls.private_key is not None:
        _load_certificate(tls.certificate, tls.private_key, context, transport, checker)
    if tls.ciphers is not None:
        try:
            context.set_ciphers(tls.ciphers)
        except ssl.SSLError as error:
            checker.error(
                transport.where("Ciphers"),
                f"OpenSSL knows no such cipher: {_reason(error)}; see openssl ciphers",
            )
    _check_authorities(tls, context, transport, checker)
    _check_protocols(tls, transport, checker)


def _load_certificate(
    certificate: Path, private_key: Path, context: ssl.SSLContext, transport: Section, checker: Checker
) -> None:

    def refuse_password() -> str:
        raise ValueError(
            "the private key is protected by a password; store it without one, readable by the server only"
        )

    try:
        context.load_cert_chain(certificate, private_key, password=refuse_password)
    except (OSError, ValueError) as error:
        node = transport.where("Certificate")
        missing = [path for path in (certificate, private_key) if not path.is_file()]
        if missing:
            checker.error(node, f"{missing[0]} does not exist or is no file; write the path of a PEM file")
        else:
            checker.error(node, f"the certificate and its private key cannot be used: {_reason(error)}")


def _check_authorities(
    tls: TlsConfig | ClientTls, context: ssl.SSLContext, transport: Section, checker: Checker
) -> None:
    verifies = tls.verify if isinstance(tls, ClientTls) else tls.verify_client
    if verifies and tls.ca_file is None and tls.ca_path is None:
        signed = "the other instance's certificate" if isinstance(tls, ClientTls) else "clients"
        checker.error(
            transport.where("VerifyClient"),
            f"VerifyClient needs CAFile or CAPath; name the certificates that sign {signed}",
        )
    if tls.ca_file is not None:
        try:
            context.load_verify_locations(cafile=str(tls.ca_file))
        except (OSError, ValueError) as error:
            checker.error(
                transport.where("CAFile"),
                f"{tls.ca_file} cannot be used: {_reason(error)}; write the path of a PEM file",
            )
    if tls.ca_path is not None and (not tls.ca_path.is_dir() or not any(tls.ca_path.glob("*.pem"))):
        checker.error(
            transport.where("CAPath"), f"{tls.ca_path} is no directory with .pem files; write the path of one"
        )


def _check_protocols(tls: TlsConfig | ClientTls, transport: Section, checker: Checker) -> None:
    node = transport.where("SecureSocketProtocols")
    known = sorted(_VERSIONS[name] for name in tls.protocols if name in _VERSIONS)
    if not known:
        checker.error(node, "none of these protocols exists in the local OpenSSL; write TLSv1.2 TLSv1.3")
    old = [name for name in tls.protocols if name.startswith("SSL")]
    if old:
        checker.note(
            node,
            Severity.WARNING,
            f"{' '.join(old)} is insecure and not offered by the local OpenSSL; it is left out",
        )


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
