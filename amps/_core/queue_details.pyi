from collections.abc import Mapping
from typing import Any

from amps._core.queue_book import QueueBook

MESSAGES_MAX: int
SLOTS_MAX: int
CURSORS_MAX: int
SUBSCRIPTIONS_MAX: int

def describe_queue(
    book: QueueBook, number: int, names: Mapping[tuple[int, int], str]
) -> list[tuple[Any, ...]]: ...
def describe_subscriptions(
    book: QueueBook, skip: int, names: Mapping[tuple[int, int], str]
) -> list[tuple[Any, ...]]: ...
