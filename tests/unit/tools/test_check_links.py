"""`tools/check_links.py`: every relative link of a Markdown file has a target, in this tree too."""

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[3] / "tools" / "check_links.py"
OTHER = """# Other things

## What `a_thing` is, and why: a *guess*

```sh
# no heading
```

## Twice

## Twice
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(TOOL), *arguments], capture_output=True, text=True)


def checked(tree: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Run the tool on a tree with this text in README.md, and with OTHER in docs/other.md."""
    (tree / "docs").mkdir()
    (tree / "docs" / "other.md").write_text(OTHER)
    (tree / "docs" / "a file.txt").write_text("")
    (tree / "README.md").write_text(text)
    return run("--root", str(tree))


def test_every_link_in_this_tree_leads_somewhere() -> None:
    done = run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stderr.split()[0]) > 30


@pytest.mark.parametrize(
    "text",
    [
        "[a](docs/other.md) and [b](./docs/)\n",
        "[a](docs/other.md#other-things)\n",
        "[a](docs/other.md#what-a_thing-is-and-why-a-guess)\n",
        "[a](docs/other.md#twice), [b](docs/other.md#twice-1)\n",
        "# Own\n\n[a](#own)\n",
        '# Own\n\n<a id="here"></a>[a](#here)\n',
        '[a](docs/a%20file.txt) and [b](<docs/other.md> "with a title")\n',
        "[a][b]\n\n[b]: docs/other.md#twice\n",
        "[a](https://example.com/nowhere) and [b](mailto:somebody@example.com)\n",
        "`[a](nowhere.md)` and ``[`b`](nowhere.md)``\n",
        "```md\n[a](nowhere.md)\n```\n",
        "    \n~~~\n[a](nowhere.md)\n~~~\n",
    ],
)
def test_links_with_a_target(tmp_path: Path, text: str) -> None:
    done = checked(tmp_path, text)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("\n[a](nowhere.md)\n", "README.md:2: nowhere.md: there is no nowhere.md"),
        ("[`a`](docs/nowhere)\n", "README.md:1: docs/nowhere: there is no docs/nowhere"),
        ("![a](docs/a.png)\n", "README.md:1: docs/a.png: there is no docs/a.png"),
        ("[a][b]\n\n[b]: nowhere.md\n", "README.md:3: nowhere.md: there is no nowhere.md"),
        ("[a](docs/other.md#thrice)\n", "README.md:1: docs/other.md#thrice: docs/other.md has no heading #thrice"),
        ("[a](docs/other.md#no-heading)\n", "docs/other.md has no heading #no-heading"),
        ("[a](#own)\n", "README.md:1: #own: README.md has no heading #own"),
        ("[a](docs/a%20file.txt#there)\n", "docs/a file.txt has no heading #there"),
        ("[a](../nowhere.md)\n", "README.md:1: ../nowhere.md leads out of the source tree"),
        ("```\ncode\n```\n[a](nowhere.md)\n", "README.md:4: nowhere.md: there is no nowhere.md"),
    ],
)
def test_links_without_a_target(tmp_path: Path, text: str, reason: str) -> None:
    done = checked(tmp_path, text)
    assert done.returncode == 1
    assert reason in done.stdout
    assert len(done.stdout.splitlines()) == 1
