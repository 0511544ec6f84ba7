"""The documentation site: its navigation contains each page, and no others."""

import re
from pathlib import Path

LINK = re.compile(r"\]\(([^)#:\s]+\.md)[#)]")
CHECKOUT = Path(__file__).parents[3]
ROOT_DOCUMENTS = {"README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}
ELSEWHERE = {"client/README.md", "conf/README.md", "perf/README.md"}


def test_each_document_is_in_the_navigation_once() -> None:
    navigation = (CHECKOUT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    listed = re.findall(r"([\w./-]+\.md)$", navigation, re.MULTILINE)
    assert len(listed) == len(set(listed))
    docs = CHECKOUT / "docs"
    pages = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    assert set(listed) == pages | ROOT_DOCUMENTS | ELSEWHERE


def test_each_document_outside_of_docs_is_added_to_the_site() -> None:
    """mkdocs reads only `docs`; `tools/site_pages.py` adds the other documents."""
    hook = (CHECKOUT / "tools" / "site_pages.py").read_text()
    for name in ROOT_DOCUMENTS | {"client/README.md", "perf/README.md", "conf/*"}:
        assert f'"{name}",' in hook, name


def test_each_document_that_a_page_links_to_is_a_page() -> None:
    """`make docs` fails otherwise."""
    pages = {CHECKOUT / name for name in ROOT_DOCUMENTS | ELSEWHERE} | set((CHECKOUT / "docs").rglob("*.md"))
    targets = {(page.parent / target).resolve() for page in pages for target in LINK.findall(page.read_text())}
    assert len(targets) > 30
    assert targets <= pages
