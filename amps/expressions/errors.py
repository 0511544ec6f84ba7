"""Errors in expressions, with their positions.

Code that finds a fault raises `Refusal`, which has a position but not the text. The entry points of the package convert
it into an `ExpressionError`, the only exception of the package for a fault in an expression.
"""

_SHOWN_BEFORE = 40
_SHOWN_AFTER = 30
_NAME_SHOWN = 40


class Refusal(Exception):
    """A fault at a character (counted from 0) of a text that the caller has."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.position = position


class ExpressionError(ValueError):
    """An invalid expression. `position` counts characters from 0, the message from 1."""

    def __init__(self, reason: str, position: int, text: str) -> None:
        super().__init__(f"{reason}, at character {position + 1}: {_excerpt(text, position)}")
        self.reason = reason
        self.position = position


def shown(text: str) -> str:
    """A part of a foreign text for a message: of bounded length and printable."""
    if len(text) > _NAME_SHOWN:
        text = text[:_NAME_SHOWN] + "..."
    return _printable(text)


def _excerpt(text: str, position: int) -> str:
    """The text around a position, with an arrow at the position."""
    start = max(0, position - _SHOWN_BEFORE)
    end = position + _SHOWN_AFTER
    before = ("..." if start else "") + _printable(text[start:position])
    after = _printable(text[position:end]) + ("..." if end < len(text) else "")
    return f"{before} --> {after}".strip()


def _printable(text: str) -> str:
    return "".join(
        character if character.isprintable() else " " if character.isspace() else "?" for character in text
    )
