"""All modules of message types exist, and those of views can be written (expressions.md §12.1)."""

import pytest

from amps._core.values.documents import Documents
from amps.messages import (
    MODULES,
    STANDARD_MESSAGE_TYPES,
    TypeSettings,
    make_message_types,
    standard_settings,
)

MODULE_NAMES = {
    *("json", "bson", "msgpack", "fix", "nvfix", "xml", "bflat"),
    *("binary", "struct", "composite-local", "composite-global", "protobuf"),
}


def test_all_modules_exist() -> None:
    assert set(MODULES) == MODULE_NAMES
    assert list(standard_settings()) == list(STANDARD_MESSAGE_TYPES)
    assert len(set(MODULES.values())) == len(MODULES)


@pytest.mark.parametrize("module", sorted(MODULE_NAMES - {"binary", "struct", "protobuf"}))
def test_types_that_can_be_views_can_be_written(module: str) -> None:
    """expressions.md §12.1"""
    settings = TypeSettings("made", module, parts=("json",))
    kind = make_message_types([TypeSettings("json", "json"), settings])["made"]
    path = (b"0", b"1") if module == "composite-local" else (b"a", b"b") if module == "xml" else (b"1",)
    if module != "composite-global":
        assert kind.builder([path]).build([5])
    else:
        with pytest.raises(ValueError, match="cannot be written by the server"):
            kind.builder([path])


@pytest.mark.parametrize("module", sorted(MODULE_NAMES - {"struct", "protobuf"}))
def test_types_with_deltas_and_select_lists(module: str) -> None:
    """sow.md §14, expressions.md §12.1; protobuf and its versions are tested in test_protobuf_documents.py."""
    settings = TypeSettings("made", module, parts=("json",))
    kind = make_message_types([TypeSettings("json", "json"), settings])["made"]
    there = module not in ("binary", "composite-global")
    assert (kind.has_deltas, kind.has_select_lists) == (there, there)
    if there:
        assert isinstance(kind.documents(), Documents)
    else:
        with pytest.raises(ValueError, match="the message type made has no deltas and no select lists"):
            kind.documents()
