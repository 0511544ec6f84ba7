"""Building and changing XML documents (expressions.md §11): well-formed for expat, and with the new values."""

import xml.parsers.expat
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amps._core.values.fields import OMIT
from amps.messages.settings import TypeSettings
from amps.messages.xml import XmlType
from tests.unit.messages.reading import merge as merge_into
from tests.unit.messages.reading import read

XML = XmlType(TypeSettings("xml", "xml"), {})
Path = tuple[bytes, ...]
EXAMPLES = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def path(text: str) -> Path:
    return tuple(text.encode().split(b"/")[1:])


def build(paths: Sequence[str], *values: object) -> bytes:
    return XML.builder(map(path, paths)).build(values)


def merge(message: bytes, paths: Sequence[str], *values: object) -> bytes:
    return merge_into(XML.builder(map(path, paths)), message, values)


def check_well_formed(message: bytes) -> None:
    xml.parsers.expat.ParserCreate().Parse(message, True)


@pytest.mark.parametrize(
    ("paths", "values", "message"),
    [
        ([], [], b""),
        (["/T"], [1], b"<T>1</T>"),
        (["/T/b", "/T/a"], [1, 2], b"<T><b>1</b><a>2</a></T>"),
        (["/T/b", "/T/@x", "/T", "/T/@y"], [1, 2, 3, OMIT], b'<T x="2">3<b>1</b></T>'),
        (
            ["/T/o/a/c", "/T/k", "/T/o/b", "/T/o/b/@x"],
            [1, 2, 3, 4],
            b'<T><o><a><c>1</c></a><b x="4">3</b></o><k>2</k></T>',
        ),
        # Elements that would contain only omitted values are not written; the root always is.
        (["/T/o/a", "/T/b"], [OMIT, 1], b"<T><b>1</b></T>"),
        (["/T/o/a", "/T/b"], [OMIT, OMIT], b"<T/>"),
        # NULL is written (expressions.md §11), and NaN is 0 (§10.12, §15 item 53).
        (["/T/a", "/T/@b", "/T/c"], [None, None, b""], b'<T b=""><a/><c/></T>'),
        (
            ["/T/a", "/T/@b", "/T/c"],
            [float("nan"), float("nan"), float("-inf")],
            b'<T b="0"><a>0</a><c>0</c></T>',
        ),
        (
            ["/T/a", "/T/b", "/T/c"],
            [True, False, 2**64 - 1],
            b"<T><a>1</a><b>0</b><c>18446744073709551615</c></T>",
        ),
        (["/T/a", "/T/b"], [1.5, -24.0], b"<T><a>1.5</a><b>-24.0</b></T>"),
        (["/T"], [b"a<b>&\"'\t\n\r]]>"], b"<T>a&lt;b&gt;&amp;\"'\t\n&#13;]]&gt;</T>"),
        (["/T/@x"], [b"a<b>&\"'\t\n\r"], b'<T x="a&lt;b&gt;&amp;&quot;\'&#9;&#10;&#13;"/>'),
        # Control characters cannot be represented in a document.
        (["/T"], [b"\x00\x1f\x7f\xff"], b"<T>\xef\xbf\xbd\xef\xbf\xbd\x7f\xff</T>"),
        # Of two fields with one destination, the later one wins (expressions.md §11); a value and fields below it do
        # not conflict.
        (["/T/a", "/T/b", "/T/a"], [1, 2, 3], b"<T><b>2</b><a>3</a></T>"),
        (["/T/a/b", "/T/a"], [1, 2], b"<T><a>2<b>1</b></a></T>"),
    ],
)
def test_new_documents(paths: list[str], values: list[object], message: bytes) -> None:
    assert build(paths, *values) == message


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([], "0 steps"),
        ([b"T", 1, b"a"], r"/T\[1\]/a has a subscript"),
        ([b"T", b"@a", b"b"], "continues below an attribute"),
        ([b"@a"], "not a name"),
        ([b"T", b"@"], "not a name"),
        ([b"T", b""], "not a name"),
        ([b"T", b"1a"], "not a name"),
        ([b"T", b"a b"], "not a name"),
        ([b"T", b"a>"], "not a name"),
        ([b"T"] * 65, "65 steps"),
        ([b"T"] * 65 + [b"@a"], "66 steps"),
        ([b"U", b"a"], "one root"),
    ],
)
def test_paths_that_no_document_can_store(steps: list[bytes], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        XML.builder([(b"T",), tuple(steps)])


def test_the_maximum_of_levels_in_a_document() -> None:
    """expressions.md §12.1: at most 64."""
    deepest = (b"a",) * 64
    message = XML.builder([deepest, (*deepest, b"@x")]).build([1, 2])
    assert message == b"<a>" * 63 + b'<a x="2">1' + b"</a>" * 64
    assert read(XML.extractor(), message, [deepest, (*deepest, b"@x")]) == [[1], [2]]
    assert merge_into(XML.builder([deepest]), message, [3]) == message.replace(b"1", b"3")


@pytest.mark.parametrize(
    ("message", "paths", "values", "merged"),
    [
        # An empty message has no fields and is no error (§12.3).
        (b"", ["/T/a"], [1], b"<T><a>1</a></T>"),
        (b"", ["/T/a"], [OMIT], b""),
        # Elements are changed in place, and all other text stays unchanged; new ones come last in their element.
        (
            b"<?xml version='1.0'?>\n<T  x = '1'>\n <a>1</a><!-- c -->\n <b/>\n</T>\n",
            ["/T/b", "/T/a", "/T/c"],
            [2, b"x", 3],
            b"<?xml version='1.0'?>\n<T  x = '1'>\n <a>x</a><!-- c -->\n <b>2</b>\n<c>3</c></T>\n",
        ),
        (b"<T/>", ["/T/a"], [1], b"<T><a>1</a></T>"),
        (b"<T />", ["/T"], [1], b"<T>1</T>"),
        (b"<T></T>", ["/T/a", "/T/@x"], [1, 2], b'<T x="2"><a>1</a></T>'),
        (
            b"<T><o/><p></p></T>",
            ["/T/o/a", "/T/p/a/b"],
            [1, 2],
            b"<T><o><a>1</a></o><p><a><b>2</b></a></p></T>",
        ),
        # Attributes, with quotes of either kind.
        (
            b"<T a='1' b=\"2\" c='3'/>",
            ["/T/@a", "/T/@b", "/T/@d"],
            [b"'\"", 9, 4],
            b'<T a="\'&quot;" b="9" c=\'3\' d="4"/>',
        ),
        (b"<T a='1' b=\"2\" c='3' />", ["/T/@a", "/T/@b"], [OMIT, None], b"<T b=\"\" c='3' />"),
        # expressions.md §11: HINT OPTIONAL removes the element that the message had.
        (b"<T><a>1</a> <b x='1'><c/></b></T>", ["/T/a", "/T/b"], [OMIT, OMIT], b"<T> </T>"),
        (b"<T><a/><a>1</a></T>", ["/T/a", "/T/b"], [OMIT, OMIT], b"<T></T>"),
        (b"<T>1<a/>2</T>", ["/T"], [OMIT], b"<T><a/></T>"),
        (b"<T><a>1<b/></a></T>", ["/T/a", "/T/a/@x"], [OMIT, 5], b'<T><a x="5"><b/></a></T>'),
        # A value replaces the element's own text, and nothing else.
        (
            b"<T><a x='1'>1<b>2</b>3<![CDATA[4]]>\n<c/>\n</a></T>",
            ["/T/a"],
            [9],
            b"<T><a x='1'>9<b>2</b>\n<c/>\n</a></T>",
        ),
        (b"<T><a x='1'>1</a><b>1</b></T>", ["/T/a", "/T/b"], [None, None], b"<T><a x='1'></a><b></b></T>"),
        # Of repeated elements the first is changed.
        (b"<T><a>1</a><k/><a>2</a><a/></T>", ["/T/a"], [9], b"<T><a>9</a><k/></T>"),
        (
            b"<T><o><a>1</a></o><o n='2'><a x='1'>2</a><k>3</k></o></T>",
            ["/T/o/a", "/T/o/@n", "/T/o/b"],
            [9, 8, 7],
            b'<T><o n="8"><a>9</a><b>7</b></o><o><k>3</k></o></T>',
        ),
        # A document with another root is unchanged only if nothing is to be written.
        (b"<U><a>1</a></U>", ["/T/a"], [OMIT], b"<U><a>1</a></U>"),
    ],
)
def test_changed_documents(message: bytes, paths: list[str], values: list[object], merged: bytes) -> None:
    assert merge(message, paths, *values) == merged


@pytest.mark.parametrize(
    "message",
    [
        b"x",
        b"<T",
        b"<T>",
        b"<T><a></T>",
        b"<T><a><b x></a></T>",
        b"<T><a>&x;</a></T>",
        b"<T/>x",
        b"<U/>",
        b"<T a='1' a='2'/>",
    ],
)
def test_documents_that_cannot_be_changed(message: bytes) -> None:
    for value in (1, None):
        with pytest.raises(ValueError, match="cannot be parsed"):
            merge(message, ["/T/a"], value)


@pytest.mark.parametrize(
    "message", [b"<T><a><b x></a></T>", b"<T><a><b></T>", b"<T><a>", b"<T><a>\x01</a></T>"]
)
def test_removed_elements_are_parsed_too(message: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be parsed"):
        merge(message, ["/T/a"], OMIT)


NAMES = st.sampled_from(["a", "b", "c"])
TEXTS = st.sampled_from(["", "", "x", " 7 ", "a &lt; b", "<![CDATA[ & ]]>", "<!-- c -->", "\n"])
QUOTED = st.sampled_from(["1", "", "&quot;", "it's"])


@st.composite
def elements(draw: st.DrawFn, name: str, levels: int) -> str:
    """Elements with no name twice in one element."""
    attributes = "".join(f' {one}="{draw(QUOTED)}"' for one in draw(st.lists(NAMES, max_size=2, unique=True)))
    content = draw(TEXTS)
    if levels:
        for child in draw(st.lists(NAMES, max_size=3, unique=True)):
            content += draw(elements(child, levels - 1)) + draw(TEXTS)
    if not content and draw(st.booleans()):
        return f"<{name}{attributes}/>"
    return f"<{name}{attributes}>{content}</{name}>"


VALUES = st.sampled_from([None, OMIT, OMIT, 5, 1.5, b"x", b"<&\"'>", "é".encode()])
FIELDS = st.dictionaries(
    st.tuples(st.lists(NAMES, max_size=3), st.booleans(), NAMES).map(
        lambda made: (
            b"T",
            *(step.encode() for step in made[0]),
            *([b"@" + made[2].encode()] if made[1] else []),
        )
    ),
    VALUES,
    max_size=5,
)


def every_path(levels: int) -> list[Path]:
    paths: list[Path] = [(b"T",)]
    for known in paths:
        if len(known) <= levels:
            paths += [(*known, name) for name in (b"a", b"b", b"c")]
    return [*paths, *((*known, b"@" + name) for known in paths for name in (b"a", b"b", b"c"))]


PATHS = every_path(3)


def expected(before: dict[Path, list[object]], wanted: dict[Path, object]) -> dict[Path, list[object]]:
    """The expected values at each path after these fields have been written."""
    after = {path: list(values) for path, values in before.items()}
    written = {steps for steps, value in wanted.items() if value is not OMIT}
    for steps, value in wanted.items():
        if value is OMIT and len(steps) > 1 and not any(other[: len(steps)] == steps for other in written):
            for one in after:
                if one[: len(steps)] == steps:
                    after[one] = []
    for steps, value in wanted.items():
        if after[steps] or steps in written:
            after[steps] = [None if value is OMIT else value]
        for length in range(1, len(steps)):
            if steps in written and not after[steps[:length]]:
                after[steps[:length]] = [None]
    return after


def found(message: bytes) -> dict[Path, list[object]]:
    """The values found. Containers are distinguished by their contents."""
    values = read(XML.extractor(), message, PATHS)
    assert values is not None
    return {
        path: [None if value is ... else value for value in found]
        for path, found in zip(PATHS, values, strict=True)
    }


@EXAMPLES
@given(FIELDS)
def test_new_documents_are_read_back(wanted: dict[Path, object]) -> None:
    message = XML.builder(wanted).build(list(wanted.values()))
    if wanted:
        check_well_formed(message)
        values = expected({path: [] for path in PATHS}, wanted)
        assert found(message) == values | {(b"T",): values[(b"T",)] or [None]}


@EXAMPLES
@given(elements("T", 3), FIELDS, st.data())
def test_changed_documents_are_read_back(
    message: str, wanted: dict[Path, object], data: st.DataObject
) -> None:
    text = message.encode()
    builder = XML.builder(wanted)
    merged = merge_into(builder, text, list(wanted.values()))
    check_well_formed(merged)
    assert found(merged) == expected(found(text), wanted)
    if not any(value is not OMIT or found(text)[path] for path, value in wanted.items()):
        assert merged == text
    # A truncated document is refused.
    with pytest.raises(ValueError, match="cannot be parsed"):
        merge_into(builder, text[: data.draw(st.integers(1, len(text) - 1))], list(wanted.values()))


@EXAMPLES
@given(
    st.lists(
        st.sampled_from(
            [
                "<a>",
                "</a>",
                "<a/>",
                "<b x='1'>",
                "</b>",
                '<b a=""/>',
                "7",
                "&lt;",
                "<![CDATA[x]]>",
                "<!---->",
                "<",
                "'",
            ]
        ),
        max_size=12,
    ),
    FIELDS,
)
def test_changed_documents_stay_well_formed(pieces: list[str], wanted: dict[Path, object]) -> None:
    """Repeated elements, and damaged documents, which are refused just as when they are read."""
    text = f"<T>{''.join(pieces)}</T>".encode()
    well_formed = read(XML.extractor(), text, [(b"T",)]) is not None
    builder = XML.builder(wanted)
    if not well_formed:
        with pytest.raises(ValueError, match="cannot be parsed"):
            merge_into(builder, text, list(wanted.values()))
        return
    merged = merge_into(builder, text, list(wanted.values()))
    check_well_formed(merged)
    after = found(merged)
    for steps, value in wanted.items():
        if value is not OMIT:
            assert after[steps] == [value]
