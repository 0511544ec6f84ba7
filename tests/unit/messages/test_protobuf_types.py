"""Declarations of protobuf types: files, aliases and imports, and errors in them (expressions.md §§12.2, 12.5)."""

import shutil
from pathlib import Path

import pytest

from amps.messages.protobuf import ProtobufType
from amps.messages.settings import TypeSettings
from tests.unit.messages.reading import read


def declared(
    paths: list[tuple[str, Path]], file: str | None = "main.proto", type_name: str | None = "Main"
) -> ProtobufType:
    settings = TypeSettings(
        "orders", "protobuf", proto_paths=tuple(paths), proto_file=file, proto_type=type_name
    )
    return ProtobufType(settings, {})


def test_no_syntax_line_means_the_second_version(tmp_path: Path) -> None:
    (tmp_path / "main.proto").write_text("message Main { optional int32 n = 1; }")
    kind = declared([("", tmp_path)])
    assert read(kind.extractor(), b"", [(b"n",)]) == [[]]


def test_aliases_resolve_files_and_imports(tmp_path: Path) -> None:
    for name in ("plain", "one", "two=2"):
        (tmp_path / name).mkdir()
    (tmp_path / "one" / "main.proto").write_text(
        'syntax = "proto3"; package p; import "second/inner.proto"; import "bare.proto";'
        "message Main { i.Inner inner = 1; Bare bare = 2; }"
    )
    (tmp_path / "two=2" / "inner.proto").write_text("package i; message Inner { optional int32 n = 1; }")
    (tmp_path / "plain" / "bare.proto").write_text('syntax = "proto3"; message Bare { int32 n = 1; }')
    paths = [("first", tmp_path / "one"), ("second", tmp_path / "two=2"), ("", tmp_path / "plain")]
    message = b"\x0a\x02\x08\x07\x12\x00"
    for type_name in ("p.Main", ".p.Main"):
        kind = declared(paths, "first/main.proto", type_name)
        assert read(kind.extractor(), message, [(b"inner", b"n"), (b"bare", b"n")]) == [[7], [0]]
    with pytest.raises(ValueError, match=r"bare\.proto"):
        declared(paths[:2], "first/main.proto", "p.Main")
    with pytest.raises(ValueError, match=r"main\.proto cannot be compiled"):
        declared(paths, "main.proto", "p.Main")


def test_types_included_in_the_compiler_may_be_imported(tmp_path: Path) -> None:
    (tmp_path / "main.proto").write_text(
        'syntax = "proto3"; import "google/protobuf/timestamp.proto";'
        "message Main { google.protobuf.Timestamp time = 1; }"
    )
    assert read(declared([("", tmp_path)]).extractor(), b"\x0a\x02\x08\x05", [(b"time", b"seconds")]) == [[5]]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("message Main { int32 n = 1; }", "cannot be compiled.*Expected .required"),
        ("message Main {", "cannot be compiled"),
        (
            "message Other {} message Another { message Main {} }",
            "no message Main; there are: Other, Another",
        ),
        ("enum Main { A = 0; }", "no message Main; there are: none"),
        ('edition = "2023"; message Main {}', "another syntax.*editions"),
        ('import "gone.proto"; message Main {}', "gone.proto"),
    ],
)
def test_invalid_files_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "main.proto").write_text(text)
    with pytest.raises(ValueError, match=reason):
        declared([("", tmp_path)])


def test_invalid_settings_are_refused(tmp_path: Path) -> None:
    (tmp_path / "main.proto").write_text("message Main {}")
    (tmp_path / "a:b").mkdir()
    for paths, file, type_name, reason in (
        ([], "main.proto", "Main", "needs a ProtoPath"),
        ([("", tmp_path)], None, "Main", "needs a ProtoPath"),
        ([("", tmp_path)], "main.proto", None, "needs a ProtoPath"),
        ([("", tmp_path / "gone")], "main.proto", "Main", "is not a directory"),
        ([("", tmp_path / "a:b")], "main.proto", "Main", "neither may contain a colon"),
        ([("a=b", tmp_path)], "main.proto", "Main", "neither may contain a colon"),
        ([("", tmp_path)], "--version", "Main", "begins neither"),
        ([("", tmp_path)], "@file", "Main", "begins neither"),
        ([("", tmp_path)], "gone.proto", "Main", "cannot be compiled"),
    ):
        with pytest.raises(ValueError, match=reason):
            declared(paths, file, type_name)


def test_without_a_compiler_one_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    with pytest.raises(ValueError, match=r"install amps-server\[protobuf\]"):
        declared([("", tmp_path)])
