"""A hook of mkdocs that adds the documents at the root of the source tree, and the configurations, to the site.

Documents refer to each other by relative links in the source tree. The site has the same files, but
its root is `docs`. So this hook adds the files outside of `docs` under their own paths, and rewrites each link from the
source tree to the site. README.md is the first page of the site.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
ADDED = (
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "SECURITY.md",
    "client/README.md",
    "conf/*",
    "perf/README.md",
)
"""Files outside of `docs`, as patterns below the root."""

_CODE_OR_LINK = re.compile(
    r"(?P<code>^ {0,3}(?P<fence>`{3,}|~{3,}).*?^ {0,3}(?P=fence)\s*?$|(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`))"
    r"|\]\((?P<path>[^)\s:#]+)(?P<anchor>#[^)\s]*)?\)",
    re.MULTILINE | re.DOTALL,
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the files outside of `docs`."""
    for pattern in ADDED:
        for path in sorted(ROOT.glob(pattern)):
            files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrites the relative links of a page."""
    docs = Path(config.docs_dir).relative_to(ROOT).as_posix()
    own = page.file.src_uri
    source = own if page.file.generated_by else f"{docs}/{own}"

    def rewritten(found: re.Match[str]) -> str:
        if found["code"] is not None:
            return found[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), found["path"]))
        if (ROOT / target).is_dir():
            target = f"{target}/README.md"
        target = target.removeprefix(f"{docs}/")
        return f"]({posixpath.relpath(target, posixpath.dirname(own) or '.')}{found['anchor'] or ''})"

    return _CODE_OR_LINK.sub(rewritten, markdown)


def on_config(config: MkDocsConfig, **_: Any) -> MkDocsConfig:
    """Watches the added files, too, in `mkdocs serve`."""
    config.watch += [str(path) for pattern in ADDED for path in sorted(ROOT.glob(pattern))]
    return config
