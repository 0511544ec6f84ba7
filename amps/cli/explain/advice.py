"""The form of an explanation."""

from typing import NamedTuple

NOTHING = "No recommended action available."
"""The documented text for events without a remedy (operations.md §11)."""


class Advice(NamedTuple):
    """The likely cause of an event, and what to do about it."""

    cause: str
    remedy: str = NOTHING
