"""From text to dataclasses: defaults, and rules between elements."""

from pathlib import Path

import pytest

from amps.config import (
    FreeSpaceThreshold,
    ModuleUse,
    Severity,
    embedded_default,
    load,
    sample_config,
)
from amps.messages import STANDARD_MESSAGE_TYPES
from tests.support.certificates import Authority
from tests.unit.config.loading import TCP, errors_of, read, warnings_of


def test_the_smallest_configuration() -> None:
    config = read("").config
    assert config.name == config.group == "n"
    assert config.transports == ()
    assert config.transaction_log is None
    assert config.logging == ()
    assert tuple(config.message_types) == STANDARD_MESSAGE_TYPES
    assert config.client_max_capacity == 0.5
    assert config.regex_topic_support
    assert config.tuning.transport_workers is None
    assert not config.tuning.topic_index


def test_everything_that_is_built(tmp_path: Path) -> None:
    config = read(
        """
  <Group>g</Group><ProcessName>p</ProcessName><Description>d</Description><Environment>e</Environment>
  <RegexTopicSupport>disabled</RegexTopicSupport>
  <MessageMemoryLimit>2GB</MessageMemoryLimit><ClientMaxCapacity>25%</ClientMaxCapacity>
  <ClientMessageAgeLimit>90s</ClientMessageAgeLimit>
  <Tuning><Transport><Workers>3</Workers></Transport>
    <TransactionLog><TopicIndex><Enabled>true</Enabled></TopicIndex></TransactionLog></Tuning>
  <Transports>
    <Transport><Name>a</Name><Type>tcp</Type><InetAddr>127.0.0.1:9107</InetAddr><MessageType>fix</MessageType>
      <InitialState>disabled</InitialState><MessageMemoryLimit>1kb</MessageMemoryLimit>
      <ClientMaxCapacity>100%</ClientMaxCapacity><ClientMessageAgeLimit>1m</ClientMessageAgeLimit></Transport>
    <Transport><Name>u</Name><Type>amps-unix</Type><Protocol>amps</Protocol>
      <FileName>/tmp/x.sock</FileName><FileMask>0660</FileMask></Transport>
  </Transports>
  <Logging>
    <Target><Protocol>stdout</Protocol><Level>error</Level><Levels>trace,info</Levels></Target>
    <Target><Protocol>gzip</Protocol><Level>debug</Level><FileName> a.gz </FileName>
      <RotationThreshold>1M</RotationThreshold><IncludeErrors>00-0015, 12-1.*</IncludeErrors>
      <ExcludeErrors>
         07-0013
      </ExcludeErrors></Target>
    <Target><Protocol>syslog</Protocol><Level>warning</Level><Ident>me</Ident>
      <Options>LOG_CONS,LOG_PID</Options><Facility>LOG_LOCAL3</Facility></Target>
  </Logging>
  <TransactionLog>
    <JournalDirectory>./j</JournalDirectory><PreallocatedJournalFiles>1</PreallocatedJournalFiles>
    <MinJournalSize>10000001</MinJournalSize><FlushInterval>10ms</FlushInterval><O_DIRECT>disabled</O_DIRECT>
    <Topic><Name>trades</Name><MessageType>json</MessageType></Topic>
    <Topic><Name>^audit/</Name><MessageType>fix</MessageType></Topic>
  </TransactionLog>
"""
    ).config
    assert (config.group, config.process_name, config.description, config.environment) == ("g", "p", "d", "e")
    assert not config.regex_topic_support
    assert config.message_memory_limit_bytes == 2 * 2**30
    assert config.client_max_capacity == 0.25
    assert config.client_message_age_limit_s == 90
    assert config.tuning.transport_workers == 3
    assert config.tuning.topic_index
    tcp, unix = config.transports
    assert (tcp.host, tcp.port, tcp.message_type, tcp.enabled) == ("127.0.0.1", 9107, "fix", False)
    assert (tcp.message_memory_limit_bytes, tcp.client_max_capacity, tcp.client_message_age_limit_s) == (
        1024,
        1,
        60,
    )
    assert (unix.type, unix.file_name, unix.file_mask) == ("amps-unix", Path("/tmp/x.sock"), 0o660)
    console, gzipped, syslog = config.logging
    assert console.levels == {"trace", "info", "error", "critical", "emergency"}
    assert gzipped.levels == {"info", "warning", "error", "critical", "emergency"}
    assert gzipped.rotation_threshold_bytes == 1_000_000
    assert gzipped.file_name == "a.gz"
    assert gzipped.include_ids == ("00-0015", "12-1.*")
    assert gzipped.exclude_ids == ("07-0013",)
    assert (syslog.ident, syslog.facility) == ("me", "LOG_LOCAL3")
    assert syslog.syslog_options == ("LOG_CONS", "LOG_PID")
    log = config.transaction_log
    assert log is not None
    assert log.journal_size_bytes == 10 * 2**20
    assert (log.preallocated_journal_files, log.flush_interval_s, log.o_direct) == (1, 0.01, False)
    assert [(topic.name, topic.message_type) for topic in log.topics] == [
        ("trades", "json"),
        ("^audit/", "fix"),
    ]


VENDOR_SAMPLE = """
  <Transports>
    <Transport><Name>any-tcp</Name><Type>tcp</Type><InetAddr>9007</InetAddr><Protocol>amps</Protocol></Transport>
    <Transport><Name>any-ws</Name><Type>tcp</Type><InetAddr>9008</InetAddr><Protocol>{protocol}</Protocol></Transport>
  </Transports>
  <Admin><InetAddr>8085</InetAddr><FileName>stats.db</FileName><Interval>5s</Interval>
    <SQLTransport>{console}</SQLTransport></Admin>
  {rest}
"""
OWN_WEBSOCKET = (
    "<Protocols><Protocol><Name>websocket-own</Name><Module>websocket</Module>"
    "<AccessControlAllowOrigin>.*</AccessControlAllowOrigin><TrustedAdmin>true</TrustedAdmin></Protocol></Protocols>"
)


@pytest.mark.parametrize(("protocol", "rest"), [("websocket", ""), ("websocket-own", OWN_WEBSOCKET)])
def test_operations_1_6_a_file_made_of_the_documented_sample_starts(protocol: str, rest: str) -> None:
    """operations.md §1.6, §4: the transport that serves only the console's queries is left out."""
    loaded = read(VENDOR_SAMPLE.format(protocol=protocol, console="any-ws", rest=rest))
    assert [transport.name for transport in loaded.config.transports] == ["any-tcp"]
    assert loaded.config.admin is not None
    paths = [finding.path.removeprefix("AMPSConfig/") for finding in loaded.findings]
    expected = ["Admin/FileName", "Admin/Interval", "Admin/SQLTransport", "Transports/Transport[2]/Protocol"]
    if rest:
        expected += [
            f"Protocols/Protocol/{name}" for name in ("AccessControlAllowOrigin", "Module", "TrustedAdmin")
        ]
    assert sorted(paths) == sorted(expected)
    assert {finding.severity for finding in loaded.findings} == {Severity.WARNING}


@pytest.mark.parametrize(("protocol", "rest"), [("websocket", ""), ("websocket-own", OWN_WEBSOCKET)])
def test_a_websocket_transport_of_applications_is_refused(protocol: str, rest: str) -> None:
    (error,) = errors_of(VENDOR_SAMPLE.format(protocol=protocol, console="other", rest=rest))
    assert error == "AMPSConfig/Transports/Transport[2]/Protocol: not supported yet: the protocol websocket"


@pytest.mark.parametrize(
    ("text", "threshold"),
    [
        ("5%", FreeSpaceThreshold(share=0.05)),
        ("20GB", FreeSpaceThreshold(size_bytes=20 * 2**30)),
        ("disabled", None),
    ],
)
def test_the_free_space_to_warn_at(text: str, threshold: FreeSpaceThreshold | None) -> None:
    xml = "<Tuning><TransactionLog><FreeSpaceWarning>{}</FreeSpaceWarning></TransactionLog></Tuning>"
    assert read(xml.format(text)).config.tuning.free_space_warning == threshold
    default = FreeSpaceThreshold(share=0.1)
    assert read("").config.tuning.free_space_warning == default
    assert read("<Tuning><TransactionLog/></Tuning>").config.tuning.free_space_warning == default
    (error,) = errors_of(xml.format("much"))
    assert "20GB or 10%, or disabled" in error


@pytest.mark.parametrize(
    ("element", "value", "attribute", "result"),
    [
        ("JournalSize", "1MB", "journal_size_bytes", 10 * 2**20),
        ("FlushInterval", "2s", "flush_interval_s", 1.0),
        ("FlushInterval", "1ns", "flush_interval_s", 1e-6),
        ("PreallocatedJournalFiles", "0", "preallocated_journal_files", 1),
    ],
)
def test_transaction_log_20_27_out_of_range_is_set_to_the_limit(
    element: str, value: str, attribute: str, result: float
) -> None:
    """transaction_log.md §20 27"""
    loaded = read(
        f"<TransactionLog><JournalDirectory>j</JournalDirectory><{element}>{value}</{element}>"
        "<Topic><Name>a</Name><MessageType>json</MessageType></Topic></TransactionLog>"
    )
    assert getattr(loaded.config.transaction_log, attribute) == result
    (warning,) = warnings_of(loaded)
    assert value in warning


@pytest.mark.parametrize(
    ("written", "size_bytes"),
    [("10MB", 10 * 2**20), ("10M", 10 * 2**20), ("11M", 11 * 2**20), ("1GB", 2**30), ("1G", 954 * 2**20)],
)
def test_transaction_log_20_42_journal_sizes_are_whole_mebibytes(written: str, size_bytes: int) -> None:
    """transaction_log.md §20 42"""
    log = read(
        f"<TransactionLog><JournalDirectory>j</JournalDirectory><JournalSize>{written}</JournalSize></TransactionLog>"
    ).config.transaction_log
    assert log is not None
    assert log.journal_size_bytes == size_bytes


def test_modules_resolve_to_implementations_with_merged_options() -> None:
    config = read(
        "<Modules><Module><Name>simple</Name><Library>./libamps_simple_access_entitlement.so</Library>"
        "<Options><AllowedTopics>^a</AllowedTopics><DeniedTopics>^b</DeniedTopics></Options></Module></Modules>"
        "<Authentication><Module>amps-default-authentication-module</Module>"
        "<Options><AllowSpoofing>true</AllowSpoofing></Options></Authentication>"
        f"<Transports>{TCP.format('<Entitlement><Module>simple</Module><Options><DeniedTopics>^c</DeniedTopics><GrantedPermissions>read</GrantedPermissions><GrantedPermissions>write</GrantedPermissions></Options></Entitlement>')}</Transports>"
    ).config
    assert config.authentication == ModuleUse(
        "amps-default-authentication-module", {"AllowSpoofing": "true"}, "amps-default-authentication-module"
    )
    assert config.entitlement is None
    assert config.transports[0].entitlement == ModuleUse(
        "libamps_simple_access_entitlement",
        {"AllowedTopics": "^a", "DeniedTopics": "^c", "GrantedPermissions": ["read", "write"]},
        "simple",
    )


def test_tls_settings_are_tried_out(tmp_path: Path, authority: Authority) -> None:
    certificate, key, ca = certificate_files(authority)
    tls = (
        read(
            f"<Transports><Transport><Name>t</Name><Type>tcps</Type><InetAddr>1</InetAddr>"
            f"<Certificate>{certificate}</Certificate><PrivateKey>{key}</PrivateKey><CAFile>{ca}</CAFile>"
            "<VerifyClient>True</VerifyClient><SecureSocketProtocols>TLSv1.2 TLSv1.3</SecureSocketProtocols>"
            "<Ciphers>ECDHE+AESGCM</Ciphers></Transport></Transports>"
        )
        .config.transports[0]
        .tls
    )
    assert tls is not None
    assert tls.verify_client
    assert tls.protocols == ("TLSv1.2", "TLSv1.3")
    base = f"<Certificate>{certificate}</Certificate><PrivateKey>{key}</PrivateKey>"
    for inner, text in (
        (f"<Certificate>{tmp_path}/no.pem</Certificate><PrivateKey>{key}</PrivateKey>", "does not exist"),
        (f"<Certificate>{key}</Certificate><PrivateKey>{certificate}</PrivateKey>", "cannot be used"),
        (f"{base}<Ciphers>NONSENSE</Ciphers>", "no such cipher"),
        (f"{base}<VerifyClient>true</VerifyClient>", "VerifyClient needs CAFile or CAPath"),
        (f"{base}<CAFile>{tmp_path}/no.pem</CAFile>", "cannot be used"),
        (f"{base}<CAPath>{tmp_path}/no</CAPath>", "no directory with .pem files"),
        (f"{base}<SecureSocketProtocols>SSLv3</SecureSocketProtocols>", "none of these protocols"),
        (f"{base}<SecureSocketProtocols>TLSv9</SecureSocketProtocols>", "write one of SSLv2"),
    ):
        found = errors_of(f"<Transports>{TCP.format(inner)}</Transports>")
        assert any(text in line for line in found), (inner, found)


def certificate_files(authority: Authority) -> tuple[Path, Path, Path]:
    issued = authority.issue("localhost")
    return issued.certificate, issued.private_key, authority.certificate


def test_the_sample_and_the_embedded_default_are_valid(tmp_path: Path) -> None:
    sample = load("sample.xml", text=sample_config())
    assert sample.config.name == "AMPS-Sample"
    assert sample.config.transports[0].port == 9007
    assert sample.findings == ()
    default = embedded_default(tmp_path / "a & b", port=1234)
    assert default.findings == ()
    (transport,) = default.config.transports
    assert (transport.name, transport.host, transport.port, transport.message_type) == (
        "any-tcp",
        "127.0.0.1",
        1234,
        None,
    )
    log = default.config.transaction_log
    assert log is not None
    assert log.journal_directory == tmp_path / "a & b" / "journal"
    assert {(topic.name, topic.message_type) for topic in log.topics} == {
        (".*", name) for name in STANDARD_MESSAGE_TYPES
    }


def test_settings_of_journals_and_publishers() -> None:
    """transaction_log.md §2"""
    log = read(
        "<TransactionLog><JournalDirectory>j</JournalDirectory><JournalArchiveDirectory>a</JournalArchiveDirectory>"
        "<InactiveClientAckExpiration>1d</InactiveClientAckExpiration>"
        "<CompressedJournalCacheMemoryLimit>64MB</CompressedJournalCacheMemoryLimit></TransactionLog>"
    ).config.transaction_log
    assert log is not None
    assert log.journal_archive_directory == Path("a")
    assert log.inactive_client_ack_expiration_s == 86400
    assert log.journal_cache_bytes == 64 * 2**20
    log = read(
        "<TransactionLog><JournalDirectory>j</JournalDirectory></TransactionLog>"
    ).config.transaction_log
    assert log is not None
    assert log.journal_archive_directory is None
    assert log.inactive_client_ack_expiration_s is None
    assert 0 < log.journal_cache_bytes <= 10 * 2**30


def test_the_archive_is_another_directory() -> None:
    """transaction_log.md §2: an archive in the journal directory is refused, since archiving would have no effect."""
    errors = errors_of(
        "<TransactionLog><JournalDirectory>./j</JournalDirectory>"
        "<JournalArchiveDirectory>j/</JournalArchiveDirectory></TransactionLog>"
    )
    assert any("JournalArchiveDirectory" in line for line in errors), errors
