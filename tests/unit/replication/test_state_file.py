"""`<Name>.destinations` (docs/replication.md): a damaged or old file, or one of another log, does no harm."""

import json
from pathlib import Path

import pytest

from amps.journal.disk import FILE_MODE
from amps.server.replication.state_file import (
    SavedDestination,
    destinations_path,
    read_destinations,
    write_destinations,
)

SAVED = {"B": SavedDestination("B", "G", "uuid-b", "epoch-b", 2**64 - 1, 7, 9, "digest"), "C": SavedDestination()}


def test_the_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = destinations_path(tmp_path, "A")
    assert read_destinations(path, "uuid", "epoch") == ({}, None)
    write_destinations(path, "uuid", "epoch", SAVED)
    assert read_destinations(path, "uuid", "epoch") == (SAVED, None)
    assert [each.name for each in tmp_path.iterdir()] == ["A.destinations"]
    assert path.stat().st_mode & 0o777 & ~FILE_MODE == 0, "others may read it"


def test_the_state_of_another_log_is_ignored(tmp_path: Path) -> None:
    path = destinations_path(tmp_path, "A")
    write_destinations(path, "uuid", "epoch", SAVED)
    assert read_destinations(path, "uuid", "other") == ({}, None)
    assert read_destinations(path, "other", "epoch") == ({}, None)


def _content(**values: object) -> str:
    saved = {
        "peer_name": "B",
        "peer_group": "G",
        "peer_uuid": "u",
        "peer_epoch": "e",
        "acked_position": 1,
        "acked_txid": 1,
    }
    return json.dumps({"uuid": "uuid", "epoch": "epoch", "destinations": {"B": {**saved, **values}}})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "7",
        "{}",
        "[" * 100_000,
        _content(acked_position=-1),
        _content(acked_position="1"),
        _content(acked_txid=True),
        _content(peer_name=None),
        _content(more=1),
        _content(acked_txid=2**64),
        _content(going_txid=-1),
        _content(going_txid="1"),
        _content(rules=None),
    ],
)
def test_a_damaged_file_is_reported_and_ignored(tmp_path: Path, text: str) -> None:
    path = destinations_path(tmp_path, "A")
    path.write_text(text)
    found, problem = read_destinations(path, "uuid", "epoch")
    assert found == {}
    assert problem


def test_a_failed_write_leaves_the_earlier_file(tmp_path: Path) -> None:
    path = destinations_path(tmp_path, "A")
    write_destinations(path, "uuid", "epoch", SAVED)
    path.with_name(path.name + ".new").mkdir()
    with pytest.raises(IsADirectoryError):
        write_destinations(path, "uuid", "epoch", {})
    assert read_destinations(path, "uuid", "epoch") == (SAVED, None)
