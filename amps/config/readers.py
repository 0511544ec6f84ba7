"""Readers used by the element tables, beyond the plain units: choices, lists, patterns."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import pcre2

from amps.config.schema import NotSupportedYet
from amps.config.units import read_boolean, shown


def read_text(text: str) -> str:
    """Read any text, already trimmed."""
    if len(text) > 64 * 1024:
        raise ValueError(f"the text is {len(text)} characters long; at most 65536 are accepted")
    return text


def read_pattern(text: str) -> str:
    """Read a PCRE regular expression; return its text."""
    try:
        pcre2.compile(text)
    except Exception as error:  # the exception types of the regex engine share only this base
        if text.startswith("*"):
            raise ValueError(
                f"{shown(text)} is not a regular expression; write {shown('.' + text)} if * stands for any text"
            ) from None
        raise ValueError(f"{shown(text)} is not a regular expression: {error}") from None
    return text


def one_of(
    *values: str, synonyms: Mapping[str, str] | None = None, later: Mapping[str, str] | None = None
) -> Callable[[str], str]:
    """Return a reader of one of a few words, in any case. `later` maps known words to missing features."""
    canonical = {value.lower(): value for value in values}
    canonical.update({word.lower(): value for word, value in (synonyms or {}).items()})
    refused = {word.lower(): feature for word, feature in (later or {}).items()}

    def read(text: str) -> str:
        word = text.lower()
        if word in canonical:
            return canonical[word]
        if word in refused:
            raise NotSupportedYet(refused[word])
        raise ValueError(f"{shown(text)} is not accepted; write one of {', '.join(values)}")

    return read


def list_of(read_item: Callable[[str], Any], separator: str = ",") -> Callable[[str], tuple[Any, ...]]:
    """Return a reader of items between separators; white space around items and empty items are ignored."""

    def read(text: str) -> tuple[Any, ...]:
        parts = text.split() if separator == " " else [part.strip() for part in text.split(separator)]
        return tuple(read_item(part) for part in parts if part)

    return read


def off_or_later(feature: str) -> Callable[[str], bool]:
    """Return a reader for the switch of a missing feature: off is accepted, on is refused."""

    def read(text: str) -> bool:
        if read_boolean(text):
            raise NotSupportedYet(feature)
        return False

    return read


def read_path_or_disabled(text: str) -> str:
    """Read a path, or the word `disabled` in any case."""
    return "disabled" if text.lower() == "disabled" else read_text(text)


def read_id_pattern(text: str) -> str:
    """Read a log id such as 12-0010, or a regular expression over ids."""
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(
            f"{shown(text)} is neither a log id nor a regular expression over ids: {error}"
        ) from None
    return text


def read_byte(text: str) -> int:
    """Read the value of one byte, as a decimal number or as 0xNN."""
    if re.fullmatch(r"0[xX][0-9A-Fa-f]{1,2}", text):
        return int(text, 16)
    if re.fullmatch(r"[0-9]{1,3}", text) and int(text) <= 255:
        return int(text)
    raise ValueError(f"{shown(text)} is no byte; write a number from 0 to 255, or 0x00 to 0xFF")
