"""The texts of the event log, and the calls that use them."""

import ast
import re
import warnings
from pathlib import Path

import pytest

import amps
from amps.server.eventlog import (
    CATALOGUE,
    LEVELS,
    EventLog,
)
from amps.server.eventlog.catalogue import NOTHING, fill
from tests.unit.eventlog.log import Log, file_target

ID = r"[0-9A-F]{2}-[0-9A-F]{4}"


def test_texts_never_contain_the_name_of_a_level() -> None:
    for record_id, entry in CATALOGUE.items():
        fixed = re.sub(r"\{\w+\}", "", entry.template).lower()
        for name in (*LEVELS, "debug"):
            assert name not in fixed, (record_id, name)


def test_the_catalogue_is_sorted_and_its_ids_are_well_formed() -> None:
    assert list(CATALOGUE) == sorted(CATALOGUE)
    for record_id, entry in CATALOGUE.items():
        assert re.fullmatch(ID, record_id)
        assert entry.level in LEVELS


def test_every_id_that_the_server_logs_is_in_the_catalogue() -> None:
    package = Path(amps.__path__[0])
    for source in [*package.rglob("*.py"), *package.rglob("*.pyx")]:
        for record_id in re.findall(f'"({ID})"', source.read_text()):
            assert record_id in CATALOGUE, f"{source}: {record_id}"


def ids_of(call: ast.Call) -> list[str]:
    """The ids of the catalogue that a call may pass as its first argument; none if it logs nothing, or any id."""
    first = call.args[0] if call.args else None
    choices = [first.body, first.orelse] if isinstance(first, ast.IfExp) else [first]
    values = [choice.value for choice in choices if isinstance(choice, ast.Constant)]
    return [value for value in values if isinstance(value, str) and re.fullmatch(ID, value)]


def fields_of(template: str) -> tuple[set[str], set[str]]:
    """The values that a template needs, and those that only its parts in `[[ ]]` have."""
    optional_parts = "".join(re.findall(r"\[\[.*?\]\]", template, re.DOTALL))
    needed = set(re.findall(r"\{(\w+)\}", re.sub(r"\[\[.*?\]\]", "", template, flags=re.DOTALL)))
    return needed, set(re.findall(r"\{(\w+)\}", optional_parts)) - needed


def faults_of(call: ast.Call, record_id: str) -> list[str]:
    """The faults of a call that logs a message: values that its template lacks, and values that the call lacks."""
    needed, optional = fields_of(CATALOGUE[record_id].template)
    names = {keyword.arg for keyword in call.keywords}
    given = {name for name in names if name is not None}
    if len(call.args) > 1:  # a text
        given.add("text")
    unknown = given - needed - optional
    missing = set() if None in names else needed - given
    return [f"{record_id} has no {{{name}}}" for name in sorted(unknown)] + [
        f"{record_id} needs {{{name}}}" for name in sorted(missing)
    ]


def test_every_call_gives_the_values_of_its_template_and_no_text_of_its_own() -> None:
    """The texts in the log are those in the catalogue. A missing value would be a question mark in the log.

    A call may pass the id to `log`, to a `Report`, or to a function that passes it on.
    """
    faults: list[str] = []
    seen: set[str] = set()
    package = Path(amps.__path__[0])
    for source in package.rglob("*.py"):
        for call in ast.walk(ast.parse(source.read_text())):
            if not isinstance(call, ast.Call):
                continue
            for record_id in ids_of(call):
                seen.add(record_id)
                place = f"{source.relative_to(package)}:{call.lineno}"
                faults += [f"{place}: {fault}" for fault in faults_of(call, record_id)]
    assert not faults, "\n".join(faults)
    assert len(seen) > 100


@pytest.mark.parametrize(
    ("call", "faults"),
    [
        ('log("29-0010", text="t")', []),
        ('report("29-0010", "t")', []),
        ('log("2C-0007", path=p)', []),
        ('self._report("2C-0007", "a text")', ["2C-0007 has no {text}", "2C-0007 needs {path}"]),
        ('log("2C-0007", path=p, size=1)', ["2C-0007 has no {size}"]),
        ('log("07-0013", client=c)', []),
        ('log("07-0013", client=c, reason=r)', []),
        ('log("07-0013", **values)', []),
        ('log("07-0013", text=t, **values)', ["07-0013 has no {text}"]),
        ('log("25-0003" if x else "25-0004")', ["25-0003 needs {state}", "25-0004 needs {state}"]),
    ],
)
def test_faulty_calls_are_found(call: str, faults: list[str]) -> None:
    tree = ast.parse(call, mode="eval").body
    assert isinstance(tree, ast.Call)
    assert [fault for record_id in ids_of(tree) for fault in faults_of(tree, record_id)] == faults


def test_a_text_that_the_template_has_no_place_for_is_ignored(tmp_path: Path) -> None:
    """It is an exception in tests, and never one in a server."""
    log = Log(file_target(tmp_path / "a.log"))
    with pytest.raises(RuntimeWarning, match=r"2C-0007: its template in the catalogue has no \{text\}"):
        log.log.log("2C-0007", text="another text", path="p")
    with pytest.raises(RuntimeWarning):
        EventLog(None, 1, NOTHING).log("2C-0007", "another text", path="p")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        log.log.log("2C-0007", text="another text", path="p")
    log.log.log("29-0010", text="one {path}")
    log.finish()
    assert [warning.category for warning in warned] == [RuntimeWarning]
    lines = (tmp_path / "a.log").read_text().splitlines()
    assert [line.split("] ")[1] for line in lines] == [
        "info: 2C-0007 journal p is removed.",
        "warning: 29-0010 one {path}.",
    ]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"client": "c"}, "client[c] disconnected."),
        ({"client": "c", "reason": ""}, "client[c] disconnected."),
        ({"client": "c", "reason": "slow client"}, "client[c] disconnected. Reason: slow client."),
        ({}, "client[?] disconnected."),
        ({"client": "a\nb{x}"}, r"client[a\x0ab{x}] disconnected."),
        ({"client": b"\xff"}, r"client[\xff] disconnected."),
    ],
)
def test_filling_a_text(values: dict[str, object], text: str) -> None:
    assert fill(CATALOGUE["07-0013"].template, values) == text
