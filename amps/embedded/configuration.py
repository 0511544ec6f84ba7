"""The configuration of an embedded server: made from arguments, or given as text, file or element."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

MESSAGE_TYPES = ("json", "fix", "nvfix", "xml", "bson", "msgpack", "bflat", "binary")
"""The message types for which a recorded topic is recorded, unless it names one."""

Topics = Iterable[str | tuple[str, str]]
"""Names or regular expressions of topics, recorded for every standard message type; or (name, message type)."""

Queues = Iterable[str] | Mapping[str, Mapping[str, object]]
"""Names of queues, or names with elements of their configuration, such as {"work": {"LeasePeriod": "2s"}}."""


SowTopics = Mapping[str, str | Sequence[str] | Mapping[str, object]]
"""Names of SOW topics with a key field, a list of them, or elements of their configuration, such as
{"orders": {"Key": "/id", "Expiration": "30s"}}. An element with a list of values is repeated."""


def configuration_text(*, topics: Topics, sow: SowTopics, queues: Queues, extra_config: str) -> str:
    """Return a configuration with one transport for all message types. `${PORT}` in it is the port. Raises TypeError,
    ValueError for wrong arguments.
    """
    if isinstance(topics, str) or isinstance(queues, str):
        raise TypeError("topics and queues are lists of names, not one name")
    if not isinstance(sow, Mapping):
        raise TypeError(f"sow has the keys of each topic, such as {{'orders': '/id'}}: {sow!r}")
    recorded = "".join(
        f"    <Topic><Name>{escape(name)}</Name><MessageType>{escape(message_type)}</MessageType></Topic>\n"
        for topic in topics
        for name, message_type in (
            [(topic, each) for each in MESSAGE_TYPES] if isinstance(topic, str) else [topic]
        )
    )
    log = (
        "  <TransactionLog>\n    <JournalDirectory>./journal</JournalDirectory>\n"
        # Short files and waits: a start makes one file, and programs wait for acknowledgements.
        "    <JournalSize>10MB</JournalSize>\n    <PreallocatedJournalFiles>1</PreallocatedJournalFiles>\n"
        "    <FlushInterval>1ms</FlushInterval>\n"
        f"{recorded}  </TransactionLog>\n"
        if recorded
        else ""
    )
    elements = queues if isinstance(queues, Mapping) else {name: {} for name in queues}
    if elements and not recorded:
        raise ValueError("queues need recorded topics: a queue refers to messages of the transaction log")
    # A SOW topic stands before the queues: a queue may deliver its messages.
    defined = "".join(_sow_topic(name, given) for name, given in sow.items())
    defined += "".join(_queue(name, given) for name, given in elements.items())
    return (
        "<AMPSConfig>\n  <Name>AMPS-Embedded</Name>\n  <Transports>\n    <Transport>\n      <Name>any-tcp</Name>\n"
        "      <Type>tcp</Type>\n      <InetAddr>127.0.0.1:${PORT}</InetAddr>\n      <Protocol>amps</Protocol>\n"
        "    </Transport>\n  </Transports>\n"
        f"{log}{f'  <SOW>{defined}</SOW>' if defined else ''}\n"
        "  <Logging><Target><Protocol>stdout</Protocol><Level>info</Level></Target></Logging>\n"
        "  <Tuning><Transport><Workers>1</Workers></Transport></Tuning>\n"
        f"{extra_config}\n</AMPSConfig>\n"
    )


def _queue(name: str, elements: Mapping[str, object]) -> str:
    if not isinstance(elements, Mapping):
        raise TypeError(
            f"the elements of the queue {name!r} are a mapping, such as {{'LeasePeriod': '2s'}}: {elements!r}"
        )
    return _definition("Queue", {"Name": name, "MessageType": "json", **elements})


def _sow_topic(name: str, given: str | Sequence[str] | Mapping[str, object]) -> str:
    elements = given if isinstance(given, Mapping) else {"Key": given}
    if elements.get("Durability", elements.get("Duration")) != "transient":
        elements = {"FileName": "./sow/%n.sow", **elements}
    return _definition("Topic", {"Name": name, "MessageType": "json", **elements})


def _definition(kind: str, elements: Mapping[str, object]) -> str:
    """An element of `SOW`. A list of values stands for several elements of one name."""
    inner = "".join(
        f"<{tag}>{escape(str(value))}</{tag}>"
        for tag, given in elements.items()
        for value in (given if isinstance(given, list | tuple) else [given])
    )
    return f"<{kind}>{inner}</{kind}>"


def as_text(configuration: Any) -> str:
    """Return the text of a configuration: of a text, of a file's path, or of an element of xml.etree or lxml.

    Raises TypeError for other objects, OSError if the file cannot be read.
    """
    if isinstance(configuration, str) and configuration.lstrip("\ufeff \t\r\n").startswith("<"):
        return configuration
    if isinstance(configuration, str | os.PathLike):
        return Path(configuration).read_text(encoding="utf-8")
    if not hasattr(configuration, "tag"):
        raise TypeError(f"a configuration is a text, a path or an element, not {type(configuration).__name__}")
    if type(configuration).__module__.startswith("lxml"):
        from lxml import etree

        return etree.tostring(configuration, encoding="unicode")
    from xml.etree import ElementTree

    return ElementTree.tostring(configuration, encoding="unicode")
