"""Findings about a configuration: their places, errors with their cure, warnings."""

import re
from pathlib import Path

import pytest

from amps.config import (
    ConfigError,
    Severity,
    load,
)
from tests.unit.config.loading import TCP, errors_of, read, warnings_of


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
            "<SOW><View><Name>v</Name><MessageType>json</MessageType><UnderlyingTopic>a</UnderlyingTopic>"
            "<Projection><Field>/a</Field></Projection><Grouping><Field>/a</Field></Grouping></View></SOW>",
            "views",
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
        ("<SOWStatsInterval>1s</SOWStatsInterval>", "SOWStatsInterval", "no topic /AMPS/SOWStats"),
        ("<SOWStatisticsInterval>1s</SOWStatisticsInterval>", "SOWStatisticsInterval", "no topic /AMPS/SOWStats"),
        ("<Admin><Interval>10s</Interval></Admin>", "Admin/Interval", "neither sampled nor kept"),
        ("<Admin><FileName>stats.db</FileName></Admin>", "Admin/FileName", "neither sampled nor kept"),
        ("<Admin><SQLTransport>ws</SQLTransport></Admin>", "Admin/SQLTransport", "no web console"),
        (
            "<Admin><SQLTransportInetAddr>h:1</SQLTransportInetAddr></Admin>",
            "Admin/SQLTransportInetAddr",
            "no web console",
        ),
        ("<Admin><Galvanometer>enabled</Galvanometer></Admin>", "Admin/Galvanometer", "no web console"),
        ("<Admin><SessionOptions>Secure</SessionOptions></Admin>", "Admin/SessionOptions", "no sessions"),
        (
            "<Authenticator><Module>amps-default-authenticator-module</Module></Authenticator>",
            "Authenticator",
            "no outgoing connections",
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
        "<SOW><ConflatedTopic><Name>a</Name><MessageType>json</MessageType></ConflatedTopic></SOW>"
    )
    assert "not supported yet" in error


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
        "<SOW><View><Name>v</Name></View></SOW>",
    ],
)
def test_a_feature_that_is_not_built_gives_one_finding(inner: str) -> None:
    """Elements missing below a refused feature are not reported."""
    (error,) = errors_of(inner)
    assert "not supported yet: " in error
