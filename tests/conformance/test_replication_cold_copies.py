"""A new instance is filled from old journals, and journals wait for it (replication.md §13, §26, 51 and 52)."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.admin import get
from tests.support.instances import Instances, To
from tests.support.ports import release_port, reserve_port
from tests.support.server import numbered_bodies, wait_until
from tests.support.services import action, do, on

MESSAGES = 2500  # of 10 kB: two full journals and a part of the third
EXCLUDE = "replicate,cascade"


@pytest.fixture
def admin_port() -> Iterator[int]:
    reserved = reserve_port()
    yield reserved
    release_port(reserved)


class Journals:
    """The journals of an instance, which actions compress, archive and remove over HTTP."""

    def __init__(self, group: Instances, port: int) -> None:
        self._group, self._port = group, port
        self.archive = group["A"].directory / "archive"

    @staticmethod
    def xml(port: int) -> str:
        actions = "".join(
            action(on("admin", Path=name), do(f"{name}-journal", Age="1s"))
            for name in ("compress", "archive", "remove")
        )
        return f"<Admin><InetAddr>127.0.0.1:{port}</InetAddr></Admin><Actions>{actions}</Actions>"

    def act(self, name: str) -> None:
        """Run an action, and wait until it has ended."""
        log = self._group["A"].log
        ran = len(log.find("19-0003"))
        answer = get(self._port, f"/amps/administrator/actions/{name}")
        assert answer.status == 200, answer.body
        log.wait_for("19-0003", count=ran + 1)

    def act_until(self, name: str, done: Callable[[], bool]) -> None:
        def looked() -> bool:
            self.act(name)
            time.sleep(0.1)
            return done()

        wait_until(looked, 30, lambda: f"{self.full()}\n{self._group['A'].excerpt()}")

    def full(self) -> list[str]:
        """The two full journals, wherever they are."""
        return sorted(
            str(path.relative_to(self.archive.parent))
            for directory in (self._group["A"].journal_directory, self.archive)
            for path in directory.glob("*.journal*")
            if path.name < "A.0000000002"
        )


@pytest.mark.parametrize("sync", [True, False])
def test_a_new_instance_gets_what_is_archived_and_compressed(
    tmp_path: Path, unique: str, admin_port: int, sync: bool
) -> None:
    """Behaviours 51 and 52: also for an async destination. Journals that it lacks are not removed, but compressed
    and archived. It gets everything, once; after that they go.
    """
    with Instances(tmp_path) as group:
        group.add(
            "A",
            [To("B", sync=sync, exclude=EXCLUDE)],
            xml=Journals.xml(admin_port),
            journal_xml="<JournalArchiveDirectory>./archive</JournalArchiveDirectory>",
        )
        group.add("B")
        journals = Journals(group, admin_port)
        bodies = numbered_bodies(MESSAGES, padding_bytes=10_000)
        group.start("A", connected=False)
        with group.client("A", unique) as publisher:
            publisher.publish_all("t", bodies, first_sequence=1, a="persisted")
            publisher.flush("completed")
            assert len(journals.full()) == 2
            journals.act_until("compress", lambda: all(name.endswith(".gz") for name in journals.full()))
            journals.act_until("archive", lambda: all(name.startswith("archive/") for name in journals.full()))
            journals.act("remove")
            group["A"].log.wait_for("2C-0014", "B")
            kept = journals.full()
            assert len(kept) == 2
            group.start("B")
            publisher.wait_for_persisted(MESSAGES, 60)
        received = [message.body for message in group.log_of("B", MESSAGES, timeout_s=60)]
        assert received == bodies
        assert len(group["A"].log.find("1E-0005", "A!B")) == 1  # the event of a complete resynchronization
        journals.act_until("remove", lambda: not journals.full())


def test_replication_51_journals_wait_for_stopped_destinations(
    tmp_path: Path, unique: str, admin_port: int
) -> None:
    """replication.md §26 51: what both destinations have may go. What one of them lacks stays, also for the async one,
    also archived, and after a restart of the source; after the resynchronization of both it goes as well.
    """
    with Instances(tmp_path) as group:
        group.add(
            "A",
            [To("B", exclude=EXCLUDE), To("C", sync=False, exclude=EXCLUDE)],
            xml=Journals.xml(admin_port),
            journal_xml="<JournalArchiveDirectory>./archive</JournalArchiveDirectory>",
        )
        group.add("B")
        group.add("C")
        journals = Journals(group, admin_port)
        bodies = numbered_bodies(MESSAGES, padding_bytes=10_000)
        half = MESSAGES // 2
        group.start()
        with group.client("A", unique) as publisher:
            publisher.publish_persisted("t", bodies[:half], 1)
            group.log_of("C", half)
            time.sleep(0.2)  # it acknowledges at intervals of 50 ms
            for name in "BC":
                group.kill(name)
            publisher.publish_all("t", bodies[half:], first_sequence=half + 1, a="persisted")
            publisher.flush("completed")
        journals.act_until("remove", lambda: journals.full() == ["journal/A.0000000001.journal"])
        kept = ["archive/A.0000000001.journal"]
        journals.act_until("archive", lambda: journals.full() == kept)
        group["A"].stop()
        group.launch("A")
        journals.act_until("remove", lambda: bool(group["A"].log.find("2C-0014", *kept, "B holds 1", "C holds 1")))
        group.start("B")
        group.wait_connected("A", "B")
        assert [message.body for message in group.log_of("B", MESSAGES, timeout_s=60)] == bodies
        journals.act("remove")
        assert journals.full() == kept
        group.start("C")
        assert [message.body for message in group.log_of("C", MESSAGES, timeout_s=60)] == bodies
        journals.act_until("remove", lambda: not journals.full())
