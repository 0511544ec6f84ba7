"""Options of streams: refusals, and their texts."""

import re

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from amps.spark.streaming_options import JournalOptions, ServerOptions, Start, stream_options

URI = "tcp://user:secret@localhost:9007/amps/json"


def server(**changes: str) -> ServerOptions:
    parsed = stream_options({"uri": URI, "topic": "t", **changes})
    assert isinstance(parsed, ServerOptions)
    return parsed


def journals(**changes: str) -> JournalOptions:
    parsed = stream_options({"path": "/log", **changes})
    assert isinstance(parsed, JournalOptions)
    return parsed


def test_defaults() -> None:
    found = server()
    assert (found.uri, found.topic, found.filter, found.start) == (URI, "t", None, Start("0"))
    assert (found.messages_max, found.partitions, found.client_name) == (None, 1, "spark")
    assert (found.timeout_s, found.schema, found.message_type) == (60.0, None, "json")
    other = journals()
    assert (other.start, other.messages_max, other.bytes_max, other.partitions) == (
        Start("0"),
        None,
        None,
        None,
    )


def test_the_password_is_not_shown() -> None:
    assert server().address == "tcp://user@localhost:9007/amps/json"


def test_options_of_both_kinds() -> None:
    found = server(
        Max_Messages_Per_Batch="10", partitions="3", filter="/a > 1", schema="a int", timeout_s="2.5"
    )
    assert (found.messages_max, found.partitions, found.filter) == (10, 3, "/a > 1")
    assert (found.schema, found.timeout_s) == ("a int", 2.5)
    other = journals(
        max_messages_per_batch="10", max_bytes_per_batch="5", partitions="3", kind="publish", topic="t"
    )
    assert (other.messages_max, other.bytes_max, other.partitions) == (10, 5, 3)
    assert other.read.selection.names_topics


def test_a_message_type_joins_the_uri() -> None:
    assert server(uri="tcp://localhost:1/amps", message_type="nvfix").message_type == "nvfix"
    assert server(uri="tcp://localhost:1/amps").message_type is None


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("epoch", Start("0")),
        ("EPOCH", Start("0")),
        ("0", Start("0")),
        (" now ", Start("0|1|")),
        ("0|1", Start("0|1|")),
        ("12|34|", Start("12|34|", message=(12, 34))),
        ("12|34", Start("12|34|", message=(12, 34))),
        ("20260102T030405.5Z", Start("20260102T030405.5Z", time_us=1767323045500000)),
    ],
)
def test_the_start_of_a_stream(text: str, start: Start) -> None:
    """transaction_log.md §5.1, §5.2."""
    assert server(start=text).start == journals(start=text).start == start


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give either the option 'uri'"),
        ({"uri": URI, "path": "/log", "topic": "t"}, "give either the option 'uri'"),
        ({"uri": URI}, "the option 'topic' is missing"),
        ({"uri": "tcp://nowhere", "topic": "t"}, "option uri: "),
        (
            {"uri": URI, "topic": "t", "kind": "publish"},
            "unknown option 'kind': the options of a stream from",
        ),
        ({"uri": URI, "topic": "t", "from": "0"}, "the option 'from' is not for streams: use 'start'"),
        ({"path": "/log", "to": "0"}, "the option 'to' is not for streams: use a batch read"),
        ({"path": "/log", "pushdown": "true"}, "the option 'pushdown' is not for streams"),
        ({"path": "/log", "filter": "/a = 1"}, "the option 'filter' belongs to a live server"),
        (
            {"path": "/log", "topics": "t"},
            "unknown option 'topics': the options of a stream from a journal directory are archive, instance, kind, "
            "max_bytes_per_batch, max_messages_per_batch, on_damage, partitions, path, report, schema, split_bytes, "
            "start, topic",
        ),
        ({"uri": URI, "topic": "["}, "the option 'topic' is no valid expression: '[': compilation failed"),
        (
            {"path": "/log", "topic": "["},
            "the option 'topic' is no valid expression: '[': compilation failed",
        ),
        ({"uri": URI, "topic": "t", "partitions": "0"}, "the option 'partitions' is '0'"),
        ({"uri": URI, "topic": "t", "partitions": "1001"}, "from 1 to 1000"),
        ({"path": "/log", "max_messages_per_batch": "-1"}, "the option 'max_messages_per_batch' is '-1'"),
        ({"path": "/log", "max_bytes_per_batch": "1MB"}, "the option 'max_bytes_per_batch' is '1MB'"),
        ({"path": "/log", "start": "yesterday"}, "the option 'start' is 'yesterday': it must be 'epoch'"),
        ({"path": "/log", "start": "25000101T000000"}, "lies in the future: use 'now'"),
        ({"uri": URI, "topic": "t", "client_name": "a/b"}, "option client_name must be"),
        ({"uri": URI, "topic": "t", "timeout_s": "0"}, "option timeout_s must be"),
    ],
)
def test_mistakes(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        stream_options(options)
