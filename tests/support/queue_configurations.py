"""Texts of configurations with message queues, and the findings about them."""

from amps.config import ConfigError, LoadedConfig, QueueConfig, Severity, load

TOPICS = ("^T", "^Q", "^JOB_")
"""The topics that the transaction log of `configuration` records, in json."""


def logged(*topics: str) -> str:
    """`TransactionLog` with these topics, in json."""
    entries = "".join(
        f"<Topic><Name>{topic}</Name><MessageType>json</MessageType></Topic>\n" for topic in topics
    )
    return f"<TransactionLog><JournalDirectory>j</JournalDirectory>\n{entries}</TransactionLog>"


def element(name: str, inner: str = "", tag: str = "Queue", message_type: str = "json") -> str:
    """One queue, each of its elements on a line of its own."""
    lines = inner.replace("><", ">\n<")
    return f"<{tag}>\n<Name>{name}</Name>\n<MessageType>{message_type}</MessageType>\n{lines}\n</{tag}>"


def configuration(sow: str, rest: str | None = None, name: str = "<Name>here</Name>") -> str:
    """A whole text. `rest`: the elements beside `SOW`; None: a transaction log with TOPICS."""
    rest = logged(*TOPICS) if rest is None else rest
    return f"<AMPSConfig>\n{name}\n<SOW>\n{sow}\n</SOW>\n{rest}\n</AMPSConfig>"


def read(sow: str, rest: str | None = None) -> LoadedConfig:
    """The configuration that the text gives."""
    return load("c.xml", text=configuration(sow, rest))


def read_queue(sow: str, rest: str | None = None) -> QueueConfig:
    """The one queue of a text that is accepted without findings."""
    loaded = read(sow, rest)
    assert loaded.findings == ()
    (queue,) = loaded.config.queues
    return queue


def refusals(text: str) -> list[tuple[int, str, str]]:
    """Line, path below `SOW` (or the whole path) and text of each error."""
    try:
        load("c.xml", text=text)
    except ConfigError as refusal:
        return [
            (finding.line, finding.path.removeprefix("AMPSConfig/SOW/"), finding.text)
            for finding in refusal.findings
            if finding.severity is Severity.ERROR
        ]
    return []


def refusal(sow: str, rest: str | None = None) -> tuple[int, str, str]:
    """The one error of a text, whose line must be one of the configuration."""
    (found,) = refusals(configuration(sow, rest))
    assert found[0] > 0
    return found
