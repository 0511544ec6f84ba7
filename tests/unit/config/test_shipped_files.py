"""The configurations in conf/ and in the documents are valid, as their README promises."""

from pathlib import Path

import pytest

from amps.config import load
from amps.expressions import compile_expression
from tests.support.certificates import Authority
from tests.support.documents import GUIDE_TO_QUEUES, README, block

ROOT = Path(__file__).parents[3]

GUIDE_TO_ACTIONS = "docs/guide/actions-and-administration.md"
AROUND = """<AMPSConfig>
<Name>desk-7</Name>
<Transports><Transport><Name>app</Name><Type>tcp</Type><InetAddr>9007</InetAddr></Transport></Transports>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalArchiveDirectory>archive</JournalArchiveDirectory>
  <Topic><Name>^orders</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
{}
</AMPSConfig>"""


@pytest.mark.parametrize("path", sorted((ROOT / "conf").glob("*.xml")), ids=lambda path: path.name)
def test_a_shipped_configuration_has_no_findings(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, authority: Authority
) -> None:
    monkeypatch.chdir(tmp_path)  # they must be valid from any working directory
    issued = authority.issue("localhost")
    for name, file in (
        ("server.pem", issued.certificate),
        ("server.key", issued.private_key),
        ("ca.pem", authority.certificate),
    ):
        (tmp_path / name).write_bytes(file.read_bytes())
    site = {"SITE": "london", "OTHER": "newyork", "NUMBER": "1", "PARTNER": "2"}
    assert load(path, {"PKI": str(tmp_path), **site}).findings == ()


def test_the_configuration_of_the_readme_has_no_findings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load("config.xml", text=block(README, "<AMPSConfig>", "xml")).findings == ()


@pytest.mark.parametrize(
    ("document", "parts"),
    [
        (GUIDE_TO_QUEUES, ("<UnderlyingTopic>", "amps-action-on-sow-expire-message")),
        (GUIDE_TO_QUEUES, ("<UnderlyingTopic>", "<Delay>")),
        (GUIDE_TO_ACTIONS, ("amps-action-on-schedule",)),
        (GUIDE_TO_ACTIONS, ("<TrustedOrigin>",)),
    ],
)
def test_a_part_of_a_configuration_in_the_guide_has_no_findings(
    document: str, parts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    inner = "".join(block(document, part, "xml") for part in parts)
    assert load("config.xml", text=AROUND.format(inner)).findings == ()


def test_the_function_of_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    config = load(ROOT / "conf" / "message-types.xml").config
    assert tuple(config.message_types)[-3:] == ("pipe-nvfix", "photo", "tick")
    (has_tag,) = config.functions.own.values()
    assert has_tag.implementation(b"a test b", b"test") is True
    assert has_tag.implementation(None, b"test") is False
    compile_expression("HAS_TAG(/a, 'x') AND YEAR(/t) = 2010", functions=config.functions)
