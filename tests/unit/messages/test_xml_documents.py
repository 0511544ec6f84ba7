"""Deltas and select lists of XML documents (sow.md §14, §17, §18): examples, and random documents against plain Python.

In the model, an element is an `Object` of its attributes, its text (with an empty name) and its elements. Repeated
elements are a list.
"""

from collections.abc import Sequence
from xml.etree import ElementTree
from xml.sax.saxutils import escape, quoteattr

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amps._core.values.documents import Selection
from amps.messages.settings import TypeSettings
from amps.messages.xml import XmlType
from tests.support.reference_values import Object
from tests.unit.messages.document_models import KEYS, Checked, Directive, Names
from tests.unit.messages.nested import EXAMPLES

XML = Checked(XmlType(TypeSettings("xml", "xml"), {}).documents())


@pytest.mark.parametrize(
    ("stored", "delta", "merged"),
    [
        # sow.md §25 items 23 to 26, in XML.
        (b"<r><a>20</a><b>7</b></r>", b"<r><a>5</a></r>", b"<r><a>5</a><b>7</b></r>"),
        (b"<r><a>1</a></r>", b"<r><c>2</c></r>", b"<r><a>1</a><c>2</c></r>"),
        (b"<r><q><x>1</x><y>2</y></q></r>", b"<r><q><x>9</x></q></r>", b"<r><q><x>9</x><y>2</y></q></r>"),
        (b"<r><l>1</l><b/><l>2</l></r>", b"<r><l>7</l></r>", b"<r><l>7</l><b/></r>"),
        (b"<r><l>1</l></r>", b"<r><l>7</l><l>8</l></r>", b"<r><l>7</l><l>8</l></r>"),
        (b"<r><a>4</a></r>", b"<r><a/></r>", b"<r><a>4</a></r>"),
        (b"<r><a>4</a></r>", b'<r><a x=""> </a><n><m y=""/></n></r>', b"<r><a>4</a></r>"),
        # Each path by itself: attributes, text, elements.
        (b"<r><a>4</a></r>", b'<r><a x="1"/></r>', b'<r><a x="1">4</a></r>'),
        (b"<r><a x='1' y = '2'>4</a></r>", b'<r><a y="3"/></r>', b"<r><a x='1' y = \"3\">4</a></r>"),
        (b'<r><a x="1"/></r>', b"<r><a>5</a></r>", b'<r><a x="1">5</a></r>'),
        (b'<r><a x="1" /></r>', b'<r><a y="2"><b/><c>5</c></a></r>', b'<r><a x="1" y="2" ><c>5</c></a></r>'),
        (b"<r><a><b>1</b></a></r>", b"<r><a>5</a></r>", b"<r><a><b>1</b>5</a></r>"),
        (b"<r><a/></r>", b'<r><a x="1">5</a></r>', b'<r><a x="1">5</a></r>'),
        # A text in pieces is replaced as a whole. Blanks at its ends, and the layout, stay.
        (b"<r><a> 1 <b>2</b> 3 </a></r>", b"<r><a>\n4<b/>5\n</a></r>", b"<r><a> 45<b>2</b> </a></r>"),
        (b"<r><a><![CDATA[1]]></a></r>", b"<r><a>&lt;</a></r>", b"<r><a>&lt;</a></r>"),
        (b"<r><a>1</a></r>", b"<r><a> <![CDATA[ <]]> </a></r>", b"<r><a><![CDATA[ <]]></a></r>"),
        (b"<?xml version='1.0'?>\n<r>\n <a>1</a><!-- c -->\n</r>\n", b"<r><a>2</a></r>",
         b"<?xml version='1.0'?>\n<r>\n <a>2</a><!-- c -->\n</r>\n"),
        (b"", b"<r><a>1</a><b/></r>", b"<r><a>1</a></r>"),
        (b"<r><a>1</a></r>", b" ", b"<r><a>1</a></r>"),
    ],
)  # fmt: skip
def test_merging_a_delta(stored: bytes, delta: bytes, merged: bytes) -> None:
    assert XML.merge(stored, delta) == merged


@pytest.mark.parametrize(
    ("old", "new", "body", "changed"),
    [
        (b"<r><id>1</id><a>2</a><b>3</b></r>", b"<r><id>1</id><a>2</a><b>4</b></r>",
         b"<r><id>1</id><b>4</b></r>", True),
        (b"<r><id>1</id><a>2</a></r>", b"<r><id>1</id><a>2</a></r>", b"<r><id>1</id></r>", False),
        (b'<r><id>1</id><q x="1" y="1"><z>1</z>5</q></r>', b'<r><id>1</id><q x="1" y="2"><z>1</z>5</q></r>',
         b'<r><id>1</id><q y="2"></q></r>', True),
        # D10: NULL is an empty element or attribute.
        (b'<r><id>1</id><a x="1" y="2">2</a><b>3</b></r>', b'<r><id>1</id><a y="2">2</a></r>',
         b'<r><id>1</id><a x=""></a><b/></r>', True),
        (b"<r><id>1</id><a>2</a></r>", b"<r><id>1</id><a/></r>", b"<r><id>1</id><a/></r>", True),
        (b'<r><id>1</id><a x="1">2</a></r>', b'<r><id>1</id><a x="1"></a></r>', b"<r><id>1</id><a></a></r>", True),
        (b"<r><id>1</id><a/></r>", b"<r><id>1</id><b> </b></r>", b"<r><id>1</id></r>", False),
        # An array that changed, whole.
        (b"<r><id>1</id><l>1</l><l>2</l></r>", b"<r><id>1</id><l>1</l><l>3</l></r>",
         b"<r><id>1</id><l>1</l><l>3</l></r>", True),
        (b"<r><id>1</id><l>1</l><l>2</l></r>", b"<r><l>1</l><id>1</id><l>2</l></r>", b"<r><id>1</id></r>", False),
        # A document without fields, and one with another root.
        (b"<r><id>1</id></r>", b"", b"<r/>", True),
        (b"", b"<r><id>1</id></r>", b"<r><id>1</id></r>", True),
        (b"<s><id>1</id></s>", b"<r><id>1</id></r>", b"<r><id>1</id></r>", True),
        (b"<r><a>1</a></r>", b"<r><a>1</a></r>", b"<r/>", False),
    ],
)  # fmt: skip
def test_the_difference_of_two_states(old: bytes, new: bytes, body: bytes, changed: bool) -> None:
    assert XML.difference(old, new, "/r/id") == (body, changed)


def test_keys_in_attributes() -> None:
    message = b'<r id="1" x="2"><o k="3" v="4">5</o></r>'
    assert XML.difference(message, message, "/r/@id", "/r/o/@k") == (b'<r id="1"><o k="3"></o></r>', False)


@pytest.mark.parametrize(
    ("message", "directives", "body"),
    [
        (b"<r><id>1</id><n><a>2</a><b>3</b></n><x>4</x></r>", "[-/,+/r/id,+/r/n/a]",
         b"<r><id>1</id><n><a>2</a></n></r>"),
        (b"<r><id>1</id><n><a>2</a><b>3</b></n></r>", "[-/r/n,+/r/n/a]", b"<r><id>1</id><n><a>2</a></n></r>"),
        (b'<r a="1" b="2"> <c d="3">4</c>5</r>', "[-/,+/r/@b,+/r/c/@d]", b'<r b="2"> <c d="3"></c></r>'),
        (b'<r a="1" b="2"><c d="3">4</c></r>', "[-/r/@b,-/r/c/@d]", b'<r a="1"><c>4</c></r>'),
        (b"<r><l><x>1</x><y>2</y></l><l><y>3</y></l><l>5</l></r>", "[-/,+/r/l/y]",
         b"<r><l><y>2</y></l><l><y>3</y></l></r>"),
        (b"<r>1</r>", "[-/]", b"<r/>"),
        (b"<r><a>1</a></r>", "[-/,+/r/b]", b"<r/>"),
        (b"", "[-/]", b""),
    ],
)  # fmt: skip
def test_select_lists(message: bytes, directives: str, body: bytes) -> None:
    assert XML.select(message, directives) == body


@pytest.mark.parametrize(
    "malformed",
    [b"<r>", b"<r></s>", b"x", b"<r a=1/>", b'<r a="1" a="2"/>', b"<r/><r/>", b"<r>&x;</r>", b"<r>\0</r>",
     b"<a>" * 65 + b"</a>" * 65],
)  # fmt: skip
def test_malformed_documents_are_refused(malformed: bytes) -> None:
    good = b"<r><a>1</a></r>"
    for first, second in ((malformed, good), (good, malformed)):
        with pytest.raises(ValueError, match="cannot be parsed"):
            XML.merge(first, second)
        with pytest.raises(ValueError, match="cannot be parsed"):
            XML.difference(first, second)
    with pytest.raises(ValueError, match="cannot be parsed"):
        XML.select(malformed, "-/r/a")


def test_a_delta_with_another_root_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be parsed"):
        XML.merge(b"<r><a>1</a></r>", b"<s><a>1</a></s>")


def test_elements_of_many_members() -> None:
    names = [b"e%d" % number for number in range(50_000)]
    stored = b"<r>" + b"".join(b"<%b>1</%b>" % (name, name) for name in names) + b"</r>"
    delta = b"<r>" + b"".join(b"<%b>2</%b>" % (name, name) for name in reversed(names)) + b"</r>"
    merged = XML.merge(stored, delta)
    assert merged == stored.replace(b">1<", b">2<")
    assert XML.difference(delta, merged) == (b"<r/>", False)


# --- random documents -------------------------------------------------------------------------------------------

TEXTS = st.sampled_from([b"", b"x", b"1.0", b"a < b & c", "é".encode()])
ATTRIBUTES = st.dictionaries(st.sampled_from([b"@x", b"@y"]), TEXTS)


def element_of(attributes: dict[bytes, bytes], text: bytes, elements: dict[bytes, object]) -> Object:
    return Object({**attributes, **({b"": text} if text else {}), **elements})


ELEMENTS = st.recursive(
    st.builds(element_of, ATTRIBUTES, TEXTS, st.just({})),
    lambda below: st.builds(
        element_of,
        ATTRIBUTES,
        TEXTS,
        st.dictionaries(
            st.sampled_from([b"a", b"b", b"k"]), below | st.lists(below, min_size=2, max_size=3), max_size=3
        ),
    ),
    max_leaves=8,
)
DIRECTIVES = st.lists(
    st.tuples(
        st.booleans(), st.lists(st.sampled_from([b"a", b"b", b"k", b"@x"]), max_size=3).map(lambda path: (b"r", *path))
    ),
    max_size=5,
)


def packed(name: bytes, element: object) -> bytes:
    if isinstance(element, list):
        return b"".join(packed(name, each) for each in element)
    assert isinstance(element, Object)
    tag = name + b"".join(
        b" " + key[1:] + b"=" + quoteattr(value.decode()).encode()
        for key, value in element.items()
        if key.startswith(b"@") and isinstance(value, bytes)
    )
    text = element.get(b"", b"")
    assert isinstance(text, bytes)
    inner = escape(text.decode()).encode()
    inner += b"".join(packed(key, value) for key, value in element.items() if not isinstance(value, bytes))
    return b"<%b>%b</%b>" % (tag, inner, name) if inner else b"<%b/>" % tag


def unpacked(message: bytes) -> Object:
    root = ElementTree.fromstring(message)
    assert root.tag == "r"
    return object_of(root)


def object_of(element: ElementTree.Element) -> Object:
    made = Object({b"@" + name.encode(): value.encode() for name, value in element.attrib.items()})
    text = "".join([element.text or "", *(each.tail or "" for each in element)]).strip()
    if text:
        made[b""] = text.encode()
    for each in element:
        name = each.tag.encode()
        before = made.get(name)
        if before is None:
            made[name] = object_of(each)
        else:
            made[name] = [*(before if isinstance(before, list) else [before]), object_of(each)]
    return made


def is_null(value: object) -> bool:
    if isinstance(value, list):
        return all(map(is_null, value))
    return not value or (isinstance(value, Object) and all(map(is_null, value.values())))


def holds(value: object) -> bool:
    """Whether there is anything at all: also an empty attribute or element."""
    return any(map(holds, value)) if isinstance(value, list) else bool(value)


def merged_by(stored: Object, delta: Object) -> Object:
    made = Object(stored)
    for name, value in delta.items():
        if is_null(value):
            continue
        before = stored.get(name)
        if isinstance(value, Object):
            value = merged_by(before if isinstance(before, Object) else Object(), value)
        made[name] = value
    return made


def compared(old: Object, new: Object, keys: Sequence[Names], above: Names) -> tuple[Object, bool, bool]:
    """The difference, whether there are changes, and whether there is anything to write."""
    made = Object()
    changed = written = False
    for name, value in new.items():
        path = (*above, name)
        before = old.get(name)
        below = any(len(key) > len(path) and key[: len(path)] == path for key in keys)
        if isinstance(value, Object) and isinstance(before, Object) and value and before:
            inner, inner_changed, inner_written = compared(before, value, keys, path)
            changed = changed or inner_changed
            if path in keys:
                made[name] = value
            elif inner_written:
                made[name] = inner
        elif value == before or not (holds(value) or holds(before)):
            if path in keys or (below and isinstance(value, list)):
                made[name] = value
        else:
            changed = True
            made[name] = value
    for name, value in old.items():
        if name not in new and holds(value):
            changed = written = True
            if name.startswith(b"@"):
                made[name] = b""
            elif name:
                made[name] = Object()
    return made, changed, written or bool(made)


def selected(element: Object, above: Names, chosen: dict[Names, bool], included: bool) -> Object:
    made = Object()
    for name, value in element.items():
        path = (*above, name)
        includes = chosen.get(path, included) if name else included
        below = any(len(other) > len(path) and other[: len(path)] == path for other in chosen)
        values = value if isinstance(value, list) else [value]
        left = []
        for each in values:
            inner = selected(each, path, chosen, includes) if below and isinstance(each, Object) else each
            if includes or (below and isinstance(each, Object) and inner):
                left.append(inner)
        if left:
            made[name] = left if len(left) > 1 else left[0]
    return made


@EXAMPLES
@given(ELEMENTS, ELEMENTS, st.data())
def test_random_deltas(stored: Object, delta: Object, data: st.DataObject) -> None:
    before, given_ = packed(b"r", stored), packed(b"r", delta)
    assert unpacked(XML.merge(before, given_)) == merged_by(stored, delta)
    cut = data.draw(st.integers(1, len(before) - 1))
    with pytest.raises(ValueError, match="cannot be parsed"):
        XML.merge(before[:cut], given_)


@EXAMPLES
@given(ELEMENTS, ELEMENTS, KEYS)
def test_random_differences(old: Object, new: Object, keys: Sequence[Names]) -> None:
    paths = [(b"r", *key) for key in keys]
    for after in (new, merged_by(old, new)):
        expected, changed, _ = compared(Object({b"r": old}), Object({b"r": after}), paths, ())
        body, found = XML.difference(packed(b"r", old), packed(b"r", after), *paths)
        assert found is changed
        assert unpacked(body) == expected.get(b"r", Object())


@EXAMPLES
@given(ELEMENTS, DIRECTIVES)
def test_random_select_lists(element: Object, directives: Sequence[Directive]) -> None:
    chosen: dict[Names, bool] = {}
    for included, path in directives:
        chosen.setdefault(path, included)
    body = XML.select(packed(b"r", element), Selection(directives))
    assert unpacked(body) == selected(Object({b"r": element}), (), chosen, True).get(b"r", Object())
