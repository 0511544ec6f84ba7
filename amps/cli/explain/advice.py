"""The form of an explanation."""

from typing import NamedTuple

NOTHING = "Nothing: this is information."


class Advice(NamedTuple):
    """The likely cause of an event, and what to do about it."""

    cause: str
    remedy: str = NOTHING
