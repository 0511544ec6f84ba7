"""Filters in a configuration are compiled when it is read."""

import pytest

from amps.config import ConfigError, load

LOG = """<AMPSConfig><Name>n</Name><TransactionLog><JournalDirectory>j</JournalDirectory>
<Topic><Name>a</Name><MessageType>json</MessageType>
<Filter>{}</Filter></Topic></TransactionLog></AMPSConfig>"""


def test_transaction_log_20_1_a_topic_can_be_recorded_by_content() -> None:
    """transaction_log.md §20 item 1"""
    log = load("c.xml", text=LOG.format("/a > 1 AND /b LIKE 'x'")).config.transaction_log
    assert log is not None
    assert log.topics[0].filter == "/a > 1 AND /b LIKE 'x'"


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("/a =", "character 5"),
        ("NOSUCH(/a) = 1", "there is no function NOSUCH"),
        ("SUM(/a) > 5", "aggregates"),
    ],
)
def test_expressions_14_7_a_bad_filter_stops_the_start(written: str, reason: str) -> None:
    """expressions.md §14.7"""
    with pytest.raises(ConfigError) as refusal:
        load("c.xml", text=LOG.format(written.replace(">", "&gt;")))
    (finding,) = refusal.value.findings
    assert (finding.line, finding.path) == (3, "AMPSConfig/TransactionLog/Topic/Filter")
    assert finding.text.startswith("this filter cannot be used: ")
    assert reason in finding.text
