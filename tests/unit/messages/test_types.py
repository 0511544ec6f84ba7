"""What each message type can do (expressions.md §12.1), and that all of them are there."""

from pathlib import Path

import pytest

from amps.messages import (
    MODULES,
    STANDARD_MESSAGE_TYPES,
    TypeSettings,
    make_message_types,
    standard_settings,
)

ABILITIES = (
    "is_view_type",
    "is_underlying_type",
    "has_deltas",
    "has_enrichment",
    "has_select_lists",
    "has_server_topics",
)

# Module: view type, underlying type, delta, enrichment, select list, topics of the server.
TABLE = {
    **dict.fromkeys(("json", "bson", "msgpack", "fix", "nvfix", "xml", "bflat"), "yyyyyy"),
    "binary": "------",
    "struct": "-y----",
    "composite-local": "yyyyy-",
    "composite-global": "-y----",
}
PROTOBUF = {"proto2": "-yy---", "proto3": "-y--y-"}


def abilities(kind: object) -> str:
    return "".join("y" if getattr(kind, name) else "-" for name in ABILITIES)


def test_all_modules_are_there() -> None:
    assert set(MODULES) == {*TABLE, "protobuf"}
    assert list(standard_settings()) == list(STANDARD_MESSAGE_TYPES)
    assert len(set(MODULES.values())) == len(MODULES)


@pytest.mark.parametrize("module", TABLE)
def test_the_table_of_types(module: str) -> None:
    """expressions.md §12.1"""
    settings = TypeSettings("made", module, parts=("json",), fields=("/a = i",))
    kind = make_message_types([TypeSettings("json", "json"), settings])["made"]
    assert kind.name == "made"
    assert abilities(kind) == TABLE[module]


@pytest.mark.parametrize("syntax", PROTOBUF)
def test_the_table_of_types_protobuf(tmp_path: Path, syntax: str) -> None:
    """expressions.md §12.1"""
    (tmp_path / "m.proto").write_text(f'syntax = "{syntax}"; message M {{ repeated int32 a = 1; }}')
    settings = TypeSettings(
        "made", "protobuf", proto_paths=(("", tmp_path),), proto_file="m.proto", proto_type="M"
    )
    assert abilities(make_message_types([settings])["made"]) == PROTOBUF[syntax]


@pytest.mark.parametrize("module", [module for module in TABLE if module not in ("binary", "struct")])
def test_types_that_can_be_views_can_be_written(module: str) -> None:
    """expressions.md §12.1"""
    settings = TypeSettings("made", module, parts=("json",))
    kind = make_message_types([TypeSettings("json", "json"), settings])["made"]
    path = (b"0", b"1") if module == "composite-local" else (b"a", b"b") if module == "xml" else (b"1",)
    if kind.is_view_type:
        assert kind.builder([path]).build([5])
    else:
        with pytest.raises(ValueError, match="cannot be written by the server"):
            kind.builder([path])
