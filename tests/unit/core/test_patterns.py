"""Patterns: native searches give the engine's result, and every search has a bound."""

import re
import time

import pcre2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amps._core.expressions.functions import GUARD_BYTES_MIN, Pattern, literal_of

alphabet = st.sampled_from(
    [b"a", b"b", b"A", b".", b"\\.", b"\\\\", b"C++", b"C\\+", b"\n", b"\xe9", b"\0", b"$", b"^"]
)
literals = st.lists(alphabet, max_size=4).map(b"".join)
patterns = st.builds(
    lambda modifier, start, body, end: modifier + start + body + end,
    st.sampled_from([b"", b"(?i)"]),
    st.sampled_from([b"", b"^"]),
    literals,
    st.sampled_from([b"", b"$"]),
)
subjects = st.lists(
    st.sampled_from([b"a", b"b", b"A", b"B", b".", b"C+", b"+", b"\\", b"\n", b"\xe9", b"\0"])
).map(b"".join)


@given(patterns, subjects)
@example(b"a$", b"a\n")
@example(b"^a$", b"a\n")
@example(b"^$", b"\n")
@example(b"$", b"x")
@example(b"(?i)\xe9", b"\xc9")
def test_a_pattern_gives_the_result_of_the_engine(pattern: bytes, subject: bytes) -> None:
    try:
        engine = pcre2.compile(pattern)
    except pcre2.LibraryError:
        with pytest.raises(ValueError, match="broken pattern"):
            Pattern(pattern)
        return
    assert Pattern(pattern).matches(subject) == (engine.search(subject) is not None)


@given(st.binary(max_size=8), subjects)
def test_a_raw_pattern_is_found_as_it_stands(pattern: bytes, subject: bytes) -> None:
    assert Pattern(pattern, raw=True).matches(subject) == (pattern in subject)
    assert Pattern(pattern, raw=True).matches(b"<" + pattern + b">")
    assert (
        Pattern(pattern, raw=True).replace(b"<" + pattern + b">", b"") == b"<>"
        or not pattern
        or pattern in b"<>"
    )


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (b"abc", (b"abc", False, False)),
        (b"^abc", (b"abc", True, False)),
        (b"abc$", (b"abc", False, True)),
        (b"^a\\.b$", (b"a.b", True, True)),
        (b"", (b"", False, False)),
        (b"a.c", None),
        (b"a|b", None),
        (b"a\\d", None),
        (b"a{2}", None),
        (b"a$b", None),
        (b"a\\", None),
        (b"a]", (b"a]", False, False)),
    ],
)
def test_patterns_searched_without_the_engine(pattern: bytes, expected: object) -> None:
    assert literal_of(pattern) == expected
    if pattern != b"a\\":
        assert Pattern(pattern).is_native == (expected is not None)


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        (rb"(.)\1", b"book", b"oo"),
        (rb"^A.{2}E$", b"ACME", b"ACME"),
        (rb"[C-M]+", b"ACME", b"CME"),
        (b"(?i)^acme$", b"ACME", b"ACME"),
        (b"a.c", b"a\nc", None),
        (b"(?s)a.c", b"a\nc", b"a\nc"),
        (b"(?m)^b", b"a\nb", b"b"),
        (b"(?x) a  b # c", b"ab", b"ab"),
        (b"(?U)a+", b"aaa", b"a"),
        (b"(?A)b|c", b"ac", None),
        (b"(?A)b|c", b"ca", b"c"),
        (b"(?Ai)B", b"b", b"b"),
        (b"(?Ax) b # c", b"b", b"b"),
        (rb"\Qa.b\E", b"a.b", b"a.b"),
        (b"[[:digit:]]+", b"ab12", b"12"),
        (b"(?<=a)b", b"ab", b"b"),
        (b"\xc3", "é".encode(), b"\xc3"),
    ],
)
def test_modifiers_and_perl_syntax(pattern: bytes, subject: bytes, expected: bytes | None) -> None:
    """expressions.md §7."""
    made = Pattern(pattern)
    assert made.find(subject) == expected
    assert made.matches(subject) == (expected is not None)
    long = subject + b"\n" + b"-" * GUARD_BYTES_MIN
    if not pattern.endswith(b"$"):
        assert made.find(long) == expected


@pytest.mark.parametrize(
    ("pattern", "subject", "replacement", "expected"),
    [
        (b"^0+", b"0042", b"", b"42"),
        (b"a", b"banana", b"o", b"bonono"),
        (b"(a)(n)", b"banana", rb"\2\1", b"bnanaa"),
        (b"(a)(n)", b"banana", b"$2${1}", b"bnanaa"),
        (b"a", b"banana", rb"<\0>", b"b<a>n<a>n<a>"),
        (b"a", b"a", rb"\\1$$1", b"\\1$1"),
        (b"a", b"a", rb"\7.", b"."),
        (b"x*", b"ab", b"-", b"-a-b-"),
        (b"a*", b"baac", b"-", b"-b--c-"),
        (b"(a)|b", b"ab", rb"<\1>", b"<a><>"),
        (b"z", b"ab", b"-", b"ab"),
        (b"a.", b"a.ab", b"-", b"--"),
    ],
)
def test_replacing(pattern: bytes, subject: bytes, replacement: bytes, expected: bytes) -> None:
    assert Pattern(pattern).replace(subject, replacement) == expected


@given(st.sampled_from([b"a", b"a*", b"(a|b)+", b"^", b"$", b"\\b", b"(a)?b"]), st.text("abc ", max_size=12))
def test_replacing_is_that_of_python(pattern: bytes, subject: str) -> None:
    assert Pattern(pattern).replace(subject.encode(), b"<\\0>") == re.sub(
        pattern, rb"<\g<0>>", subject.encode()
    )


@pytest.mark.parametrize("pattern", [b"(", b"a{2,1}", b"[z-a]", b"*", b"(?<n", b"\\"])
def test_a_broken_pattern_is_refused_with_its_place(pattern: bytes) -> None:
    with pytest.raises(ValueError, match=r"broken pattern: .*\(at byte \d+ of it\)"):
        Pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "subject"),
    [
        (b"(a+)+$", b"a" * 1_000_000 + b"b"),
        (b"(a|aa)+$", b"a" * 30_000 + b"b"),
        (b"(a*)*(a*)*(a*)*[bc]", b"a" * 20_000),
        (b"^(([a-z])+.)+[A-Z]([a-z])+$", b"a" * 100_000),
    ],
)
def test_a_catastrophic_pattern_is_given_up_and_counted(pattern: bytes, subject: bytes) -> None:
    """Without a bound none of these would end within a lifetime. The bound checked here is loose."""
    made = Pattern(pattern)
    begin = time.monotonic()
    assert not made.matches(subject)
    assert made.given_up == 1
    assert time.monotonic() - begin < 60


def test_a_search_of_quadratic_cost_ends_too() -> None:
    """The engine does not count steps within `a*`: a million places with half a million steps each take minutes."""
    made = Pattern(b"a*[bc]")
    begin = time.monotonic()
    assert not made.matches(b"a" * 1_000_000)
    assert time.monotonic() - begin < 60


@pytest.mark.parametrize("pattern", [b"(?R)", b"(a|(?1))+"])
def test_a_recursion_without_an_end_finds_nothing(pattern: bytes) -> None:
    """The engine notices the recursion only when it searches."""
    recursive = Pattern(pattern)
    assert not recursive.matches(b"aaabbb")
    assert recursive.given_up == 1


@pytest.mark.parametrize(
    "pattern", [b"(*UTF)x", b"(*UTF8)x", b"(*UCP)x", b"(*NO_JIT)(*UTF)x", b"(*CRLF)(*UCP)(*UTF)a"]
)
def test_patterns_work_on_bytes(pattern: bytes) -> None:
    """expressions.md §7: there is no UTF mode, which would refuse texts that are not UTF-8."""
    with pytest.raises(ValueError, match="there is no UTF mode"):
        Pattern(pattern)
    assert Pattern(b"(*CRLF)a.b").matches(b"a\xffb")


def test_a_long_text_is_searched_in_linear_time_whatever_the_case() -> None:
    """A search at each place would take a minute."""
    part = b"A" * 150_000 + b"b"
    assert Pattern(b"(?i)" + part).matches(b"a" * 300_000 + b"B")
    assert not Pattern(b"(?i)" + part).matches(b"a" * 600_000)
    for length in (15, 16, 17, 300):
        assert Pattern(b"(?i)" + b"xY" * length).matches(b"-" * 400 + b"Xy" * length)
        assert not Pattern(b"(?i)" + b"xY" * length).matches(b"-" * 400 + b"Xy" * (length - 1) + b"x")


def test_matches_in_long_texts() -> None:
    made = Pattern(b"x[yz]")
    assert made.find(b"a" * 1_000_000 + b"xz") == b"xz"
    assert made.given_up == 0


def test_a_long_match_is_no_catastrophe() -> None:
    """The match needs more stack than the compiled code has, so the interpreter of the engine finds it."""
    subject = b"ab" * 20_000
    assert Pattern(b"^(?:a|b|c)*$").find(subject) == subject


def test_a_replacement_is_bounded() -> None:
    with pytest.raises(MemoryError, match="more than 1000 bytes"):
        Pattern(b"[ab]").replace(b"ab" * 100, b"x" * 100, 1000)
