"""All modules of message types exist, and those of views can be written (expressions.md §12.1)."""

import pytest

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
