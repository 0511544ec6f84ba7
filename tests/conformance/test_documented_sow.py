"""The guide to the state of the world: every example in its order, with the output that it shows."""

import re
import shlex
import sys
from pathlib import Path

from amps import Server
from tests.support.documents import CHECKOUT, GUIDE_TO_SOW, blocks, examples
from tests.support.programs import Programs, programs
from tests.unit.cli.running import COMMAND

SAMPLE = CHECKOUT / "conf" / "sow.xml"


def output(guide: Programs, language: str, text: str) -> str:
    """What an example prints, without the speed."""
    text = guide.adapted(text)
    if language == "python":
        command = [sys.executable, "-P", "-c", text]
    else:
        command = ["bash", "-ec", text.replace(".venv/bin/amps", shlex.join(COMMAND))]
    return re.sub(r" \(.*/s\)$", "", guide.start_command(command).finished(), flags=re.MULTILINE)


def test_the_guide_to_the_state_of_the_world(tmp_path: Path) -> None:
    """sow.md §25, 1, 8, 12, 18, 19, 23, 30, 31, 39, 40, 41, 47, 59, 60, with conf/sow.xml."""
    small = "</JournalDirectory><JournalSize>10MB</JournalSize><PreallocatedJournalFiles>1</PreallocatedJournalFiles>"
    configuration = SAMPLE.read_text().replace("9007", "127.0.0.1:${PORT}").replace("</JournalDirectory>", small)
    with (
        Server(directory=tmp_path / "server", configuration=configuration) as server,
        programs(GUIDE_TO_SOW, tmp_path, server.port()) as guide,
    ):
        found = examples(GUIDE_TO_SOW)
        assert len(found) == 12
        for language, text, shown in found:
            assert output(guide, language, text) == shown, text


def test_every_program_of_the_guide_is_run() -> None:
    shown = [text for _, text, _ in examples(GUIDE_TO_SOW)]
    others = [text for name in ("python", "sh") for text in blocks(GUIDE_TO_SOW, name) if text not in shown]
    assert others == [".venv/bin/ampServer conf/sow.xml\n"]


def test_the_topics_of_the_guide_are_those_of_the_sample() -> None:
    sample = re.sub(r"\s+|<!--.*?-->", "", SAMPLE.read_text(), flags=re.DOTALL)
    for text in blocks(GUIDE_TO_SOW, "xml"):
        (topic,) = re.findall(r"<Topic>.*</Topic>", re.sub(r"\s+", "", text))
        assert topic in sample
