"""MessageTypes: settings of the types, and findings with their places (expressions.md §12.2)."""

from pathlib import Path

import pytest

from amps.config import ConfigError, LoadedConfig, Severity, load
from amps.messages import STANDARD_MESSAGE_TYPES, TypeSettings


def read(inner: str) -> LoadedConfig:
    """Read a configuration whose declarations of message types begin in line 4."""
    return load(
        "c.xml",
        text=f"<AMPSConfig>\n<Name>n</Name>\n<MessageTypes>\n{inner}\n</MessageTypes>\n</AMPSConfig>",
    )


def errors_of(inner: str) -> list[tuple[int, str]]:
    """The line and text of each error."""
    with pytest.raises(ConfigError) as refusal:
        read(inner)
    return [
        (finding.line, finding.text)
        for finding in refusal.value.findings
        if finding.severity is Severity.ERROR
    ]


def declared(*elements: str) -> str:
    """A declaration with each element on a line of its own."""
    lines = "\n".join(elements)
    return f"<MessageType>\n{lines}\n</MessageType>"


def test_the_standard_types_exist_without_a_declaration() -> None:
    """expressions.md §12.1"""
    types = load("c.xml", text="<AMPSConfig><Name>n</Name></AMPSConfig>").config.message_types
    assert tuple(types) == STANDARD_MESSAGE_TYPES
    assert all(settings == TypeSettings(name, name) for name, settings in types.items())


@pytest.mark.parametrize(("written", "value"), [("124", 124), ("0x7C", 124), ("0x01", 1), ("1", 1)])
def test_a_separator_is_a_number(written: str, value: int) -> None:
    """expressions.md §15 item 66"""
    config = read(
        declared("<Name>pipe</Name>", "<Module>nvfix</Module>", f"<FieldSeparator>{written}</FieldSeparator>")
    ).config
    assert tuple(config.message_types) == (*STANDARD_MESSAGE_TYPES, "pipe")
    assert config.message_types["pipe"] == TypeSettings("pipe", "nvfix", field_separator=value)
    assert config.message_types["nvfix"].field_separator == 1


@pytest.mark.parametrize("written", ["|", "256", "0x100", "-1", "1.0", "0x", "\u0661"])
def test_a_separator_that_is_no_byte_is_refused(written: str) -> None:
    ((line, text),) = errors_of(declared("<Name>fix</Name>", f"<FieldSeparator>{written}</FieldSeparator>"))
    assert line == 6
    assert "write a number from 0 to 255" in text


def test_a_standard_type_can_be_configured() -> None:
    """A declaration without Module uses the module of its own name."""
    types = read(
        declared("<Name>json</Name>", "<EarlyTerminationOptimization>false</EarlyTerminationOptimization>")
    ).config.message_types
    assert tuple(types) == STANDARD_MESSAGE_TYPES
    assert types["json"] == TypeSettings("json", "json", early_termination=False)


def test_transports_and_logged_topics_know_declared_types() -> None:
    loaded = load(
        "c.xml",
        text="<AMPSConfig><Name>n</Name><MessageTypes><MessageType><Name>raw</Name><Module>binary</Module>"
        "</MessageType></MessageTypes><Transports><Transport><Name>t</Name><Type>tcp</Type><InetAddr>1</InetAddr>"
        "<MessageType>raw</MessageType></Transport></Transports><TransactionLog><JournalDirectory>j</JournalDirectory>"
        "<Topic><Name>a</Name><MessageType>raw</MessageType></Topic></TransactionLog></AMPSConfig>",
    )
    assert loaded.config.transports[0].message_type == "raw"
    assert loaded.config.transaction_log is not None
    assert loaded.config.transaction_log.topics[0].message_type == "raw"


def test_the_parts_of_a_composite_keep_their_order() -> None:
    types = read(
        declared("<Name>raw</Name>", "<Module>binary</Module>")
        + declared(
            "<Name>photo</Name>",
            "<Module>composite-local</Module>",
            "<MessageType>json</MessageType>",
            "<MessageType>raw</MessageType>",
            "<MessageType>json</MessageType>",
        )
    ).config.message_types
    assert types["photo"].parts == ("json", "raw", "json")


def test_a_part_must_be_known_before() -> None:
    found = errors_of(
        declared(
            "<Name>both</Name>",
            "<Module>composite-local</Module>",
            "<MessageType>json</MessageType>",
            "<MessageType>raw</MessageType>",
        )
        + declared("<Name>raw</Name>", "<Module>binary</Module>")
    )
    assert [line for line, _ in found] == [8]
    assert found[0][1].startswith("no message type 'raw' is known here; write one of json, ")
    assert found[0][1].endswith("or declare it before")


def test_the_elements_of_protobuf_and_struct(tmp_path: Path) -> None:
    proto = tmp_path / "m.proto"
    proto.write_text('syntax = "proto3"; package p; message M { int32 id = 1; }')
    types = read(
        declared(
            "<Name>order</Name>",
            "<Module>protobuf</Module>",
            f"<ProtoPath>here;{tmp_path}</ProtoPath>",
            f"<ProtoPath>;{tmp_path}</ProtoPath>",
            f"<ProtoPath>{tmp_path}</ProtoPath>",
            "<ProtoFile>here/m.proto</ProtoFile>",
            "<Type>p.M</Type>",
        )
        + declared(
            "<Name>tick</Name>", "<Module>struct</Module>", "<Field>/id = i</Field>", "<Field>/p = d</Field>"
        )
    ).config.message_types
    assert types["order"] == TypeSettings(
        "order",
        "protobuf",
        proto_paths=(("here", tmp_path), ("", tmp_path), ("", tmp_path)),
        proto_file="here/m.proto",
        proto_type="p.M",
    )
    assert types["tick"].fields == ("/id = i", "/p = d")


@pytest.mark.parametrize(
    ("declaration", "line", "text"),
    [
        (declared("<Name>own</Name>"), 4, "Module is missing; write one of json, "),
        (declared("<Name>own</Name>", "<Module>jsn</Module>"), 6, "no message type module is called 'jsn'"),
        (
            declared("<Name>json</Name>", "<FieldSeparator>1</FieldSeparator>"),
            6,
            "FieldSeparator has no meaning for the module json; remove it",
        ),
        (declared("<Name>c</Name>", "<Module>composite-global</Module>"), 4, "MessageType is required for"),
        (declared("<Name>s</Name>", "<Module>struct</Module>"), 4, "Field is required for the module struct"),
        (
            declared("<Name>json</Name>") + "\n" + declared("<Name>json</Name>"),
            8,
            "the message type 'json' is declared twice, first at c.xml:4; keep one of them",
        ),
        (
            declared(
                "<Name>json</Name>", "<Module>composite-local</Module>", "<MessageType>nvfix</MessageType>"
            ),
            5,
            "no composite can be called json; choose another name",
        ),
        (
            declared("<Name>json</Name>", "<AMPSVersionCompliance>3</AMPSVersionCompliance>"),
            6,
            "write one of 2, 4, 5",
        ),
    ],
)
def test_invalid_declarations_are_errors_with_their_line(declaration: str, line: int, text: str) -> None:
    ((found_line, found),) = errors_of(declaration)
    assert found_line == line
    assert text in found


def test_missing_elements_are_reported_one_by_one() -> None:
    found = errors_of(declared("<Name>p</Name>", "<Module>protobuf</Module>"))
    assert [text.split()[0] for _, text in found] == ["ProtoPath", "ProtoFile", "Type"]


def test_a_standard_name_for_another_module_gives_a_warning() -> None:
    loaded = read(declared("<Name>fix</Name>", "<Module>nvfix</Module>"))
    (warning,) = (finding for finding in loaded.findings if finding.severity is Severity.WARNING)
    assert (warning.line, warning.path) == (6, "AMPSConfig/MessageTypes/MessageType/Module")
    assert "give the type another name" in warning.text
    assert loaded.config.message_types["fix"].module == "nvfix"
