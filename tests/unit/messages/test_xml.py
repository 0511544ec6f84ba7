"""Fields of XML documents (expressions.md §12.3, §12.4, §14) and well-formedness, both compared with expat."""

import xml.parsers.expat
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from amps.messages import make_message_types
from amps.messages.settings import TypeSettings
from amps.messages.xml import XmlType
from tests.unit.messages.reading import Found, Path, matches, read

XML = XmlType(TypeSettings("xml", "xml"), {})
EXAMPLES = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
X = b'<Trade ref="T-9"><Sym>ACME</Sym><Qty>250</Qty><Leg>buy</Leg><Leg>sell</Leg><Memo/></Trade>'


def path(text: str) -> Path:
    """A path written as `/a/b[1]/@c`."""
    steps: list[bytes | int] = []
    for step in text.split("/")[1:]:
        name, _, subscript = step.partition("[")
        steps.append(name.encode())
        if subscript:
            steps.append(int(subscript[:-1]))
    return tuple(steps)


def found(message: bytes, *paths: str) -> list[Found] | None:
    return read(XML.extractor(), message, [path(text) for text in paths])


@pytest.mark.parametrize(
    ("message", "text", "wanted"),
    [
        # expressions.md §13 row 107
        (X, "/Trade/@ref = 'T-9' AND /Trade/Qty = 250 AND /Trade/Memo IS NULL", True),
        # expressions.md §13 row 108
        (X, "/Trade/Leg = 'sell'", True),
        (X, "/Trade/Leg[0] = 'sell'", False),
        # expressions.md §15 item 39
        (b'<O u="f"><S>I</S></O>', "/O/@u = 'f' AND /O/S = 'I'", True),
        (b'<O u="f"><S>I</S></O>', "/S = 'I'", False),
        (b"<O><S/></O>", "/O/S IS NULL", True),
        # expressions.md §15 item 40
        (b'<O p="90.25"/>', '/O/@p LIKE "^90\\..*" AND /O/@p < 91.0', True),
        # §14.3: text and number of one field
        (b"<O><c>0042</c></O>", "/O/c = 42 AND /O/c = '0042' AND NOT /O/c = '42'", True),
        # §14.4: a container exists, but has no value
        (b"<O><c><d>1</d></c></O>", "/O/c IS NOT NULL AND NOT /O/c = 1 AND NOT /O/c != 1", True),
        (b"<O><c x='1'/></O>", "/O/c IS NOT NULL", True),
        # §14.11: blanks around an element's text do not belong to it; those around an attribute's text do
        (b"<O a=' 5 '><c> 5\n</c><d> \t\r\n </d></O>", "/O/c = 5 AND /O/c = '5' AND /O/d IS NULL", True),
        (b"<O a=' 5 '/>", "/O/@a = ' 5 '", True),
        # An empty message has no fields and is no error (§12.3).
        (b"", "/a IS NULL", True),
    ],
)
def test_filters(message: bytes, text: str, wanted: bool) -> None:
    assert matches(XML.extractor(), message, text) is wanted


@pytest.mark.parametrize(
    ("message", "paths", "values"),
    [
        (b"<a>1</a>", ["/a", "/b"], [[1], []]),
        (b"<a>1.50</a>", ["/a"], [[1.5]]),
        (b"<a>x<b>y</b> z </a>", ["/a", "/a/b"], [[b"x z"], [b"y"]]),
        (b"<a> <b/> x <!-- c --> y <?p i?> z <b/> </a>", ["/a", "/a/b"], [[b"x  y  z"], [None, None]]),
        (b"<a>&lt;&gt;&amp;&apos;&quot;</a>", ["/a"], [[b"<>&'\""]]),
        (b"<a>&#65;&#x41;&#xe9;&#8364;&#x1F600;</a>", ["/a"], [["AAé€😀".encode()]]),
        (b"<a>4<![CDATA[2]]></a>", ["/a"], [[42]]),
        (b"<a><![CDATA[ <b>&amp;]] > ]]></a>", ["/a", "/a/b"], [[b"<b>&amp;]] >"], []]),
        (b"<a><![CDATA[]]></a>", ["/a"], [[None]]),
        (b"<a>x\r\ny\rz\n</a>", ["/a"], [[b"x\ny\nz"]]),
        (b"<a b='x\r\ny\rz\n\t&#10;&#9;'/>", ["/a/@b"], [[b"x y z  \n\t"]]),
        (b"<a b='' c=\"'\" d = '\"'/>", ["/a/@b", "/a/@c", "/a/@d"], [[None], [b"'"], [b'"']]),
        # Prefixes are part of the names (§12.4).
        (
            b"<n:a xmlns:n='u'><n:b n:c='1'>2</n:b><b>3</b></n:a>",
            ["/n:a/n:b", "/n:a/b", "/n:a/n:b/@n:c"],
            [[2], [3], [1]],
        ),
        # The name of an attribute is not the name of an element.
        (b"<a b='1'><b>2</b></a>", ["/a/b", "/a/@b"], [[2], [1]]),
        (b"<a><b>1</b><c><b>2</b></c><b>3</b></a>", ["/a/b", "/a/c/b", "/a/c"], [[1, 3], [2], [...]]),
        # Text longer than the elements around it, in pieces within each other.
        (b"<a>1<b>2<c>3<d/>4</c>5</b>6</a>", ["/a", "/a/b", "/a/b/c"], [[16], [25], [34]]),
        (b"\xef\xbb\xbf<?xml version='1.0'?><!DOCTYPE a><a>1</a>\n<!-- end -->\n", ["/a"], [[1]]),
        (b"<!DOCTYPE a [<!ENTITY b \"]><c>\"><!-- ' ]> --><?p ' ?>]><a>1</a>", ["/a"], [[1]]),
    ],
)
def test_fields(message: bytes, paths: list[str], values: list[Found]) -> None:
    assert found(message, *paths) == values


def test_subscripts_count_elements_of_one_name_in_one_element() -> None:
    message = b"<a><g><l s='1'>x</l><m/><l s='2'/></g><g><l s='3'/><l s='4'>y</l><l s='5'/></g></a>"
    assert found(
        message, "/a/g/l[0]/@s", "/a/g/l[1]/@s", "/a/g[1]/l/@s", "/a/g[1]/l[2]/@s", "/a/g[2]/l/@s"
    ) == [
        [1, 3],
        [2, 4],
        [3, 4, 5],
        [5],
        [],
    ]
    assert found(message, "/a[0]/g[0]/l", "/a[1]/g/l", "/a/g/l") == [
        [b"x", ...],
        [],
        [b"x", ..., ..., b"y", ...],
    ]
    # An extractor counts by node; counts start again with another message and with other fields.
    extractor = XML.extractor()
    for _ in range(3):
        assert read(extractor, message, [path("/a/g[1]/l[1]/@s")]) == [[4]]
        assert read(extractor, message, [path("/a/g[0]/m"), path("/a/g[0]/l[1]/@s")]) == [[None], [2]]


@pytest.mark.parametrize(
    "message",
    [
        b"x",
        b"<",
        b"<a",
        b"<a>",
        b"<a/",
        b"</a>",
        b"<a></b>",
        b"<a></ab>",
        b"<ab></a>",
        b"<a><b></a></b>",
        b"<a/><b/>",
        b"<a/>x",
        b"x<a/>",
        b"<!-- x -->",
        b"< a/>",
        b"<1/>",
        b"<a b/>",
        b"<a b=c/>",
        b"<a b='1'c='2'/>",
        b"<a b='1' b='2'/>",
        b"<a b='<'/>",
        b"<a b='1\"/>",
        b"<a>&</a>",
        b"<a>& b;</a>",
        b"<a>&b;</a>",
        b"<a>&lt</a>",
        b"<a>&#;</a>",
        b"<a>&#x;</a>",
        b"<a>&#0;</a>",
        b"<a>&#8;</a>",
        b"<a>&#xD800;</a>",
        b"<a>&#xFFFF;</a>",
        b"<a>&#x110000;</a>",
        b"<a>&#99999999999999999999;</a>",
        b"<a>&#12a;</a>",
        b"<a>]]></a>",
        b"<a>\x01</a>",
        b"<a>\x00</a>",
        b"<a b='\x02'/>",
        b"<a><!-- \x03 --></a>",
        b"<a><!-- -- --></a>",
        b"<a><!-- --->  </a>",
        b"<a><!-- </a>",
        b"<a><![CDATA[</a>",
        b"<a><![CDATA[\x04]]></a>",
        b"<![CDATA[x]]><a/>",
        b"<a><!DOCTYPE a></a>",
        b"<!DOCTYPE a><!DOCTYPE a><a/>",
        b"<!DOCTYPE a [<a/>",
        b" <?xml version='1.0'?><a/>",
        b"<a><?xml version='1.0'?></a>",
        b"<a><?XML x?></a>",
        b"<a><??></a>",
        b"<a><?p</a>",
    ],
)
def test_documents_that_are_not_well_formed(message: bytes) -> None:
    assert found(message, "/a") is None
    # This also holds in unwanted elements.
    assert found(message, "/x") is None
    assert found(message, "/x/y", "/a/z/z") is None
    assert not expat_reads(message).well_formed


def test_entities_are_never_expanded() -> None:
    laughs = b"".join(b'<!ENTITY l%d "%b">' % (n, b"&l%d;" % (n - 1) * 10) for n in range(1, 10))
    message = b'<!DOCTYPE a [<!ENTITY l0 "lol">' + laughs + b"]><a>%b</a>"
    assert found(message % b"&l9;", "/a") is None
    assert found(message % b"&l0;", "/a") is None
    assert found(message % b"x", "/a") == [[b"x"]]
    assert found(
        b"<!DOCTYPE a SYSTEM 'file:///etc/passwd' [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><a>1</a>", "/a"
    ) == [[1]]


def test_levels() -> None:
    """expressions.md §12.3: more than 64 levels are an error."""
    names = [b"e%d" % level for level in range(65)]
    for levels, parsed in ((64, True), (65, False)):
        opened = b"".join(b"<%b>" % name for name in names[:levels])
        closed = b"".join(b"</%b>" % name for name in reversed(names[:levels]))
        message = opened + b"1" + closed
        assert read(XML.extractor(), message, [tuple(names[:levels])]) == ([[1]] if parsed else None)
        # This also holds in unwanted elements.
        assert (found(message, "/x") is not None) is parsed
    # The extractor reads further messages after it.
    extractor = XML.extractor()
    assert read(extractor, b"<a>" * 1000, [path("/a")]) is None
    assert read(extractor, b"<a>1</a>", [path("/a")]) == [[1]]


def test_nothing_is_parsed_when_no_field_is_wanted() -> None:
    """expressions.md §12.3: a message is parsed only if something needs its fields."""
    assert found(b"<not even xml") == []


@pytest.mark.parametrize("count", [1, 2, 4, 5, 6, 20, 95, 96, 97, 98, 300])
def test_an_attribute_occurs_once_in_an_element(count: int) -> None:
    names = [b"n%d" % number * (1 + number % 3 * 9) for number in range(count)]
    written = [b" %b='%d'" % (name, number) for number, name in enumerate(names)]
    paths: list[Path] = [(b"e", b"@" + name) for name in names]
    assert read(XML.extractor(), b"<e" + b"".join(written) + b"/>", paths) == [[n] for n in range(count)]
    for first, again in {(0, 0), (0, count - 1), (count - 1, 0), (count // 2, count // 3)}:
        more = [*written[: again + 1], b" %b=''" % names[first], *written[again + 1 :]]
        assert read(XML.extractor(), b"<e" + b"".join(more) + b"/>", paths) is None


def test_many_attributes_and_pieces() -> None:
    attributes = b"".join(b' a%d="%d"' % (n, n) for n in range(50_000))
    assert found(b"<e" + attributes + b"/>", "/e/@a49999", "/e/@a0") == [[49999], [0]]
    assert found(b"<e" + attributes + b" a31='x'/>", "/e/@a1") is None
    assert found(b"<e>" + b"x<f/>" * 50_000 + b"</e>", "/e") == [[b"x" * 50_000]]


@pytest.mark.parametrize(
    ("module", "first", "wanted"),
    [
        ("composite-local", (b"0",), [[1, ...], [9], [2], [], []]),
        ("composite-local", (b"2",), [[7], [], [], [], []]),
        ("composite-global", (), [[1, ..., 7], [9], [2], [5], [6]]),
    ],
)
def test_documents_as_parts_of_a_message(module: str, first: Path, wanted: list[Found]) -> None:
    """Paths begin anywhere in the tree of wanted fields, and one set of values receives those of all parts (§12.6)."""
    declared = [TypeSettings("xml", "xml"), TypeSettings("nvfix", "nvfix")]
    types = make_message_types([*declared, TypeSettings("parts", module, parts=("xml", "nvfix", "xml"))])
    parts = [b"<T x='9'><a>1</a><a><b>2</b></a></T>", b"b=5\x01c=6", b"<T><a>7</a></T>"]
    message = b"".join(len(part).to_bytes(4, "big") + part for part in parts) + b"<rest"
    paths = [path("/T/a"), path("/T/@x"), path("/T/a[1]/b"), path("/b"), path("/c")]
    assert read(types["parts"].extractor(), message, [(*first, *steps) for steps in paths]) == wanted


@dataclass
class Reading:
    """Expat's result for a document: values by path, in this project's form."""

    well_formed: bool = False
    values: list[tuple[Path, bytes]] = field(default_factory=list)


def expat_reads(message: bytes) -> Reading:
    """The values by path. In these paths each step but the first follows its number among siblings of the same name."""
    parser = xml.parsers.expat.ParserCreate()
    parser.buffer_text = True
    reading = Reading()
    steps: list[bytes] = []
    texts: list[list[str]] = []

    def opened(name: str, attributes: dict[str, str]) -> None:
        steps.append(name.encode())
        texts.append([])
        for attribute, text in attributes.items():
            reading.values.append(((*steps, b"@" + attribute.encode()), text.encode()))

    def closed(_: str) -> None:
        text = "".join(texts.pop()).strip(" \t\r\n")
        reading.values.append((tuple(steps), text.encode()))
        steps.pop()

    parser.StartElementHandler = opened
    parser.EndElementHandler = closed
    parser.CharacterDataHandler = lambda text: texts[-1].append(text)
    try:
        parser.Parse(message, True)
    except xml.parsers.expat.ExpatError:
        return reading
    reading.well_formed = True
    return reading


NAMES = st.sampled_from(["a", "b", "c", "n:a", "_x", "é", "long-name.of.an-element"])
TEXTS = st.lists(
    st.one_of(
        st.sampled_from(
            ["x", "42", "0.5", " ", "\n", "\r\n", "\r", "\t", "é", "😀", "]", "]]", ">", "'", '"', "=", "/"]
        ),
        st.sampled_from(
            ["&lt;", "&amp;", "&#x41;", "&#9;", "&#10;", "&#13;", "&#32;", "&quot;", "&#x1F600;"]
        ),
        st.text(
            alphabet=st.characters(codec="utf-8", exclude_characters="<&\r", exclude_categories=["C"]),
            max_size=20,
        ),
    ),
    max_size=4,
).map(lambda parts: "".join(parts).replace("]]>", "").rstrip("]"))
MISCELLANEOUS = st.sampled_from(
    ["<!---->", "<!-- - <a> &x; -->", "<?p?>", "<?p <a> ? &x; ?>", "<?xml-style x?>"]
)


@st.composite
def elements(draw: st.DrawFn, levels: int = 4) -> str:
    name = draw(NAMES)
    blank = draw(st.sampled_from(["", " ", "\n\t"]))
    attributes = ""
    for attribute in draw(st.lists(NAMES, max_size=3, unique=True)):
        quote = draw(st.sampled_from("'\""))
        equals = draw(st.sampled_from(["=", " = ", "\n="]))
        attributes += f" {blank}{attribute}{equals}{quote}{draw(TEXTS).replace(quote, '')}{quote}"
    if draw(st.integers(0, 4)) == 0:
        return f"<{name}{attributes}{blank}/>"
    pieces = [
        TEXTS,
        TEXTS,
        MISCELLANEOUS,
        st.sampled_from(["<![CDATA[ ]]>", "<![CDATA[<a>&amp;\r\n]]]]>", "<![CDATA[]]>"]),
    ]
    if levels:
        pieces += [elements(levels - 1)] * 3
    content = "".join(draw(st.lists(st.one_of(pieces), max_size=5)))
    return f"<{name}{attributes}{blank}>{content}</{name}{blank}>"


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    prolog = draw(
        st.sampled_from(["", "\ufeff", "<?xml version='1.0' encoding=\"UTF-8\"?>", "<?xml version='1.0'?>\n"])
    )
    prolog += draw(
        st.sampled_from(["", "\n", "<!-- x -->", "<!DOCTYPE a>", "<!DOCTYPE a [<!ELEMENT a ANY><!-- > -->]>"])
    )
    return (prolog + draw(elements()) + draw(st.sampled_from(["", "\n", "<!-- x -->\n", "<?p?>"]))).encode()


def agrees(message: bytes) -> None:
    """Compare with expat: well-formedness, and all values."""
    expected = expat_reads(message)
    paths = list(dict.fromkeys([*(path for path, _ in expected.values), (b"nothing",)]))
    values = read(XML.extractor(), message, paths)
    assert (values is not None) is expected.well_formed
    assert (read(XML.extractor(), message, [(b"nothing",)]) is not None) is expected.well_formed
    if values is None:
        return
    for wanted, got in zip(paths, values, strict=True):
        texts = [text for path, text in expected.values if path == wanted]
        assert len(got) == len(texts)
        for value, text in zip(got, texts, strict=True):
            if value is None or value is ...:
                assert text == b""
            elif isinstance(value, bytes):
                assert value == text
            else:
                assert isinstance(value, int | float)
                assert value == float(text) or value == int(text)


@EXAMPLES
@given(documents())
@example(b"<a>\xc2\x85 \xe2\x80\xa8</a>")
def test_documents_are_read_as_by_expat(message: bytes) -> None:
    assert expat_reads(message).well_formed
    agrees(message)


@EXAMPLES
@given(documents(), st.data())
def test_damaged_documents_are_refused_where_expat_refuses_them(message: bytes, data: st.DataObject) -> None:
    """Pieces of markup are inserted, removed and doubled, without damage that needs a DTD or an encoding to detect."""
    for _ in range(data.draw(st.integers(1, 2))):
        at = data.draw(st.integers(0, len(message) - 1))
        behind = min(len(message), at + data.draw(st.integers(0, 3)))
        piece = data.draw(
            st.sampled_from(list(b"<>&;/='\"!?-[] ax\n\x01")).map(lambda byte: bytes([byte]))
            | st.just(b"]]>")
        )
        message = message[:at] + piece + message[behind:]
    try:
        message.decode()
    except UnicodeDecodeError:
        return
    if b"<!DOCTYPE" in message or b"<?xml" in message or message.startswith(b"<!"):
        assert read(XML.extractor(), message, [(b"a",)]) is not None or not expat_reads(message).well_formed
        return
    agrees(message)


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=60)
    | st.lists(st.sampled_from([b"<", b"a", b">", b"/", b"&", b"]]>", b"<![CDATA["])).map(b"".join)
)
def test_any_bytes_are_accepted_or_refused(message: bytes) -> None:
    extractor = XML.extractor()
    read(extractor, message, [(b"a",)])
    read(extractor, b"<a>" + message + b"</a>", [(b"a",), (b"a", b"@a")])
    assert read(extractor, b"<a>1</a>", [(b"a",)]) == [[1]]


def test_unwanted_elements_are_skipped() -> None:
    kinds = [b"", b"1", b"]", b"]]", b"&lt;", b"<!---->", b"<![CDATA[<w>]]>", b"<v/>", b"<w>0</w>", b"x" * 40]
    leaves = [b"<v>" + content + b"</v>" for content in kinds] + [b"<v a='1'>2</v>", b"<v >2</v >", b"<v/>"]
    for leaf in leaves:
        assert found(b"<r>" + leaf + b"<w>7</w>" + leaf + b"</r>", "/r/w") == [[7]]
        assert found(b"<s>" + leaf + b"</s>", "/r/w") == [[]]
        assert found(b"<r>" + leaf + b"</r>", "/r") == [[...]]
    for broken in (
        b"<v>1</vv>",
        b"<v>1</w>",
        b"<v>1</v",
        b"<v>1",
        b"<v>]]></v>",
        b"<v>\x01</v>",
        b"<v>&x;</v>",
        b"<v>1<v>",
    ):
        assert found(b"<r>" + broken + b"</r>", "/r/w") is None
        assert found(b"<r>" + broken, "/r/w") is None


def test_counting_is_that_of_the_document() -> None:
    """Many siblings, read with and without subscripts."""
    names = [b"abc"[n % 3 : n % 3 + 1] for n in range(300)]
    message = b"<r>" + b"".join(b"<%b n='%d'/>" % (name, n) for n, name in enumerate(names)) + b"</r>"
    seen: Counter[bytes] = Counter()
    paths: list[Path] = []
    for name in names:
        paths.append((b"r", name, seen[name], b"@n"))
        seen[name] += 1
    assert read(XML.extractor(), message, paths) == [[n] for n in range(300)]
