"""`tools/check_citations.py`: every citation of the specification leads to a section, in this tree too."""

import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[3]
TOOL = CHECKOUT / "tools" / "check_citations.py"
DIRECTORY = "docs/spec"
SPECIFICATION = """# Things

## 1. What a thing is

1. A thing is kept.
2. A thing is found.

### 1.1 Parts

| # | Part |
|---|---|
| 7 | lid |

## 2. Decisions

| # | Question | Decision |
|---|---|---|
| D-01 | colour | blue |
"""


def meant(text: str) -> str:
    """The text with `@` and `¶` replaced, so that the tool does not take them for citations in this file."""
    return text.replace("@", "things.md").replace("¶", "§")


def checked(tree: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Run the tool on a tree whose specification is SPECIFICATION, with this text in a module."""
    (tree / "docs" / "spec").mkdir(parents=True)
    (tree / "docs" / "spec" / "things.md").write_text(SPECIFICATION)
    (tree / "amps").mkdir()
    (tree / "amps" / "module.py").write_text(meant(text))
    return run("--root", str(tree))


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(TOOL), *arguments], capture_output=True, text=True)


def test_every_citation_in_this_tree_has_a_target() -> None:
    done = run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stderr.split()[0]) > 2000


@pytest.mark.parametrize(
    "text",
    [
        "# @ ¶1\n",
        "# @ ¶1, 2: found\n",
        "# (@ ¶1 1 and 2, ¶1.1 row 7; ¶2, D-01).\n",
        "# @ ¶¶1 and 1.1\n",
        "# @ ¶1.2: item 2 of section 1\n",
        "# @ D1 and the behaviours 1 to 2 of ¶1\n",
        '"""What is kept (@ ¶1,\n    2) and lost."""\n',
        "# @ ¶1: 300 of them\n",
        "# docs/things.md, and RFC 4648 ¶9, are other documents\n",
        "D9 = 1\n",
    ],
)
def test_citations_with_a_target_pass(tmp_path: Path, text: str) -> None:
    done = checked(tmp_path, text)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("# other.md ¶1\n", 1, f"there is no {DIRECTORY}/other.md"),
        ("\n# @ ¶3\n", 2, "@ has no ¶3"),
        ("# @ ¶1, 3\n", 1, "@ ¶1 has no number 3"),
        ("# @ ¶1 1 and 9\n", 1, "@ ¶1 has no number 9"),
        ("# @ ¶1,\n# 4: on the next line\n", 1, "@ ¶1 has no number 4"),
        ("# @ ¶1.3\n", 1, "@ has no ¶1.3"),
        ("# @ ¶¶1 and 1.4\n", 1, "@ has no ¶1.4"),
        ("# @ ¶1, D-02\n", 1, "@ has no decision D02"),
        ("# @ ¶1\n# and the behaviours 1 to 8 of ¶1\n", 2, "@ ¶1 has no number 8"),
        ("# @ ¶1\n\n# ¶5 as well\n", 3, "@ has no ¶5"),
        ("# ¶1\n", 1, "¶1 names no file of the specification"),
    ],
)
def test_citations_without_a_target_are_reported(tmp_path: Path, text: str, line: int, reason: str) -> None:
    done = checked(tmp_path, text)
    assert done.returncode == 1
    assert done.stdout == meant(f"amps/module.py:{line}: {reason}\n")


def test_sections_of_the_own_document_count_in_a_specification(tmp_path: Path) -> None:
    (tmp_path / "docs" / "spec").mkdir(parents=True)
    (tmp_path / "docs" / "spec" / "things.md").write_text(SPECIFICATION + "\nSee section 1 and section 4.\n")
    done = run("--root", str(tmp_path))
    assert done.returncode == 1
    assert done.stdout == meant(f"{DIRECTORY}/things.md:20: @ has no ¶4\n")


def test_help_lists_the_checks() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert "docs/spec" in done.stdout
