"""The tables of docs/guide/from-the-documented-api.md: they name everything, and everything that they name exists."""

import inspect
import re

import pytest

import amps.compat as AMPS
from tests.support.documents import CHECKOUT, GUIDE_TO_PORTING

TEXT = (CHECKOUT / GUIDE_TO_PORTING).read_text()
STORES = (
    "MemoryPublishStore", "PublishStore", "HybridPublishStore",
    "MemoryBookmarkStore", "MMapBookmarkStore", "RingBookmarkStore",
)  # fmt: skip
SECTIONS = {
    "Client": ("Client",),
    "HAClient": ("HAClient",),
    "Command": ("Command",),
    "Message": ("Message",),
    "MessageStream": ("MessageStream",),
    "Stores": STORES,
}


def text_of(section: str) -> str:
    return TEXT.partition(f"\n### {section}\n")[2].partition("\n#")[0]


def rows(section: str) -> list[tuple[list[str], str]]:
    """The rows of a section's table: the names of the first column, and the second column."""
    found = re.findall(r"^\| (.+?) \| (.+) \|$", text_of(section), re.MULTILINE)
    return [(re.findall(r"`(\w+)`", names), here) for names, here in found if "`" in names]


def named(section: str) -> set[str]:
    return {name for names, _ in rows(section) for name in names}


@pytest.mark.parametrize("section", SECTIONS)
def test_what_the_tables_name_exists(section: str) -> None:
    """client.md §19.12"""
    classes = [getattr(AMPS, name) for name in SECTIONS[section]]
    assert rows(section)
    for names, here in rows(section):
        for name in names:
            exists = hasattr(AMPS, name) or any(hasattr(cls, name) for cls in classes)
            assert exists == (not here.startswith("not here")), name


@pytest.mark.parametrize("section", ["Client", "HAClient", "Command", "Message", "MessageStream"])
def test_the_tables_name_every_method(section: str) -> None:
    """client.md §3.6, §3.7, §4, §5.1, §9.2. Twins in camelCase, and setters of messages, have one sentence for all."""
    cls = getattr(AMPS, section)
    own = {
        name
        for base in cls.__mro__
        if base.__module__.startswith("amps.compat") and (base is cls or section != "HAClient")
        for name, value in vars(base).items()
        if inspect.isroutine(value) and not name.startswith("_") and name.lower() == name
    }
    if section == "Message":
        own = {name for name in own if not name.startswith("set_")} - {"to_command"}
    assert own - named(section) == set()


@pytest.mark.parametrize("section", ["Servers", "Bodies and constants"])
def test_the_methods_of_small_classes_exist(section: str) -> None:
    """client.md §9.3, §9.4, §12"""
    found = re.findall(r"^\| ((?:`\w+`(?:, )?)+): (.+?) \|", text_of(section), re.MULTILINE)
    assert len(found) >= 3
    for classes, methods in found:
        for cls in re.findall(r"\w+", classes):
            for method in re.findall(r"\w+", methods):
                assert callable(getattr(getattr(AMPS, cls), method)), f"{cls}.{method}"


def test_the_tables_name_every_class() -> None:
    """client.md §19.12: apart from exceptions, which one row has."""
    classes = {
        name
        for name in AMPS.__all__
        if not (inspect.isclass(getattr(AMPS, name)) and issubclass(getattr(AMPS, name), BaseException))
    }
    headings = set(re.findall(r"^### (\w+)$", TEXT, re.MULTILINE))
    tabled = set(re.findall(r"`(\w+)`", TEXT.partition("## Class by class")[2]))
    assert classes - headings - tabled == set()
