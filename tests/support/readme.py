"""The blocks of README.md, as a reader would run them."""

import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def block(containing: str, language: str = "python") -> str:
    """The one block of this language that has the text in it."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    found = [text for text in blocks if containing in text]
    assert len(found) == 1, f"{len(found)} blocks of README.md have {containing!r}"
    return found[0]
