"""Journals of another release in a read are refused, for any handling of damage."""

from pathlib import Path

import pytest

from amps._core.journal.reader import LogOfOtherVersion
from amps.spark.options import read_options
from amps.spark.planning import make_plan
from tests.support.handmade_logs import messages, write_log


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("on_damage", ["error", "skip"])
def test_a_journal_of_another_version_is_never_left_out(tmp_path: Path, number: int, on_damage: str) -> None:
    """This includes the newest journal, although an unfinished spare in its place would be skipped."""
    sent = messages(90)
    write_log(tmp_path / "journal", [(b"t", b"json")], [sent[:30], sent[30:60], sent[60:]])
    path = sorted((tmp_path / "journal").glob("*.journal"))[number]
    content = bytearray(path.read_bytes())
    content[8] = 4
    path.write_bytes(content)
    options = read_options({"path": str(tmp_path / "journal"), "on_damage": on_damage})
    with pytest.raises(LogOfOtherVersion, match="format version 4, and this program reads versions 2 to 3"):
        make_plan(options, options.selection)
