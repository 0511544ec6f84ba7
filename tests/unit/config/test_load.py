"""From text to dataclasses: defaults, rules between elements, findings with their places."""

import re
from pathlib import Path

import pytest

from amps.config import (
    ConfigError,
    FreeSpaceThreshold,
    LoadedConfig,
    ModuleUse,
    Severity,
    embedded_default,
    load,
    sample_config,
)
from amps.messages import STANDARD_MESSAGE_TYPES
from tests.support.certificates import Authority

TCP = "<Transport><Name>t</Name><Type>tcp</Type><InetAddr>9007</InetAddr>{}</Transport>"


def read(inner: str, name: str = "<Name>n</Name>") -> LoadedConfig:
    return load("c.xml", text=f"<AMPSConfig>\n{name}\n{inner}\n</AMPSConfig>")


def errors_of(inner: str, name: str = "<Name>n</Name>") -> list[str]:
    """The error findings, without file and line."""
    with pytest.raises(ConfigError) as refusal:
        read(inner, name)
    return [
        f"{finding.path}: {finding.text}"
        for finding in refusal.value.findings
        if finding.severity is Severity.ERROR
    ]


def warnings_of(loaded: LoadedConfig) -> list[str]:
    return [finding.text for finding in loaded.findings if finding.severity is Severity.WARNING]


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


def test_findings_name_file_line_and_path_across_includes(tmp_path: Path) -> None:
    (tmp_path / "part.xml").write_text(
        "<?xml version='1.0'?>\n<Transport>\n  <Name>t</Name>\n  <Type>tcp</Type>\n  <Port>1</Port>\n"
        "</Transport>\n"
    )
    main = tmp_path / "main.xml"
    main.write_text(
        "<AMPSConfig>\n  <Name>n</Name>\n  <Transports>\n    <Include>part.xml</Include> <!-- here -->\n"
        "  </Transports>\n  <Loging/>\n</AMPSConfig>\n"
    )
    with pytest.raises(ConfigError) as refusal:
        load(main)
    lines = [str(finding) for finding in refusal.value.findings]
    assert any(
        line.startswith(f"{main}:6: error: AMPSConfig/Loging: ") and "Logging" in line for line in lines
    )
    assert any(
        line.startswith(f"{tmp_path / 'part.xml'}:5: error: AMPSConfig/Transports/Transport/Port: ")
        for line in lines
    )
    assert any(
        line.startswith(f"{tmp_path / 'part.xml'}:2: error: ") and "InetAddr" in line for line in lines
    )


@pytest.mark.parametrize(
    ("inner", "path", "text"),
    [
        ("<Name>m</Name>", "AMPSConfig/Name[2]", "given twice, first at c.xml:2"),
        ("<logging/>", "AMPSConfig/logging", "did you mean Logging?"),
        ("<MessageMemoryLimit/>", "AMPSConfig/MessageMemoryLimit", "empty"),
        ("<MessageMemoryLimit>lots</MessageMemoryLimit>", "AMPSConfig/MessageMemoryLimit", "kb mb gb tb"),
        (
            "<MessageMemoryLimit x='1'>1GB</MessageMemoryLimit>",
            "AMPSConfig/MessageMemoryLimit",
            "attribute x",
        ),
        (
            "<MessageMemoryLimit><a/></MessageMemoryLimit>",
            "AMPSConfig/MessageMemoryLimit",
            "unexpected element a",
        ),
        ("stray", "AMPSConfig", "unexpected text 'stray'"),
        (
            "<SlowClientDisconnect>true</SlowClientDisconnect>",
            "AMPSConfig/SlowClientDisconnect",
            "MessageMemoryLimit",
        ),
        (
            "<Transports><Transport/></Transports>",
            "AMPSConfig/Transports/Transport/Name",
            "required element Name",
        ),
        (
            f"<Transports>{TCP.format('')}{TCP.format('')}</Transports>",
            "AMPSConfig/Transports/Transport[2]/Name",
            "two transports are called 't'",
        ),
        (
            f"<Transports>{TCP.format('')}{TCP.format('').replace('<Name>t', '<Name>u')}</Transports>",
            "AMPSConfig/Transports/Transport[2]/InetAddr",
            "has the address 9007",
        ),
        (
            f"<Transports>{TCP.format('<MessageType>jsn</MessageType>')}</Transports>",
            "AMPSConfig/Transports/Transport/MessageType",
            "unknown message type 'jsn'",
        ),
        (
            f"<Transports>{TCP.format('<Protocol>smtp</Protocol>')}</Transports>",
            "AMPSConfig/Transports/Transport/Protocol",
            "unknown protocol 'smtp'",
        ),
        (
            f"<Transports>{TCP.format('<FileMask>0600</FileMask>')}</Transports>",
            "AMPSConfig/Transports/Transport/FileMask",
            "no meaning for the type tcp",
        ),
        (
            f"<Transports>{TCP.format('<VerifyClient>true</VerifyClient>')}</Transports>",
            "AMPSConfig/Transports/Transport/VerifyClient",
            "no meaning without TLS",
        ),
        (
            f"<Transports>{TCP.format('<Certificate>c.pem</Certificate>')}</Transports>",
            "AMPSConfig/Transports/Transport",
            "PrivateKey is required for TLS",
        ),
        (
            "<Transports><Transport><Name>u</Name><Type>amps-unix</Type></Transport></Transports>",
            "AMPSConfig/Transports/Transport",
            "FileName is required",
        ),
        (
            "<Transports><Transport><Name>u</Name><Type>amps-unix</Type>"
            f"<FileName>/{'x' * 120}</FileName></Transport></Transports>",
            "AMPSConfig/Transports/Transport/FileName",
            "107 bytes",
        ),
        ("<TransactionLog/>", "AMPSConfig/TransactionLog/JournalDirectory", "required element"),
        (
            "<TransactionLog><JournalDirectory>j</JournalDirectory><Topic><Name>(</Name>"
            "<MessageType>json</MessageType></Topic></TransactionLog>",
            "AMPSConfig/TransactionLog/Topic/Name",
            "not a regular expression",
        ),
        (
            "<Logging><Target><Level>info</Level></Target></Logging>",
            "AMPSConfig/Logging/Target/Protocol",
            "required",
        ),
        (
            "<Logging><Target><Protocol>stdout</Protocol><Level>loud</Level></Target></Logging>",
            "AMPSConfig/Logging/Target/Level",
            "write one of developer, trace",
        ),
        (
            "<Logging><Target><Protocol>stdout</Protocol><IncludeErrors>(</IncludeErrors></Target></Logging>",
            "AMPSConfig/Logging/Target/IncludeErrors",
            "regular expression",
        ),
        (
            "<Authentication><Module>mine</Module></Authentication>",
            "AMPSConfig/Authentication/Module",
            "amps-default-authentication-module",
        ),
        (
            "<Authentication><Module>amps-default-entitlement-module</Module></Authentication>",
            "AMPSConfig/Authentication/Module",
            "no authentication module",
        ),
        (
            "<Authentication><Module>amps-default-authentication-module</Module>"
            "<Options><RequireLogon>maybe</RequireLogon></Options></Authentication>",
            "AMPSConfig/Authentication/Options/RequireLogon",
            "neither true nor false",
        ),
        (
            "<Authentication><Module>amps-default-authentication-module</Module>"
            "<Options><RequireLogin>true</RequireLogin></Options></Authentication>",
            "AMPSConfig/Authentication/Options/RequireLogin",
            "unknown option RequireLogin",
        ),
        (
            "<Modules><Module><Name>m</Name><Library>libmine.so</Library></Module></Modules>",
            "AMPSConfig/Modules/Module/Library",
            "no module is built in",
        ),
        (
            "<Modules><Module><Name>m</Name><Library>libamps_simple_access_entitlement.so</Library></Module></Modules>"
            "<Entitlement><Module>m</Module></Entitlement>",
            "AMPSConfig/Entitlement/Module",
            "AllowedTopics or DeniedTopics",
        ),
        (
            "<Tuning><Transport><Workers>0</Workers></Transport></Tuning>",
            "AMPSConfig/Tuning/Transport/Workers",
            "minimum",
        ),
        (
            "<Actions><Action><On><Module>amps-action-on-whim</Module></On></Action></Actions>",
            "AMPSConfig/Actions/Action/On/Module",
            "'amps-action-on-whim' is no event module",
        ),
        (
            "<RequiredMinimumVersion>99.0</RequiredMinimumVersion>",
            "AMPSConfig/RequiredMinimumVersion",
            "5.3.4",
        ),
    ],
)
def test_errors_name_the_fault_and_the_cure(inner: str, path: str, text: str) -> None:
    assert any(line.startswith(f"{path}: ") and text in line for line in errors_of(inner)), errors_of(inner)


@pytest.mark.parametrize(
    ("inner", "feature"),
    [
        (
            "<SOW><Topic><Name>a</Name><MessageType>json</MessageType><Key>/k</Key></Topic></SOW>",
            "SOW topics",
        ),
        (
            "<SOW><TopicDefinition><Topic>a</Topic><MessageType>json</MessageType></TopicDefinition></SOW>",
            "SOW topics",
        ),
        (
            "<SOW><TopicMetaData><Topic>a</Topic><MessageType>fix</MessageType><FileName>a.sow</FileName>"
            "<Key>/1</Key><RecordSize>512</RecordSize></TopicMetaData></SOW>",
            "SOW topics",
        ),
        (
            "<SOW><View><Name>v</Name><MessageType>json</MessageType><UnderlyingTopic>a</UnderlyingTopic>"
            "<Projection><Field>/a</Field></Projection><Grouping><Field>/a</Field></Grouping></View></SOW>",
            "views",
        ),
        (
            "<Replication><Destination><Name>d</Name><SyncType>sync</SyncType>"
            "<Topic><Name>t</Name><MessageType>json</MessageType></Topic>"
            "<Transport><Type>amps-replication</Type><InetAddr>h:1</InetAddr></Transport></Destination></Replication>",
            "replication",
        ),
        (
            "<Actions><Action><On><Module>amps-action-on-startup</Module></On>"
            "<Do><Module>amps-action-do-compact-sow</Module></Do></Action></Actions>",
            "SOW topics",
        ),
        (f"<Transports>{TCP.format('<Protocol>websocket</Protocol>')}</Transports>", "websocket"),
        (f"<Transports>{TCP.format('<Protocol>fix</Protocol>')}</Transports>", "protocol fix"),
        (
            f"<Transports>{TCP.format('<TransportFilter><Module>m</Module></TransportFilter>')}</Transports>",
            "transport filters",
        ),
        (
            "<Transports><Transport><Name>r</Name><Type>amps-replication</Type><InetAddr>1</InetAddr></Transport></Transports>",
            "incoming replication",
        ),
        (
            "<MessageTypes><MessageType><Name>json</Name><Options><A/></Options></MessageType></MessageTypes>",
            "custom message types",
        ),
        (
            "<Modules><Module><Name>m</Name><Library>/opt/lib/libamps_http_entitlement.so</Library></Module></Modules>",
            "RESTful",
        ),
    ],
)
def test_a_feature_that_is_not_built_is_refused_with_one_error(inner: str, feature: str) -> None:
    found = errors_of(inner)
    assert len(found) == 1, found
    assert ": not supported yet: " in found[0]
    assert feature in found[0]


@pytest.mark.parametrize(
    ("inner", "path", "missing"),
    [
        ("<MessageDiskLimit>1GB</MessageDiskLimit>", "MessageDiskLimit", "not kept on disk"),
        ("<MessageDiskPath>/tmp</MessageDiskPath>", "MessageDiskPath", "not kept on disk"),
        ("<MiniDumpDirectory>/tmp</MiniDumpDirectory>", "MiniDumpDirectory", "no minidumps"),
        ("<MiniDumpFileMask>0600</MiniDumpFileMask>", "MiniDumpFileMask", "no minidumps"),
        ("<SOWStatsInterval>1s</SOWStatsInterval>", "SOWStatsInterval", "no SOW topics"),
        ("<SOWStatisticsInterval>1s</SOWStatisticsInterval>", "SOWStatisticsInterval", "no SOW topics"),
        ("<Admin><Interval>10s</Interval></Admin>", "Admin/Interval", "neither sampled nor kept"),
        ("<Admin><FileName>stats.db</FileName></Admin>", "Admin/FileName", "neither sampled nor kept"),
        ("<Admin><SQLTransport>ws</SQLTransport></Admin>", "Admin/SQLTransport", "no web console"),
        (
            "<Admin><SQLTransportInetAddr>h:1</SQLTransportInetAddr></Admin>",
            "Admin/SQLTransportInetAddr",
            "no web console",
        ),
        ("<Admin><Galvanometer>enabled</Galvanometer></Admin>", "Admin/Galvanometer", "no web console"),
        (
            "<Admin><ExternalInetAddr>h:1</ExternalInetAddr></Admin>",
            "Admin/ExternalInetAddr",
            "no replication",
        ),
        ("<Admin><SessionOptions>Secure</SessionOptions></Admin>", "Admin/SessionOptions", "no sessions"),
        (
            "<Authenticator><Module>amps-default-authenticator-module</Module></Authenticator>",
            "Authenticator",
            "no outgoing connections",
        ),
        (
            "<Tuning><Replication><MinSyncDestinations>1</MinSyncDestinations></Replication></Tuning>",
            "Tuning/Replication/MinSyncDestinations",
            "no replication",
        ),
        (
            "<Tuning><Admin><Statistics><Indexing><Enabled>true</Enabled></Indexing></Statistics></Admin></Tuning>",
            "Tuning/Admin/Statistics/Indexing/Enabled",
            "no statistics database",
        ),
        ("<Tuning><NUMA><Enabled>true</Enabled></NUMA></Tuning>", "Tuning/NUMA/Enabled", "not bound"),
        (
            f"<Transports>{TCP.format('<PerMessageDeflate>enabled</PerMessageDeflate>')}</Transports>",
            "Transports/Transport/PerMessageDeflate",
            "no websocket protocol",
        ),
        (
            f"<Transports>{TCP.format('<MessageDiskPath>/tmp</MessageDiskPath>')}</Transports>",
            "Transports/Transport/MessageDiskPath",
            "not kept on disk",
        ),
        *(
            (
                f"<Actions><Action><On><Module>amps-action-on-startup</Module></On>"
                f"<Do><Module>{module}</Module>{options}</Do></Action></Actions>",
                "Actions/Action/Do/Module",
                missing,
            )
            for module, options, missing in (
                (
                    "amps-action-do-truncate-statistics",
                    "<Options><Age>7d</Age></Options>",
                    "no statistics database",
                ),
                ("amps-action-do-vacuum-statistics", "", "no statistics database"),
                ("amps-action-do-minidump", "", "no minidumps"),
            )
        ),
        *(
            (
                f"<Actions><Action><On><Module>amps-action-on-{event}</Module></On>"
                "<Do><Module>amps-action-do-nothing</Module></Do></Action></Actions>",
                "Actions/Action/On/Module",
                missing,
            )
            for event, missing in (
                ("minidump", "no minidumps"),
                ("offline-start", "not kept on disk"),
                ("offline-stop", "not kept on disk"),
            )
        ),
    ],
)
def test_an_inessential_element_is_accepted_with_one_warning(inner: str, path: str, missing: str) -> None:
    (finding,) = read(inner).findings
    assert (finding.severity, finding.path) == (Severity.WARNING, f"AMPSConfig/{path}")
    assert finding.text.startswith("has no effect: ")
    assert missing in finding.text


@pytest.mark.parametrize(
    "inner",
    [
        "<Admin><FileName>:memory:</FileName></Admin>",
        "<Admin><Galvanometer>disabled</Galvanometer></Admin>",
        "<Tuning><NUMA><Enabled>disabled</Enabled></NUMA></Tuning>",
        "<MiniDumpDirectory>Disabled</MiniDumpDirectory>",
        "<Tuning><Queue><QueueDeliveryFlushInterval>250us</QueueDeliveryFlushInterval></Queue></Tuning>",
    ],
)
def test_a_setting_that_equals_the_behaviour_gives_no_warning(inner: str) -> None:
    assert read(inner).findings == ()


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
    "inner",
    [
        "<SOW/>",
        "<Replication></Replication>",
        "<Actions/>",
        "<MiniDumpDirectory>disabled</MiniDumpDirectory>",
        "<Tuning><NUMA><Enabled>false</Enabled></NUMA></Tuning>",
        "<Tuning><TransactionLog><TopicIndex><Enabled>false</Enabled></TopicIndex></TransactionLog></Tuning>",
        "<Externals><SSL><Library>libssl.so</Library></SSL></Externals>",
        "<MessageTypes><MessageType><Name>json</Name><Module>json</Module></MessageType></MessageTypes>",
        "<RequiredMinimumVersion>5.0</RequiredMinimumVersion>",
        "<RequiredMinimumVersion>5.3.4.78</RequiredMinimumVersion>",
        f"<Transports>{TCP.format('<Protocol>json</Protocol><ReuseAddr>true</ReuseAddr>')}</Transports>",
    ],
)
def test_elements_without_effect_are_accepted(inner: str) -> None:
    assert warnings_of(read(inner)) == []


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


def test_validation_disabled_turns_shape_errors_into_warnings() -> None:
    loaded = read(
        "<ConfigValidation>disabled</ConfigValidation><Whatever/><Group>a</Group><Group>b</Group>"
        "<ClientMaxCapacity>most</ClientMaxCapacity><Transports><Transport><Name>t</Name></Transport></Transports>",
        name="",
    )
    assert loaded.config.name == "AMPS"
    assert loaded.config.group == "a"
    assert loaded.config.client_max_capacity == 0.5
    assert loaded.config.transports == ()
    assert len(warnings_of(loaded)) == 5


def test_validation_disabled_still_refuses_features_that_are_not_built() -> None:
    (error,) = errors_of(
        "<ConfigValidation>disabled</ConfigValidation>"
        "<Transports><Transport><Name>r</Name><Type>amps-replication</Type><InetAddr>1</InetAddr></Transport></Transports>"
    )
    assert "not supported yet" in error


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


def test_deep_nesting_is_refused() -> None:
    deep = "<Description>" + "<a>" * 100 + "</a>" * 100 + "</Description>"
    assert any("64 levels" in line for line in errors_of(deep))


def test_a_finding_is_one_line() -> None:
    with pytest.raises(ConfigError) as refusal:
        read("<MessageMemoryLimit>a\nb</MessageMemoryLimit>")
    assert re.fullmatch(r"c\.xml:3: error: AMPSConfig/MessageMemoryLimit: .*", str(refusal.value))


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        (
            "<MessageMemoryLimit>0</MessageMemoryLimit>",
            "'0' is below the minimum of 1 byte; write 1 byte or more",
        ),
        (
            "<Tuning><Transport><Workers>64</Workers></Transport></Tuning>",
            "'64' is above the maximum of 63; write 63 or less",
        ),
    ],
)
def test_an_error_about_a_value_out_of_bounds_names_the_bound(inner: str, text: str) -> None:
    (error,) = errors_of(inner)
    assert error.endswith(f": {text}")


@pytest.mark.parametrize(
    "inner",
    [
        "<Replication><Destination><Name>d</Name></Destination></Replication>",
        "<SOW><View><Name>v</Name></View></SOW>",
    ],
)
def test_a_feature_that_is_not_built_gives_one_finding(inner: str) -> None:
    """Elements missing below a refused feature are not reported."""
    (error,) = errors_of(inner)
    assert "not supported yet: " in error


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
