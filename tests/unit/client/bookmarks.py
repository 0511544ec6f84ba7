"""A small bookmark store for tests of the engine."""

from amps.client import Message


class ListStore:
    """Keeps every bookmark it has seen, in order; resumes after the last received one."""

    def __init__(self) -> None:
        self.seen: dict[str, dict[str | None, int]] = {}
        self.discarded: dict[str, set[int]] = {}
        self.points: dict[str, str] = {}
        self.ended: list[str] = []

    def log(self, message: Message) -> int:
        seen = self.seen.setdefault(message.sub_id or "", {})
        return seen.setdefault(message.bookmark, len(seen) + 1)

    def is_discarded(self, message: Message) -> bool:
        return message.bookmark in self.seen.get(message.sub_id or "", {})

    def discard(self, sub_id: str, store_seq: int) -> None:
        self.discarded.setdefault(sub_id, set()).add(store_seq)

    def persisted(self, sub_id: str, bookmark: str) -> None:
        self.points[sub_id] = bookmark

    def get_most_recent(self, sub_id: str) -> str | None:
        seen = self.seen.get(sub_id)
        return next(reversed(seen)) if seen else self.points.get(sub_id)

    def get_oldest_seq(self, sub_id: str) -> int:
        return 0

    def released(self, sub_id: str) -> None:
        self.ended.append(sub_id)

    def purge(self, sub_id: str | None = None) -> None:
        self.seen.clear()

    def prune(self) -> None:
        pass

    def close(self) -> None:
        pass
