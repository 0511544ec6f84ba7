"""The text of select lists (sow.md §18). What they leave of messages is tested with the message types."""

import pytest

from amps._core.values.documents import Selection
from amps.expressions import parse_select_list


@pytest.mark.parametrize(
    ("text", "directives"),
    [
        ("[-/,+/id,+/name]", [(False, ()), (True, (b"id",)), (True, (b"name",))]),
        (" [ - / , + /a/b ] ", [(False, ()), (True, (b"a", b"b"))]),
        ("+/a", [(True, (b"a",))]),
        ("[-/r/@x]", [(False, (b"r", b"@x"))]),
        ("[-[/a, b],+[/c d/e]]", [(False, (b"a, b",)), (True, (b"c d", b"e"))]),
        ("[-/é]", [(False, ("é".encode(),))]),
    ],
)
def test_select_lists(text: str, directives: list[tuple[bool, tuple[bytes, ...]]]) -> None:
    assert list(parse_select_list(text).directives) == directives


def test_of_two_directives_for_one_field_the_first_counts() -> None:
    assert parse_select_list("[-/,+/]").rest is False
    assert parse_select_list("[+/,-/]").rest is True
    assert parse_select_list("[-/a]").rest is True


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "does not begin with"),
        ("[]", "does not begin with"),
        ("[/a]", "does not begin with"),
        ("[+/a,]", "does not begin with"),
        ("[+/a,,-/b]", "does not begin with"),
        ("[+]", r"'\+'"),
        ("[+a]", "'a'|a "),
        ("[+/a,-b]", "-b"),
        ("[+/a = 1]", "does not name a field"),
        ("[+'a']", "does not name a field"),
        ("[+/a/]", "/a/"),
        ("[+/a OF PREVIOUS]", "does not name a field"),
        ("[+[topic]./a]", "does not name a field"),
        ("[+/a[1]]", "subscript"),
        ("[+/a[1]/b]", "subscript"),
        ("[[+/a]", "does not begin with"),
        ("[+" + ",+".join(["/a"] * 10_001) + "]", "at most 10000 directives"),
        ("[+" + "/a" * 1001 + "]", "1001 steps"),
    ],
)
def test_malformed_lists_are_refused(text: str, reason: str) -> None:
    """D30: a malformed list fails the command."""
    with pytest.raises(ValueError, match=reason):
        parse_select_list(text)


def test_a_selection_names_fields_only() -> None:
    with pytest.raises(ValueError, match="not elements of arrays"):
        Selection([(True, (b"a", 1, b"b"))])  # type: ignore[arg-type]
