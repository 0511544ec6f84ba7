"""The blocks of README.md and of the guide, as a reader would run them."""

import re
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
README = "README.md"
GUIDE_TO_COMMAND_LINE = "docs/guide/command-line.md"
GUIDE_TO_QUEUES = "docs/guide/message-queues.md"
GUIDE_TO_WORKERS = "docs/guide/workers.md"
GUIDE_TO_EMBEDDED = "docs/guide/embedded-server.md"
GUIDE_TO_FAILOVER = "docs/guide/failover.md"
GUIDE_TO_ASYNCIO = "docs/guide/asyncio.md"
GUIDE_TO_PORTING = "docs/guide/from-the-documented-api.md"
GUIDE_TO_DEAD_LETTERS = "docs/guide/dead-letters.md"
GUIDE_TO_EXACTLY_ONCE = "docs/guide/exactly-once.md"
GUIDE_TO_REPLAY = "docs/guide/replay-and-backtest.md"
GUIDE_TO_SOW = "docs/guide/state-of-the-world.md"
GUIDE_TO_SPARK = "docs/guide/journals-in-spark.md"
GUIDE_TO_WORK_QUEUES = "docs/guide/work-queue.md"
TUTORIAL = "docs/guide/tutorial.md"


def block(document: str, containing: str, language: str = "python") -> str:
    """Return the block of this language that contains the text in a document of the checkout. There must be exactly
    one.
    """
    found = [text for text in blocks(document, language) if containing in text]
    assert len(found) == 1, f"{len(found)} blocks of {document} have {containing!r}"
    return found[0]


def blocks(document: str, language: str = "python") -> list[str]:
    """Return all blocks of this language in a document of the checkout."""
    text = (CHECKOUT / document).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def examples(document: str) -> list[tuple[str, str, str]]:
    """Return language, text and shown output of the blocks of a document that a block with an output follows."""
    text = (CHECKOUT / document).read_text(encoding="utf-8")
    pattern = r"^```(sh|python)\n((?:(?!```).*\n)+)```\n\n```text\n((?:(?!```).*\n)+)```$"
    return re.findall(pattern, text, re.MULTILINE)
