"""The file with the position up to which actions have followed queues."""

from pathlib import Path

import pytest

from amps.journal.action_positions import (
    ActionPositionsDamaged,
    read_action_positions,
    write_action_positions,
)
from amps.journal.disk import Disk
from amps.journal.names import action_positions_path, unfinished_files, unfinished_path

POSITIONS = {("sow-expire-message", "json", "Q.ä \n"): 4096, ("sow-delete-message", "nvfix", "Q"): 1 << 62}


def test_it_is_read_as_written(tmp_path: Path) -> None:
    path = action_positions_path(tmp_path, "n")
    assert read_action_positions(path) == {}
    write_action_positions(Disk(), path, POSITIONS)
    assert read_action_positions(path) == POSITIONS
    write_action_positions(Disk(), path, {})
    assert read_action_positions(path) == {}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"version":2,"positions":[]}',
        b'{"version":1,"positions":[["a","b","c"]]}',
        b'{"version":1,"positions":[["a","b","c",-1]]}',
        b'{"version":1,"positions":[["a","b","c","4"]]}',
        b'{"version":1,"positions":[["a","b",3,4]]}',
        b'{"version":1,"positions":[7]}',
    ],
)
def test_malformed_files(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "n.actions"
    path.write_bytes(content)
    with pytest.raises(ActionPositionsDamaged, match=r"n\.actions"):
        read_action_positions(path)


def test_an_unfinished_one_is_removed_at_a_start(tmp_path: Path) -> None:
    unfinished = unfinished_path(action_positions_path(tmp_path, "n"))
    unfinished.touch()
    assert unfinished_files(tmp_path, "n") == [unfinished]
