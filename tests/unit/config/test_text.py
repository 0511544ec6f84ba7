"""The text stage: variables, includes, protection against cycles, origins, encodings."""

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amps.config import ConfigError, dump, load, sample_config
from amps.config.findings import Findings
from amps.config.text import expand
from amps.version import VERSION


def write(directory: Path, **files: str) -> Path:
    """Write `name.xml` for each keyword and return the path of `main.xml`."""
    for name, text in files.items():
        (directory / f"{name}.xml").write_text(text)
    return directory / "main.xml"


def refusal_of(path: Path, **defines: str) -> str:
    with pytest.raises(ConfigError) as refusal:
        load(path, defines)
    return str(refusal.value)


def test_variables_come_from_definitions_then_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = write(tmp_path, main="<AMPSConfig><Name>${A}-${B}</Name></AMPSConfig>")
    monkeypatch.setenv("A", "environment")
    monkeypatch.setenv("B", "environment")
    assert load(main, {"A": "defined"}).config.name == "defined-environment"


def test_provided_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main = write(
        tmp_path,
        main="<AMPSConfig><Name>n</Name><Description>${AMPS_CONFIG_DIRECTORY} ${AMPS_CONFIG_PATH} "
        "${AMPS_VERSION}</Description></AMPSConfig>",
    )
    monkeypatch.chdir(tmp_path.parent)
    relative = Path(tmp_path.name) / "main.xml"
    assert load(relative).config.description == f"{tmp_path} {main} {VERSION}"


def test_an_undefined_variable_is_named_with_its_place(tmp_path: Path) -> None:
    main = write(tmp_path, main="<AMPSConfig>\n<Name>${NO_SUCH_THING}</Name>\n</AMPSConfig>")
    text = refusal_of(main)
    assert text.startswith(f"{main}:2: error: ")
    assert "${NO_SUCH_THING}" in text
    assert "-DNO_SUCH_THING=" in text


def test_an_undefined_variable_in_a_comment_is_ignored(tmp_path: Path) -> None:
    main = write(tmp_path, main="<AMPSConfig><!-- set ${NO_SUCH_THING} --><Name>n</Name></AMPSConfig>")
    assert "${NO_SUCH_THING}" in load(main).expanded_text


def test_lines_keep_their_numbers_after_a_value_of_several_lines(tmp_path: Path) -> None:
    main = write(tmp_path, main="<AMPSConfig>\n<Name>${N}</Name>\n<Oops/>\n</AMPSConfig>")
    assert refusal_of(main, N="a\n\n").startswith(f"{main}:3: error: AMPSConfig/Oops: ")


def test_includes_nest_and_are_found_beside_the_including_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    main = write(tmp_path, main="<AMPSConfig><Name>n</Name><Include>sub/a.xml</Include></AMPSConfig>")
    write(tmp_path / "sub", a="<Logging>\n <Include>b.xml</Include>\n <Include> b.xml </Include>\n</Logging>")
    write(
        tmp_path / "sub",
        b="<?xml version='1.0' encoding='UTF-8'?>\n<Target>\n<Protocol>stdout</Protocol></Target>",
    )
    monkeypatch.chdir("/")
    assert len(load(main).config.logging) == 2


def test_an_include_may_be_relative_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf").mkdir()
    main = write(tmp_path / "conf", main="<AMPSConfig><Include>name.xml</Include></AMPSConfig>")
    write(tmp_path, name="<Name>n</Name>")
    monkeypatch.chdir(tmp_path)
    assert load(main).config.name == "n"


def test_variables_work_in_includes_and_their_paths(tmp_path: Path) -> None:
    main = write(
        tmp_path,
        main="<AMPSConfig><Include>${FILE}.xml</Include></AMPSConfig>",
        a="<Name>${NAME}</Name>",
    )
    assert load(main, {"FILE": "a", "NAME": "inner"}).config.name == "inner"


def test_includes_in_comments_and_data_sections_are_text(tmp_path: Path) -> None:
    main = write(
        tmp_path,
        main="<AMPSConfig><!-- <Include>no.xml</Include> --><Name>n</Name>"
        "<Description><![CDATA[<Include>no.xml</Include>]]></Description></AMPSConfig>",
    )
    assert load(main).config.description == "<Include>no.xml</Include>"


@pytest.mark.parametrize(
    ("option", "attribute", "commented"),
    [
        ("", "", False),
        ("", ' comment="true"', True),
        ("", " comment='enabled'", True),
        ("<ConfigIncludeCommentDefault>enabled</ConfigIncludeCommentDefault>", "", True),
        ("<ConfigIncludeCommentDefault>true</ConfigIncludeCommentDefault>", ' comment="false"', False),
    ],
)
def test_include_comments(tmp_path: Path, option: str, attribute: str, commented: bool) -> None:
    main = write(
        tmp_path,
        main=f"<AMPSConfig>{option}\n  <Include{attribute}>a.xml</Include>\n</AMPSConfig>",
        a="\n\n<Name>${X}</Name>\n",
    )
    text = dump(main, {"X": "v"})
    block = "<!-- Start <Include>a.xml</Include> -->\n<Name>v</Name>\n<!-- End <Include>a.xml</Include> -->\n"
    assert (block in text) == commented
    assert "<Name>v</Name>" in text
    assert ("<!--" in text) == commented


def test_files_that_include_each_other_are_refused(tmp_path: Path) -> None:
    main = write(
        tmp_path,
        main="<AMPSConfig><Name>n</Name><Include>b.xml</Include></AMPSConfig>",
        b="<Tuning>\n<Include>c.xml</Include></Tuning>",
        c="<Queue><Include>./b.xml</Include></Queue>",
    )
    text = refusal_of(main)
    assert f"{tmp_path / 'c.xml'}:1: error: AMPSConfig/Tuning/Queue/Include: " in text
    assert "included by a file that it includes" in text


def test_the_size_guard_stops_growth(tmp_path: Path) -> None:
    levels = 20
    files = {
        f"l{n}": f"<A><Include>l{n + 1}.xml</Include><Include>l{n + 1}.xml</Include></A>"
        for n in range(levels)
    }
    main = write(
        tmp_path,
        main="<AMPSConfig><ConfigCycleDetectionThreshold>100kb</ConfigCycleDetectionThreshold>"
        "<Include>l0.xml</Include></AMPSConfig>",
        **files,
        **{f"l{levels}": "<A/>"},
    )
    assert "ConfigCycleDetectionThreshold (102400 bytes)" in refusal_of(main)


def test_an_include_that_fails_is_found_by_its_path(tmp_path: Path) -> None:
    """The include is found despite comments, CDATA sections and earlier includes before it, and an enclosing file."""
    main = write(
        tmp_path,
        main="<AMPSConfig><!-- <Include>no.xml</Include> --><Name>n</Name><Transports>\n"
        "<Include>a.xml</Include></Transports><Description><![CDATA[<Include>no.xml</Include>]]></Description>"
        "<Logging>\n<Include>b.xml</Include></Logging></AMPSConfig>",
        a="<Transport><Name>t</Name></Transport>",
        b="<Target>\n\n<Options><Include/></Options></Target>",
    )
    text = refusal_of(main)
    assert (
        f"{tmp_path / 'b.xml'}:3: error: AMPSConfig/Logging/Target/Options/Include: Include is empty" in text
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not well-formed"),
        ("<AMPSConfig>", "not well-formed"),
        ("<AMPSConfig><!-- a -- b --></AMPSConfig>", "not well-formed"),
        ("<AMPSConfig>\n<Name>a & b</Name></AMPSConfig>", "not well-formed"),
        ("<AMPSConfig>" + "<a>" * 300 + "</a>" * 300 + "</AMPSConfig>", "Excessive depth in document: 256\n"),
        ("<AMPSConfig>\n&nothing;</AMPSConfig>", ""),
        ("<Config><Name>n</Name></Config>", "it must be AMPSConfig"),
        ("<AMPSConfig><Include>none.xml</Include></AMPSConfig>", "No such file"),
        (
            "<AMPSConfig><Tuning><Include>none.xml</Include></Tuning></AMPSConfig>",
            "AMPSConfig/Tuning/Include: ",
        ),
        ("<AMPSConfig><Include/></AMPSConfig>", "Include is empty"),
        ("<AMPSConfig><Include as='x'>main.xml</Include></AMPSConfig>", "knows only comment"),
        ("<AMPSConfig><Include>.</Include></AMPSConfig>", "Is a directory"),
        ("<AMPSConfig xmlns:a='b'><Include a:c='1'>x</Include></AMPSConfig>", "knows only comment"),
    ],
)
def test_texts_that_are_refused(tmp_path: Path, text: str, message: str) -> None:
    main = write(tmp_path, main=text)
    assert message in refusal_of(main) + "\n"


def test_no_entity_reads_a_file_or_multiplies(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the secret")
    for declaration, use in (
        (f'<!ENTITY x SYSTEM "file://{secret}">', "&x;"),
        ('<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">', "&b;"),
        (f'<!ENTITY % p SYSTEM "file://{secret}"> %p;', "n"),
    ):
        main = write(
            tmp_path, main=f"<!DOCTYPE AMPSConfig [{declaration}]><AMPSConfig><Name>{use}</Name></AMPSConfig>"
        )
        text = refusal_of(main)
        assert "document type declaration" in text
        assert "the secret" not in text


def test_a_missing_file_is_a_finding(tmp_path: Path) -> None:
    assert "No such file or directory" in refusal_of(tmp_path / "main.xml")


@pytest.mark.parametrize(
    ("declaration", "encoding"),
    [
        ("", "utf-8-sig"),
        ("<?xml version='1.0' encoding='utf-8'?>", "utf-8"),
        ('<?xml version="1.0" encoding="iso-8859-1"?>', "latin-1"),
        ("", "utf-16"),
    ],
)
def test_encodings(tmp_path: Path, declaration: str, encoding: str) -> None:
    main = tmp_path / "main.xml"
    text = f"{declaration}\r\n<AMPSConfig>\r\n<Name>é</Name>\r\n</AMPSConfig>"
    main.write_bytes(text.encode(encoding))
    assert load(main).config.name == "é"


def test_a_file_in_another_encoding_than_declared_is_refused(tmp_path: Path) -> None:
    main = tmp_path / "main.xml"
    main.write_bytes("<AMPSConfig><Name>é</Name></AMPSConfig>".encode("latin-1"))
    assert "save it as UTF-8" in refusal_of(main)
    main.write_bytes(b"<?xml version='1.0' encoding='klingon'?><AMPSConfig/>")
    assert "klingon" in refusal_of(main)


def test_every_line_has_its_origin(tmp_path: Path) -> None:
    main = write(
        tmp_path,
        main="<AMPSConfig>\n<Name>n</Name> <Include>a.xml</Include> <Include>a.xml</Include>\n\n"
        "</AMPSConfig>",
        a="<Logging>\n</Logging>",
    )
    expanded = expand(main, {}, Findings(), None)
    places = [(Path(origin.file).stem, origin.line) for origin in expanded.origins]
    assert expanded.text.count("\n") == len(places)
    assert places == [
        ("main", 1),
        ("main", 2),
        ("a", 1),
        ("a", 2),
        ("a", 1),
        ("a", 2),
        ("main", 3),
        ("main", 4),
    ]


_PIECES = st.sampled_from(
    [
        "<Name>n</Name>",
        "<Include>main.xml</Include>",
        "<Include>other.xml</Include>",
        "<Transports>",
        "</Transports>",
        "<Transport>",
        "</Transport>",
        "<Type>tcp</Type>",
        "<InetAddr>9</InetAddr>",
        "${PATH}",
        "${",
        "}",
        "<!--",
        "-->",
        "<![CDATA[",
        "]]>",
        "&amp;",
        "&x;",
        "<",
        ">",
        "/",
        "'",
        '"',
        "\n",
        "\x00",
        "é",
        "<Logging><Target><Protocol>file</Protocol><FileName>%</FileName></Target></Logging>",
        "<Name/>",
        "<ConfigValidation>disabled</ConfigValidation>",
        "<TransactionLog>",
        "</TransactionLog>",
        "<?pi",
        "?>",
        "<Tuning><Transport><Workers>1e9</Workers></Transport></Tuning>",
        "xmlns:a='b'",
        "<a:b/>",
        "\ud800",
        "<ClientMaxCapacity>0</ClientMaxCapacity>",
        "<Options><A><B/></A></Options>",
        "<Module>",
        "</Module>",
    ]
)


@given(pieces=st.lists(_PIECES | st.text(max_size=5), max_size=12), whole=st.booleans())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_either_read_or_refused(tmp_path: Path, pieces: list[str], whole: bool) -> None:
    (tmp_path / "other.xml").write_text("<Group>g</Group>")
    text = "".join(pieces)
    if whole:
        text = f"<AMPSConfig><Name>n</Name>{text}</AMPSConfig>"
    with contextlib.suppress(ConfigError):
        assert load(tmp_path / "main.xml", text=text).config.name


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_a_damaged_configuration_is_either_read_or_refused(data: st.DataObject) -> None:
    """The sample with pieces cut out, doubled or replaced."""
    text = sample_config()
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 40)))
        text = text[:start] + data.draw(st.sampled_from(["", "<", "x", text[start:end] * 2])) + text[end:]
    with contextlib.suppress(ConfigError):
        assert load("sample.xml", text=text).config.name


@given(data=st.binary(max_size=200))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_file_is_either_read_or_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "main.xml"
    path.write_bytes(data)
    with pytest.raises(ConfigError):
        load(os.fspath(path))
