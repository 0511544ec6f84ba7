"""The blocks of README.md and of the guide, as a reader would run them."""

import re
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
README = "README.md"
GUIDE_TO_COMMAND_LINE = "docs/guide/command-line.md"
GUIDE_TO_QUEUES = "docs/guide/message-queues.md"
GUIDE_TO_FAILOVER = "docs/guide/failover.md"
GUIDE_TO_ASYNCIO = "docs/guide/asyncio.md"
GUIDE_TO_PORTING = "docs/guide/from-the-documented-api.md"
GUIDE_TO_SPARK = "docs/guide/journals-in-spark.md"


def block(document: str, containing: str, language: str = "python") -> str:
    """Return the block of this language that contains the text in a document of the checkout. There must be exactly
    one.
    """
    text = (CHECKOUT / document).read_text(encoding="utf-8")
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    found = [text for text in blocks if containing in text]
    assert len(found) == 1, f"{len(found)} blocks of {document} have {containing!r}"
    return found[0]
