"""The identity of an instance and its log, as other instances know it (replication.md §24.2, §24.10)."""

import itertools
import json
from pathlib import Path

import pytest

from amps.journal.disk import Disk
from amps.journal.names import identity_path
from amps.server.core.identity import LogIdentity, hop, keep_identity, read_identity, renew_epoch
from tests.support.reports import Reports

numbers = itertools.count(1)


def chance(count: int) -> bytes:
    return next(numbers).to_bytes(count, "big")


def keep(directory: Path, begins_anew: bool, reports: Reports | None = None) -> LogIdentity:
    return keep_identity(
        Disk(), directory, "A", begins_anew, reports if reports is not None else Reports(), chance
    )


def test_the_uuid_stays_and_the_epoch_is_that_of_the_log(tmp_path: Path) -> None:
    """A log that begins without journals is another one, of the same instance."""
    first = keep(tmp_path, True)
    assert read_identity(tmp_path, "A") == first == keep(tmp_path, False)
    assert first.uuid != first.epoch
    again = keep(tmp_path, True)
    assert again.uuid == first.uuid
    assert again.epoch != first.epoch
    assert read_identity(tmp_path, "A") == again
    assert [path.name for path in tmp_path.iterdir()] == ["A.identity"]
    assert json.loads(identity_path(tmp_path, "A").read_text()) == again._asdict()


def test_a_log_without_the_file_gets_one(tmp_path: Path) -> None:
    """Its replication was switched on later, or the file was lost."""
    assert keep(tmp_path, False) == read_identity(tmp_path, "A")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[1]",
        b"{}",
        b'{"uuid": 1, "epoch": "e"}',
        b'{"uuid": "u v", "epoch": "e"}',
        b"\xff",
        b"[" * 4000,
    ],
)
def test_a_damaged_file_is_made_again_and_reported(tmp_path: Path, content: bytes) -> None:
    """The instance starts; its links compare their logs anew."""
    identity_path(tmp_path, "A").write_bytes(content)
    with pytest.raises(ValueError, match=r"A\.identity"):
        read_identity(tmp_path, "A")
    reports = Reports()
    made = keep(tmp_path, False, reports)
    assert read_identity(tmp_path, "A") == made
    assert reports.ids == ["1D-0026"]


def test_the_epoch_is_renewed_when_the_log_has_lost_its_end(tmp_path: Path) -> None:
    """The next start finds the renewed one."""
    first = keep(tmp_path, True)
    epoch = renew_epoch(tmp_path, "A", random_bytes=chance)
    assert keep(tmp_path, False) == (first.uuid, epoch) != first
    with pytest.raises(FileNotFoundError):
        renew_epoch(tmp_path, "B")


def test_a_hop_has_name_group_and_epoch() -> None:
    assert hop("A", "G", "e1") == "A\tG\te1"
