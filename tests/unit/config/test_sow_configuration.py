"""SOW topics: what a valid configuration yields (sow.md §2.1, §3.1)."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from amps.config import ChainingConfig, RecoveryPoint, Severity, SowTopicConfig
from amps.config.model_queues import EPOCH
from tests.support.queue_configurations import configuration, element, logged, read, refusals

CHAINING = (
    "<Modules><Module><Name>chain</Name><Library>libamps_id_chaining_key_generator.so</Library></Module></Modules>"
)

EXAMPLE = """
  <Topic>
    <Name>trades</Name><MessageType>json</MessageType>
    <Key>/book</Key><Key>/tradeId</Key>
    <FileName>./sow/%n.sow</FileName>
    <Expiration>enabled</Expiration>
    <HashIndex><Key>/trader</Key></HashIndex>
    <Index>/price</Index>
  </Topic>
  <Topic>
    <Name>snapshots</Name><MessageType>json</MessageType><Key>/sku</Key>
    <FileName>./sow/%n.sow</FileName>
  </Topic>"""
HISTORY = "<History><Window>7d</Window><Granularity>15m</Granularity></History>"


def topic(inner: str, message_type: str = "json", name: str = "T") -> str:
    return element(name, inner, tag="Topic", message_type=message_type)


def read_topic(inner: str, rest: str | None = None, message_type: str = "json") -> SowTopicConfig:
    """The one topic of a text that is accepted without findings."""
    loaded = read(topic(inner, message_type), rest)
    assert loaded.findings == ()
    (found,) = loaded.config.sow_topics
    return found


def test_the_example_of_the_specification() -> None:
    """sow.md §2.1."""
    loaded = read(EXAMPLE)
    assert loaded.findings == ()
    trades, snapshots = loaded.config.sow_topics
    assert trades == SowTopicConfig(
        name="trades",
        message_type="json",
        keys=("/book", "/tradeId"),
        file_name=Path("sow/trades.json.sow"),
        expiration="enabled",
        hash_indexes=(("/trader",),),
        indexes=("/price",),
        place="c.xml:5",
    )
    assert (snapshots.name, snapshots.number) == ("snapshots", 1)
    assert snapshots.history is None


def test_history_is_refused() -> None:
    """sow.md §9: it would change the answers of queries, so it must not be ignored."""
    assert refusals(configuration(topic(f"<Key>/sku</Key><FileName>f</FileName>{HISTORY}"))) == [
        (
            9,
            "Topic/History",
            "not supported yet: History; a topic in the transaction log has former states without it",
        )
    ]


def test_defaults() -> None:
    """sow.md §2.1."""
    made = read_topic("<Key>/k</Key><FileName>t.sow</FileName>")
    assert made == SowTopicConfig(
        name="T", message_type="json", keys=("/k",), file_name=Path("t.sow"), place="c.xml:4"
    )
    assert (made.durability, made.recovery_point, made.expiration) == ("persistent", EPOCH, None)
    assert (made.slab_size_bytes, made.initial_slab_count, made.expected_keys) == (5 * 2**20, 1, 0)


def test_every_element() -> None:
    made = read_topic(
        "<Key>/a/b</Key><Key>/c</Key><KeyDomain>d</KeyDomain><Durability>transient</Durability>"
        "<RecoveryPoint>now</RecoveryPoint><Expiration>2s</Expiration><SlabSize>1MB</SlabSize>"
        "<InitialSlabCount>3</InitialSlabCount><HashIndex><Key>/x</Key><Key>/y</Key></HashIndex>"
        "<HashIndex><Key>/z</Key></HashIndex><Index>/p</Index><Index><Key>/q</Key></Index>"
        "<ExpectedKeyCountHint>1M</ExpectedKeyCountHint>"
        "<Preprocessing><Field>CONCAT(/c, '-') AS /a/b</Field></Preprocessing>"
        "<Enrichment><Field>COALESCE(/x, /x OF PREVIOUS) AS /x HINT OPTIONAL</Field>"
        "<Field>/p AS /q</Field></Enrichment>"
        "<Pattern>^/orders/</Pattern>"
    )
    assert made == SowTopicConfig(
        name="T",
        message_type="json",
        keys=("/a/b", "/c"),
        key_domain="d",
        durability="transient",
        recovery_point=RecoveryPoint("now", "now"),
        expiration=2.0,
        slab_size_bytes=2**20,
        initial_slab_count=3,
        hash_indexes=(("/x", "/y"), ("/z",)),
        indexes=("/p", "/q"),
        expected_keys=1_000_000,
        preprocessing=("CONCAT(/c, '-') AS /a/b",),
        enrichment=("COALESCE(/x, /x OF PREVIOUS) AS /x HINT OPTIONAL", "/p AS /q"),
        pattern="^/orders/",
        place="c.xml:4",
    )


def test_percent_n_stands_for_topic_and_message_type() -> None:
    """sow.md §25, 9."""
    loaded = read(topic("<Key>/k</Key><FileName>./sow/%n.sow</FileName>", name="desk"))
    assert loaded.config.sow_topics[0].file_name == Path("sow/desk.json.sow")


def test_a_recovery_point_may_be_a_time() -> None:
    """sow.md D37."""
    made = read_topic(
        "<Key>/k</Key><FileName>f</FileName><RecoveryPoint>20240102T030405Z</RecoveryPoint>"
    )
    moment = datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert made.recovery_point == RecoveryPoint("time", "", time_ns=int(moment.timestamp()) * 10**9)


@pytest.mark.parametrize(("text", "expiration"), [("disabled", None), ("Enabled", "enabled"), ("1h", 3600.0)])
def test_expiration(text: str, expiration: object) -> None:
    """sow.md §5."""
    made = read_topic(f"<Key>/k</Key><FileName>f</FileName><Expiration>{text}</Expiration>")
    assert made.expiration == expiration


def test_synonyms() -> None:
    """sow.md §2.1, D1."""
    for tag in ("TopicDefinition", "TopicMetaData"):
        loaded = read(
            f"<{tag}><Topic>a</Topic><MessageType>json</MessageType><Key>/k</Key><Duration>transient</Duration></{tag}>"
        )
        (made,) = loaded.config.sow_topics
        assert (made.name, made.durability, loaded.findings) == ("a", "transient", ())


def test_old_sizes_are_ignored_with_a_finding() -> None:
    """sow.md D1: files of old releases start."""
    for name in ("RecordSize", "IncrementSize", "InitialSize"):
        loaded = read(topic(f"<Key>/1</Key><FileName>f</FileName><{name}>512</{name}>", "fix"))
        (finding,) = loaded.findings
        assert finding.path == f"AMPSConfig/SOW/Topic/{name}"
        assert finding.text.startswith("has no effect: ")
        assert loaded.config.sow_topics[0].slab_size_bytes == 5 * 2**20


def test_without_key_publishers_provide_the_keys_also_of_binary_messages() -> None:
    """sow.md §3."""
    assert read_topic("<FileName>f</FileName>", logged("^T"), "binary").keys == ()


@pytest.mark.parametrize(
    ("options", "chaining"),
    [
        ("<Key>/doc</Key><Key>/parent</Key>", ChainingConfig("/doc", ("/parent",))),
        (
            "<Key>/a</Key><Key>/b</Key><Secondary>/c</Secondary><Validation>1</Validation><FileName>f</FileName>",
            ChainingConfig("/a", ("/b", "/c"), Path("f"), validation=True),
        ),
        (
            "<Key>/a</Key><Key>/b</Key><Primary>/c</Primary><Validation>false</Validation>",
            ChainingConfig("/c", ("/a", "/b")),
        ),
        ("<Primary>/c</Primary><Secondary>/d</Secondary>", ChainingConfig("/c", ("/d",))),
    ],
)
def test_the_key_generator_for_chains(options: str, chaining: ChainingConfig) -> None:
    """sow.md §3.1: with Primary, every Key is secondary."""
    made = read_topic(
        f"<Durability>transient</Durability><KeyGenerator><Module>chain</Module><Options>{options}</Options></KeyGenerator>",
        CHAINING,
    )
    assert made.key_generator == chaining


def test_options_of_the_generator_may_be_at_the_module() -> None:
    module = CHAINING.replace("</Library>", "</Library><Options><Key>/11</Key><Key>/41</Key></Options>")
    made = read_topic(
        "<Durability>transient</Durability><KeyGenerator><Module>chain</Module></KeyGenerator>", module, "fix"
    )
    assert made.key_generator == ChainingConfig("/11", ("/41",))


# --- accepted with a warning ---


@pytest.mark.parametrize(
    ("inner", "rest", "element_of_finding", "text"),
    [
        (
            "<Key>/k</Key><Durability>transient</Durability><FileName>f</FileName>",
            None,
            "FileName",
            "has no effect: a transient topic has no file",
        ),
        (
            "<Key>/k</Key><FileName>f</FileName><RecoveryPoint>now</RecoveryPoint>",
            "",
            "RecoveryPoint",
            "has no effect: the transaction log does not record this topic",
        ),
        (
            "<KeyGenerator><Module>chain</Module><Options><Key>/a</Key><Key>/b</Key></Options></KeyGenerator>"
            "<FileName>f</FileName>",
            CHAINING,
            "KeyGenerator/Options",
            "without FileName the chains are forgotten at a restart",  # D38
        ),
    ],
)
def test_what_may_surprise_is_a_warning(
    inner: str, rest: str | None, element_of_finding: str, text: str
) -> None:
    loaded = read(topic(inner), rest)
    (finding,) = loaded.findings
    assert (finding.severity, finding.path) == (
        Severity.WARNING,
        f"AMPSConfig/SOW/Topic/{element_of_finding}",
    )
    assert finding.text.startswith(text)
    assert len(loaded.config.sow_topics) == 1


def test_a_name_with_regex_characters_is_literal_with_a_warning() -> None:
    """sow.md §2.1, D24."""
    loaded = read(topic("<Key>/k</Key><FileName>f</FileName>", name="a.b"))
    (finding,) = loaded.findings
    assert finding.severity is Severity.WARNING
    assert "'a.b' holds characters of regular expressions" in finding.text


def test_percent_n_with_a_slash_in_the_name_is_a_warning() -> None:
    """sow.md §2.1."""
    loaded = read(topic("<Key>/k</Key><FileName>sow/%n.sow</FileName>", name="a/b"))
    (finding,) = loaded.findings
    assert "whose / leads to other directories" in finding.text
    assert loaded.config.sow_topics[0].file_name == Path("sow/a/b.json.sow")


def test_a_file_name_of_several_topics_may_be_written_once_with_percent_n() -> None:
    same = "<Key>/k</Key><FileName>%n.sow</FileName>"
    loaded = read(topic(same, name="a") + topic(same, name="b") + topic(same, "nvfix", name="a"))
    assert loaded.findings == ()
    assert [made.number for made in loaded.config.sow_topics] == [0, 1, 2]
