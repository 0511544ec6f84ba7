"""The index of expressions: texts that an expression requires occur in every matching name, so none is missed."""

import pcre2
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from amps.expression_index import ExpressionIndex, required_texts

PIECES = [
    "a", "b", "ab", "abc", "/", "-", "1", "é", " ", "#", ".", "^", "$", "*", "+", "?", "*?", "a*", "b+", "a?", "{2}",
    "{0,1}", "{0}", "{,2}", "{a}", "{", "}", "[ab]", "[^a]", "[]a]", "[^]]", "[[:alpha:]]", "[a\\]b]", "[(|]", "[", "]",
    "(", "(?:", "(?i)", "(?i:", "(?=", "(?!", "(?#a)", "(?<n>", "(?x)", "(*UTF)", "(|", ")", ")?", ")*", ")+", "|",
    "\\d", "\\w", "\\b", "\\.", "\\\\", "\\|", "\\(", "\\x61", "\\Qa|b\\E", "\\1", "\\p{L}", "\\N", "\\a", "\\é",
    "(a|b)", "(ab)?",
]  # fmt: skip
NAMES = st.text(alphabet="ab/c1-é #AB.{}|([kKsSſ\u212aİı", max_size=12)


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(("", "", "(?i)")),
    st.lists(st.sampled_from([*PIECES, "k", "s", "ask", "İ"]), min_size=1, max_size=8).map("".join),
    st.lists(NAMES, max_size=10),
)
@example("(?i)", "ask", ["ASK", "a\u017f\u212a"])
@example("(?i)", "k|s", ["\u212a", "\u017f"])
@example("(?i)", "xİa|b/", ["xİA", "XiA", "B/"])
@example("", "^a$|^b$", ["a", "b"])
def test_expressions_required_texts_are_in_every_match(prefix: str, rest: str, names: list[str]) -> None:
    """This holds with flags, alternatives and letters of other scripts."""
    expression = prefix + rest
    try:
        pattern = pcre2.compile(expression)
    except (pcre2.PatternError, ValueError):
        assume(False)
    required = required_texts(expression)
    index: ExpressionIndex[str] = ExpressionIndex()
    keys = index.add(expression, "it")
    for name in [*names, *("".join(names[at:]) for at in range(len(names))), expression]:
        if pattern.search(name) is not None:
            held = [all(text in name for text in texts) for texts in required]
            assert not held or any(held), (name, required)
            assert keys.may_match(name)
            assert {"it": None} in index.filed_for(name)
    index.remove(keys, "it")
    assert not list(index.filed_for(expression))


@pytest.mark.parametrize(
    ("expression", "texts"),
    [
        ("^orders/eu/.*", [["orders/eu/"]]),
        ("orders.eu.x$", [["orders", "eu", "x"]]),
        (r"^a\.b\d+c", [["a.b", "c"]]),
        ("^(buy|sell)/[A-Z]{3}/open", [["/", "/open"]]),
        ("colou?r", [["colo", "r"]]),
        ("ab+c*d{2}e", [["ab", "e"]]),
        ("this|that", [["this"], ["that"]]),
        ("^ORD$|^A_(B|C)$", [["ORD"], ["A_"]]),
        ("this|", []),
        ("(this|that)", []),
        ("(?i)orders", []),
        (r"\Qa|b\Ec", []),
        (".*", []),
    ],
)
def test_expressions_find_the_text_of_common_expressions(expression: str, texts: list[list[str]]) -> None:
    assert required_texts(expression) == texts
