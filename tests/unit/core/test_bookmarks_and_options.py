"""Bookmarks and options as text: the grammars of transaction_log.md §5 and protocol.md §10, and malformed text."""

import contextlib
import datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amps.journal.bookmark_text import format_bookmark
from amps.server.transport.bookmarks import (
    BookmarkRange,
    MessagePoint,
    Points,
    parse_bookmark,
)
from amps.server.transport.failures import CommandFailure
from amps.server.transport.options import (
    COLUMNS,
    TOKENS,
    Conflating,
    Options,
    Rate,
    RateKind,
    parse_interval,
    parse_logon_options,
    parse_options,
    split_options,
)

u64 = st.integers(1, (1 << 64) - 1)
blanks = st.sampled_from(["", " ", "  "])


@given(u64, u64)
def test_bookmark_written_is_read_again(publisher: int, sequence: int) -> None:
    text = format_bookmark(publisher, sequence)
    assert text == f"{publisher}|{sequence}|"
    assert parse_bookmark(text) == BookmarkRange(Points(messages=(MessagePoint(publisher, sequence),)))


def test_bookmark_of_an_empty_log() -> None:
    """transaction_log.md §20 19."""
    assert format_bookmark(0, 0) == "0"
    assert parse_bookmark("0") == BookmarkRange(Points(epoch=True))


@given(
    st.lists(st.one_of(st.tuples(u64, u64), st.sampled_from(["0", "0|1|", "0|1"])), min_size=1, max_size=6),
    blanks,
)
def test_bookmark_lists(items: list[tuple[int, int] | str], blank: str) -> None:
    """transaction_log.md §5.1, §20 8: any mixture, with blanks around the points."""
    texts = [item if isinstance(item, str) else f"{item[0]}{blank}|{blank}{item[1]}|" for item in items]
    bookmark = parse_bookmark(f"{blank},{blank}".join(texts))
    assert bookmark.end is None
    assert bookmark.is_now == (set(items) <= {"0|1|", "0|1"})
    point = bookmark.begin
    assert point.epoch == ("0" in items)
    assert point.now == any(item in ("0|1|", "0|1") for item in items)
    assert point.messages == tuple(MessagePoint(*item) for item in items if not isinstance(item, str))


@pytest.mark.parametrize("text", ["7|8", "7|8|", "7|8|extra", "7|8|extra|", " 7 | 8 | "])
def test_bookmark_a_third_part_is_ignored(text: str) -> None:
    """transaction_log.md §20 41."""
    assert parse_bookmark(text) == BookmarkRange(Points(messages=(MessagePoint(7, 8),)))


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "abc", "2015-01-02", "[A:B", "A:B]", "[:]", "[1|1|:]", "[:1|1|]", "(1|1|]", "1", "1|", "|1", "-1|1|",
        "1|-1|", "1|1|2|3|", ",", "0,", ",0", "0,,0", "1|1|;2|2|", "18446744073709551616|1|", "1|18446744073709551616|",
        "20240301T09300", "20240301T093000+0100", "0x1|1|", "1|1|\n2|2|", "１|1|", "٣|1|",
    ],
)  # fmt: skip
def test_bookmark_malformed(text: str) -> None:
    """transaction_log.md §20 6, §22 68: a failure with this reason, and no other exception."""
    with pytest.raises(CommandFailure) as caught:
        parse_bookmark(text)
    assert caught.value.reason == "invalid bookmark"


@given(
    st.datetimes(datetime.datetime(1970, 1, 1), datetime.datetime(2200, 1, 1)),
    st.text("0123456789", max_size=9),
    st.booleans(),
)
def test_bookmark_moments(moment: datetime.datetime, fraction: str, zone: bool) -> None:
    """transaction_log.md §5.2, §20 10: UTC with and without `Z`; digits below a microsecond are cut off."""
    moment = moment.replace(microsecond=int((fraction or "0").ljust(6, "0")[:6]), tzinfo=datetime.UTC)
    text = moment.strftime("%Y%m%dT%H%M%S") + (f".{fraction}" if fraction else "") + ("Z" if zone else "")
    since = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    expected = since // datetime.timedelta(microseconds=1)
    assert parse_bookmark(text) == BookmarkRange(Points(times_us=(expected,)))


@pytest.mark.parametrize(
    "text",
    ["20240230T000000", "20241301T000000", "20240301T240000", "20240301T000060", "20240301T000000.", "00000101T000000",
     "20240301T000000.1234567890", "20240301T000000z", "20240301t000000", "2024 301T000000"],
)  # fmt: skip
def test_bookmark_malformed_moments(text: str) -> None:
    with pytest.raises(CommandFailure) as caught:
        parse_bookmark(text)
    assert caught.value.reason == "invalid bookmark"


def test_bookmark_ranges() -> None:
    """transaction_log.md §5.3: each side is a list of any bookmarks, and each bracket has its own meaning."""
    one, two = MessagePoint(1, 1), MessagePoint(2, 2)
    for begin in "[(":
        for end in "])":
            parsed = parse_bookmark(f" {begin} 1|1| , 0 : 2|2|,0|1,20240301T000000 {end} ")
            assert parsed.begin == Points(epoch=True, messages=(one,))
            assert parsed.end == Points(now=True, messages=(two,), times_us=(1_709_251_200_000_000,))
            assert (parsed.begin_inclusive, parsed.end_inclusive) == (begin == "[", end == "]")
            assert not parsed.is_now
    assert not parse_bookmark("(0|1|:0|1|]").is_now


@given(st.text(max_size=40))
@example("[" * 1000)
@example("1|" * 1000)
def test_bookmark_arbitrary_text_is_a_failure_and_nothing_else(text: str) -> None:
    try:
        bookmark = parse_bookmark(text)
    except CommandFailure:
        return
    for point in filter(None, (bookmark.begin, bookmark.end)):
        assert point.epoch or point.now or point.messages or point.times_us


# Options


@pytest.mark.parametrize("command", COLUMNS)
@given(text=st.text(max_size=60))
@example(text="=")
@example(text="[" * 500 + ",")
@example(text="rate=,")
def test_options_arbitrary_text_is_a_failure_and_nothing_else(command: str, text: str) -> None:
    with contextlib.suppress(CommandFailure):
        parse_options(text, command, bookmark=True)
    with contextlib.suppress(CommandFailure):
        parse_logon_options(text)


@pytest.mark.parametrize("command", COLUMNS)
@pytest.mark.parametrize("name", TOKENS)
def test_options_are_taken_where_they_are_documented(command: str, name: str) -> None:
    """protocol.md §10: in other commands they are `invalid options`."""
    columns, takes_value = TOKENS[name]
    text = f"{name}=1s" if takes_value else name
    with_value = f"{name}=1" if not takes_value else name
    documented = COLUMNS[command] in columns
    for attempt, acceptable in ((text, documented), (with_value, documented and name == "pretty")):
        try:
            parse_options(attempt, command, bookmark=True)
        except CommandFailure as failure:
            refused_here = failure.reason == "invalid options" and "has no option" in str(failure)
        else:
            assert acceptable
            refused_here = False
        assert refused_here == (not documented)


@given(st.lists(st.sampled_from(["replace", "timestamp", "bookmark", "none", "non_regex_topic", ""])), blanks)
def test_options_blanks_empty_items_and_repetition(items: list[str], blank: str) -> None:
    options = parse_options(f"{blank},{blank}".join(items), "subscribe", bookmark=False)
    assert options == Options(
        replace="replace" in items,
        timestamp="timestamp" in items,
        bookmark="bookmark" in items,
        non_regex_topic="non_regex_topic" in items,
    )


@given(st.lists(st.sampled_from(["a", "b=[1,2,[3,4]]", 'c="x,y"', "d=(1,2)", "e='u,v'", ""]), min_size=1))
def test_options_brackets_and_quotes_keep_commas(items: list[str]) -> None:
    assert list(split_options(",".join(items))) == items


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("1s", 1),
        ("2", 2),
        ("1.5m", 90),
        (".5h", 1800),
        ("10us", 1e-5),
        ("3 S", 3),
        ("1w", 604800),
    ],
)
def test_options_intervals(text: str, seconds: float) -> None:
    assert parse_interval(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["5300w", "50000w", "9" * 30, "9" * 400 + "d"])
def test_options_intervals_beyond_a_bound_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="longer than a hundred years"):
        parse_interval(text)
    conflation = f"conflation={text},conflation_key=[/k]"
    for option in (f"rate=1X,rate_max_gap={text}", conflation):
        with pytest.raises(CommandFailure, match="longer than a hundred years") as caught:
            parse_options(option, "subscribe", True)
        assert caught.value.reason == "invalid options"
    with pytest.raises(CommandFailure, match="longer than a hundred years"):
        parse_logon_options(f"ack_conflation={text}")


@pytest.mark.parametrize("text", ["", "s", "1y", "-1s", "1 2s", "1e3s", "1ss", "nan", "inf", "1,5s", "٣s"])
def test_options_malformed_intervals(text: str) -> None:
    with pytest.raises(ValueError, match="no interval"):
        parse_interval(text)


@pytest.mark.parametrize(
    "text",
    [
        "live,rate=10", "live,pause", "live,resume", "live,fully_durable", "pause,resume", "rate_max_gap=1s", "rate=0",
        "rate=-1", "rate=x", "rate=", "rate=٣", "bookmark_not_found=later", "bookmark_not_found", "max_backlog=x",
        "max_backlog=²", "grouping=[/a]", "projection=[/a]", "skip_n=2", "conflation_key=[/k]", "conflation=often",
        "ack_conflation=1s",
    ],
)  # fmt: skip
def test_options_transaction_log_38_conflicts(text: str) -> None:
    """transaction_log.md §22 38, §20 22; protocol.md §10."""
    with pytest.raises(CommandFailure) as caught:
        parse_options(text, "subscribe", bookmark=True)
    assert caught.value.reason == "invalid options"


@pytest.mark.parametrize("text", ["rate=10", "fully_durable", "bookmark_not_found=now"])
def test_options_of_replays_need_a_bookmark(text: str) -> None:
    with pytest.raises(CommandFailure) as caught:
        parse_options(text, "subscribe", bookmark=False)
    assert caught.value.reason == "invalid options"


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("rate=1000", Rate(RateKind.MESSAGES, 1000)),
        ("rate=.5", Rate(RateKind.MESSAGES, 0.5)),
        ("rate=500KB", Rate(RateKind.BYTES, 500 * 1024)),
        ("rate= 2m", Rate(RateKind.BYTES, 2 * 1024**2)),
        ("rate=1.5Gb", Rate(RateKind.BYTES, 1.5 * 1024**3)),
        ("rate=2X", Rate(RateKind.SPEED, 2)),
        ("rate=.5x,rate_max_gap=250ms", Rate(RateKind.SPEED, 0.5, 0.25)),
    ],
)
def test_options_rates(text: str, rate: Rate) -> None:
    """transaction_log.md §8, §20 21"""
    assert parse_options(text, "subscribe", bookmark=True).rate == rate


def test_options_conflation_of_a_replay() -> None:
    """transaction_log.md §11: keys are fields of any depth."""
    text = "conflation = 250ms ,conflation_key= [ /id, /a/b ]"
    parsed = parse_options(text, "subscribe", bookmark=True).conflating
    assert parsed == Conflating(0.25, ((b"id",), (b"a", b"b")))
    automatic = parse_options("conflation=auto,conflation_key=[/k]", "subscribe", bookmark=True)
    assert automatic.conflating == Conflating(None, ((b"k",),))
    assert parse_options("conflation=none,conflation_key=[/k]", "subscribe", bookmark=True).conflating is None


@pytest.mark.parametrize(
    "text",
    ["conflation=1s,conflation_key=/k", "conflation=1s,conflation_key=[]", "conflation_key=[/k]",
     "conflation=1s,conflation_key=[1]", "conflation=1s,conflation_key=[/a + /b]",
     "conflation=1s,conflation_key=[/a/b[]", "conflation=soon,conflation_key=[/k]",
     "conflation=1s,conflation_key=[/a[1]]", "conflation=1s,conflation_key=[/k,]",
     "conflation=99999999w,conflation_key=[/k]"],
)  # fmt: skip
def test_options_malformed_conflation(text: str) -> None:
    with pytest.raises(CommandFailure) as caught:
        parse_options(text, "subscribe", bookmark=True)
    assert caught.value.reason == "invalid options"


def test_options_of_a_logon() -> None:
    assert parse_logon_options("").ack_conflation_s == 1.0
    assert parse_logon_options("ack_conflation = 10ms").ack_conflation_s == pytest.approx(0.01)
    for text in ("ack_conflation=soon", "ack_conflation", "replace"):
        with pytest.raises(CommandFailure):
            parse_logon_options(text)
