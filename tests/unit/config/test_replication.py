"""The configuration of replication: what is read, and each static error with its cure (replication.md §4, §5, §23)."""

from pathlib import Path

import pytest

from amps.config import Severity
from amps.config.model_base import ModuleUse
from amps.config.model_replication import (
    RECONNECT_TIMEOUTS_S,
    ClientTls,
    DestinationConfig,
    DestinationTransport,
    ReplicatedTopic,
)
from tests.support.certificates import Authority
from tests.unit.config.loading import errors_of, read, warnings_of

JSON = "<MessageType>json</MessageType>"
LOG = (
    "<TransactionLog><JournalDirectory>j</JournalDirectory>"
    f"<Topic><Name>^orders</Name>{JSON}</Topic><Topic><Name>t</Name>{JSON}</Topic></TransactionLog>"
)
TOPIC = f"<Topic><Name>t</Name>{JSON}</Topic>"
TRANSPORT = "<Transport><Type>amps-replication</Type><InetAddr>h2:10005</InetAddr></Transport>"
NAME = "<Name>b</Name>"
SYNC = "<SyncType>sync</SyncType>"
INCOMING = "<Transport><Name>{}</Name><Type>amps-replication</Type><InetAddr>10005</InetAddr></Transport>"


def destination(*parts: str) -> str:
    return f"<Destination>{''.join(parts)}</Destination>"


def whole(*destinations: str, log: str = LOG, rest: str = "") -> str:
    return f"{log}<Replication>{''.join(destinations)}</Replication>{rest}"


def only(inner: str) -> str:
    """The one error of a destination's elements, without the beginning of its path."""
    return only_of(whole(destination(inner)))


def only_of(inner: str) -> str:
    (error,) = errors_of(inner)
    return error.removeprefix("AMPSConfig/").removeprefix("Replication/Destination")


def test_every_element_of_a_destination() -> None:
    """replication.md §5, 25.2, 25.35"""
    loaded = read(
        whole(
            destination(
                NAME,
                "<Group>g</Group><SyncType>async</SyncType><PassThrough>^(east|west)$</PassThrough>",
                "<AckConflationInterval>50ms</AckConflationInterval><CompressionType>zstd</CompressionType>",
                f"<Topic><Name>^orders/</Name>{JSON}<Filter>/x &gt; 1</Filter>",
                "<ExcludeValidation>replicate, cascade</ExcludeValidation></Topic>",
                TOPIC,
                "<Transport><Name>first</Name><Type>amps-replication</Type><InetAddr>h2:1, h3:2</InetAddr>",
                "<InetAddr>[::1]:3</InetAddr><ReconnectTimeout>1s,10s</ReconnectTimeout><Compression>none</Compression>",
                "<IPProtocolPrefer>ipv6</IPProtocolPrefer></Transport>",
                "<Transport><Type>amps-replication</Type></Transport>",
            )
        )
    )
    assert loaded.findings == ()
    (found,) = loaded.config.destinations
    assert found == DestinationConfig(
        label="b",
        name="b",
        group="g",
        is_sync=False,
        topics=(
            ReplicatedTopic("^orders/", "json", True, "/x > 1", frozenset({"replicate", "cascade"})),
            ReplicatedTopic("t", "json"),
        ),
        transports=(
            DestinationTransport(
                name="first",
                type="amps-replication",
                addresses=(("h2", 1), ("h3", 2), ("::1", 3)),
                reconnect_timeouts_s=(1.0, 10.0),
                prefers_ipv6=True,
            ),
            DestinationTransport(name="amps-replication", type="amps-replication", compression="zstd"),
        ),
        pass_through="^(east|west)$",
        ack_conflation_s=0.05,
        place="c.xml:3",
    )
    assert loaded.config.replicates


def test_lz4_without_its_package_is_an_error_that_names_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decision 25.2: lz4 is an extra of the installation."""
    lz4 = NAME + SYNC + "<CompressionType>lz4</CompressionType>" + TOPIC + TRANSPORT
    monkeypatch.setattr("amps.config.replication.find_spec", lambda name: None)
    assert only(lz4) == (
        "/CompressionType: the compression lz4 needs a package that is missing: "
        "pip install 'amps-server[lz4]', or write zstd"
    )
    monkeypatch.setattr("amps.config.replication.find_spec", lambda name: object())
    assert read(whole(destination(lz4))).config.destinations[0].transports[0].compression == "lz4"


def test_the_defaults_of_a_destination() -> None:
    """replication.md §5, 25.1, 25.4: the group is the label without a name."""
    (found,) = read(whole(destination("<Group>g</Group>", SYNC, TOPIC, TRANSPORT))).config.destinations
    assert (found.label, found.name, found.is_sync) == ("g", None, True)
    assert (found.pass_through, found.ack_conflation_s) == (None, 1.0)
    assert found.transports[0].reconnect_timeouts_s == RECONNECT_TIMEOUTS_S == (1.0, 2.0, 5.0, 10.0, 30.0)


def test_without_regex_topic_support_a_topic_is_literal() -> None:
    """replication.md §5"""
    log = LOG.replace("<Name>t</Name>", "<Name>^x</Name>")
    topic = f"<Topic><Name>^x</Name>{JSON}</Topic>"
    loaded = read(
        whole(
            destination(NAME, SYNC, topic, TRANSPORT),
            log=log,
            rest="<RegexTopicSupport>false</RegexTopicSupport>",
        )
    )
    assert loaded.config.destinations[0].topics == (ReplicatedTopic("^x", "json", False),)


@pytest.mark.parametrize(
    ("inner", "error"),
    [
        (
            NAME + TOPIC + TRANSPORT,
            "/SyncType: the required element SyncType is missing; add it to Destination",
        ),
        (
            NAME + "<SyncType>maybe</SyncType>" + TOPIC + TRANSPORT,
            "/SyncType: 'maybe' is not accepted; write one of sync, async",
        ),
        (
            NAME + SYNC + TOPIC + "<Transport><Type>tcp</Type><InetAddr>h:1</InetAddr></Transport>",
            "/Transport/Type: 'tcp' is not accepted; write one of amps-replication, amps-replication-secure",
        ),
        (
            SYNC + TOPIC + TRANSPORT,
            ": Name and Group are missing; add Name with the name of the other instance, or Group with its group, "
            "or both",
        ),
        (NAME + SYNC + TRANSPORT, "/Topic: the required element Topic is missing; add it to Destination"),
        (NAME + SYNC + TOPIC, "/Transport: the required element Transport is missing; add it to Destination"),
        (
            NAME + SYNC + "<Topic><Name>t</Name><MessageType>jsn</MessageType></Topic>" + TRANSPORT,
            "/Topic/MessageType: unknown message type 'jsn'",
        ),
        (
            NAME + SYNC + TOPIC.replace(">t<", ">u<") + TRANSPORT,
            "/Topic/Name: the topic 'u' of the message type json is not recorded, so it is never replicated; add a "
            "Topic for it to TransactionLog, or remove it here",
        ),
        (
            NAME + SYNC + TOPIC.replace("json", "fix") + TRANSPORT,
            "/Topic/Name: the topic 't' of the message type fix is not recorded",
        ),
        (
            NAME + SYNC + TOPIC.replace(">t<", ">(t<") + TRANSPORT,
            "/Topic/Name: this is not a regular expression",
        ),
        (
            NAME
            + SYNC
            + TOPIC.replace("</Topic>", "<Filter>/a &lt; UNIX_TIMESTAMP()</Filter></Topic>")
            + TRANSPORT,
            "/Topic/Filter: this filter cannot be used: UNIX_TIMESTAMP is not deterministic",
        ),
        (
            NAME + SYNC + TOPIC.replace("</Topic>", "<Filter>/a =</Filter></Topic>") + TRANSPORT,
            "/Topic/Filter: this filter cannot be used",
        ),
        (
            NAME
            + SYNC
            + TOPIC.replace("</Topic>", "<ExcludeValidation>cascade,sovv</ExcludeValidation></Topic>")
            + TRANSPORT,
            "/Topic/ExcludeValidation: 'sovv' is no check; write some of txlog, replicate, sow, cascade, keys",
        ),
        (
            NAME + SYNC + TOPIC + TRANSPORT + "<PassThrough>(</PassThrough>",
            "/PassThrough: '(' is not a regular expression",
        ),
        (
            NAME + SYNC + TOPIC + TRANSPORT.replace("h2:10005", "10005"),
            "/Transport/InetAddr: '10005' names no server; write host:port",
        ),
        (
            NAME + SYNC + TOPIC + TRANSPORT.replace("h2:10005", "h2:10005,h2:10005"),
            "/Transport/InetAddr: the address h2:10005 is given twice; keep one of them",
        ),
        (
            NAME + SYNC + TOPIC + TRANSPORT.replace("<InetAddr>h2:10005</InetAddr>", ""),
            ": this destination has no InetAddr, so it waits for a connection of the other instance, but no transport "
            "accepts one; add InetAddr here, or a Transport of the type amps-replication",
        ),
        (
            NAME
            + SYNC
            + TOPIC
            + TRANSPORT.replace("</Type>", "</Type><ReconnectTimeout>0s</ReconnectTimeout>"),
            "/Transport/ReconnectTimeout: '0s' leaves no time to connect; write 1ms or more",
        ),
        (
            NAME + SYNC + TOPIC + TRANSPORT + "<Bandwidth>1</Bandwidth>",
            "/Bandwidth: unknown element; Destination knows",
        ),
        (
            NAME + SYNC + TOPIC + TRANSPORT.replace("</Type>", "</Type><Certificate>a.pem</Certificate>"),
            "/Transport/Certificate: Certificate has no meaning without TLS; give Type amps-replication-secure, or "
            "remove Certificate",
        ),
        (
            NAME.replace("b", "a\tb") + SYNC + TOPIC + TRANSPORT,
            "/Name: 'a\\tb' is no name of an instance or group; leave out tabs",
        ),
    ],
)
def test_static_errors_of_a_destination(inner: str, error: str) -> None:
    """replication.md §23, 25.1, 25.29: the server does not start, and the text tells what to change."""
    assert only(inner).startswith(error)


@pytest.mark.parametrize("check", ["queue", "queue_underlying"])
def test_replication_41_a_mandatory_check_cannot_be_excluded(check: str) -> None:
    """replication.md §26 41, 25.6"""
    topic = TOPIC.replace("</Topic>", f"<ExcludeValidation>{check}</ExcludeValidation></Topic>")
    assert only(NAME + SYNC + topic + TRANSPORT).startswith(
        f"/Topic/ExcludeValidation: the check {check} cannot be skipped"
    )


@pytest.mark.parametrize("topic", ["orders", "^orders/eu", ".*", "^t$", "orders|x"])
def test_topics_that_the_log_may_record_are_accepted(topic: str) -> None:
    """replication.md §23: whether two expressions have a topic in common is not known before messages arrive."""
    assert read(whole(destination(NAME, SYNC, TOPIC.replace(">t<", f">{topic}<"), TRANSPORT))).findings == ()


def test_an_expression_that_no_logged_name_matches_is_refused() -> None:
    """replication.md §23"""
    log = LOG.replace("^orders", "orders")
    topic = TOPIC.replace(">t<", ">^x<")
    assert "the topic '^x'" in only_of(whole(destination(NAME, SYNC, topic, TRANSPORT), log=log))


def test_the_name_of_a_queue_stands_for_its_acknowledgements() -> None:
    """replication.md §14.5: the name of a queue need not be recorded."""
    queue = f"<SOW><Queue><Name>q</Name>{JSON}<UnderlyingTopic>t</UnderlyingTopic></Queue></SOW>"
    topics = TOPIC + TOPIC.replace(">t<", ">q<")
    assert read(whole(destination(NAME, SYNC, topics, TRANSPORT), rest=queue)).findings == ()


def test_replication_needs_a_transaction_log() -> None:
    """replication.md §1, §23: for destinations, and for other instances that connect."""
    assert only_of(whole(destination(NAME, SYNC, TOPIC, TRANSPORT), log="")).startswith(
        "Replication: only messages in the transaction log are replicated; add TransactionLog"
    )
    assert only_of(f"<Transports>{INCOMING.format('r')}</Transports>").startswith(
        "Transports/Transport: an instance keeps what others send in its transaction log; add TransactionLog"
    )


def test_two_destinations_have_different_names() -> None:
    """replication.md §5: the label identifies a destination."""
    one = destination(NAME, SYNC, TOPIC, TRANSPORT)
    assert only_of(whole(one, one)).startswith("/Name: two destinations are called 'b'") or "[2]" in only_of(
        whole(one, one)
    )


def test_there_are_at_most_64_destinations() -> None:
    """replication.md §5: each has a line on the control page."""
    many = [destination(f"<Name>b{number}</Name>", SYNC, TOPIC, TRANSPORT) for number in range(65)]
    assert "an instance has at most 64 destinations" in only_of(whole(*many))
    assert len(read(whole(*many[:64])).config.destinations) == 64


def test_destinations_to_one_group_with_different_topics_give_a_warning() -> None:
    """replication.md 25.9"""
    group = "<Group>g</Group>"
    orders = TOPIC.replace(">t<", ">^orders<")
    first = destination(NAME, group, SYNC, TOPIC, TRANSPORT)
    broken = destination("<Name>x</Name>", SYNC, TRANSPORT)
    second = destination("<Name>c</Name>", group, SYNC, orders, TRANSPORT)
    (finding,) = read(whole(first, second)).findings
    assert finding.severity is Severity.WARNING
    assert finding.path.startswith("AMPSConfig/Replication/Destination")
    assert "lead to the group 'g' with different topics" in finding.text
    assert read(whole(first, second.replace(orders, TOPIC))).findings == ()
    assert read(whole(first, second.replace(group, ""))).findings == ()
    assert len(errors_of(whole(broken, first, second))) == 1


def test_a_destination_with_the_own_name_gives_a_warning() -> None:
    """replication.md §24.2: an instance does not replicate to itself (SELF)."""
    own = destination("<Name>n</Name>", SYNC, TOPIC, TRANSPORT)
    (finding,) = read(whole(own)).findings
    assert finding.severity is Severity.WARNING
    assert "has the name of the instance itself, 'n'" in finding.text


@pytest.mark.parametrize(("element", "text"), [("Name", "a\tb"), ("Group", "a\tb"), ("Group", "x" * 201)])
def test_names_that_other_instances_cannot_store(element: str, text: str) -> None:
    """They are parts of names in the logs of other instances, whose separators are white space."""
    name, group = ("<Name>n</Name>", f"<Group>{text}</Group>") if element == "Group" else (f"<Name>{text}</Name>", "")
    (error,) = errors_of(group + whole(destination(NAME, SYNC, TOPIC, TRANSPORT)), name)
    assert f"cannot be the {element} of an instance that replicates" in error
    assert read(group + LOG, name).config.destinations == ()


@pytest.mark.parametrize(
    ("topics", "underlying", "warned"),
    [
        ([("q", ""), ("t", "/x = 1")], "t", True),
        ([("q", "/x = 1"), ("t", "")], "t", True),
        ([("^[qt]$", "/x = 1")], "t", True),
        ([("q", ""), ("t", "/x = 1")], "^t", True),
        ([("q", ""), ("^t", "/x = 1")], "^t", True),
        ([("q", ""), ("t", ""), ("orders", "/x = 1")], "t", False),
        ([("t", "/x = 1")], "t", False),
        ([("q", ""), ("t", "")], "t", False),
    ],
)
def test_replication_14_a_filter_on_a_queue_gives_a_warning(
    topics: list[tuple[str, str]], underlying: str, warned: bool
) -> None:
    """replication.md §14.5, 7, §22: not for a copy of the messages without the queue."""
    listed = "".join(
        f"<Topic><Name>{name}</Name>{JSON}{f'<Filter>{text}</Filter>' if text else ''}</Topic>"
        for name, text in topics
    )
    queue = (
        f"<SOW><Queue><Name>q</Name>{JSON}<UnderlyingTopic>{underlying}</UnderlyingTopic>"
        "<DefaultPublishTarget>t</DefaultPublishTarget></Queue></SOW>"
    )
    found = [
        one
        for one in read(whole(destination(NAME, SYNC, listed, TRANSPORT), rest=queue)).findings
        if "of the queue 'q' that do not match" in one.text
    ]
    assert [one.severity for one in found] == [Severity.WARNING] * warned
    assert all(one.path.endswith("/Filter") for one in found)


# --- the incoming transport ---------------------------------------------------------------------------------


def test_the_transport_of_other_instances() -> None:
    """replication.md §4: it is none of the transports of applications, and its MessageType is ignored."""
    transport = INCOMING.format("r").replace(
        "</Type>",
        "</Type><MessageType>none-such</MessageType><Protocol>p</Protocol><InitialState>disabled</InitialState>",
    )
    loaded = read(f"{LOG}<Transports>{transport}</Transports>")
    assert [(finding.severity, finding.path.rpartition("/")[2]) for finding in loaded.findings] == [
        (Severity.INFO, "Protocol"),
        (Severity.INFO, "MessageType"),
    ]
    found = loaded.config.replication_transport
    assert found is not None
    assert (found.name, found.port, found.enabled, found.is_replication) == ("r", 10005, False, True)
    assert found.message_type is None
    assert loaded.config.transports == ()
    assert loaded.config.replicates
    assert not read(LOG).config.replicates


def test_replication_43_two_incoming_transports_are_an_error() -> None:
    """replication.md §26 43, §23"""
    two = INCOMING.format("r") + INCOMING.format("s").replace("10005", "10006")
    assert only_of(f"{LOG}<Transports>{two}</Transports>").endswith(
        "there is already a transport for replication, which serves any number of instances; remove one of them"
    )


def test_a_secure_incoming_transport_needs_a_certificate(authority: Authority) -> None:
    """replication.md §4, §23"""
    secure = INCOMING.format("r").replace("amps-replication", "amps-replication-secure")
    errors = errors_of(f"{LOG}<Transports>{secure}</Transports>")
    assert [error.rpartition(": ")[2] for error in errors] == [
        "Certificate is required for TLS; add Certificate with the path of a PEM file",
        "PrivateKey is required for TLS; add PrivateKey with the path of a PEM file",
    ]
    issued = authority.issue("localhost")
    pair = f"<Certificate>{issued.certificate}</Certificate><PrivateKey>{issued.private_key}</PrivateKey>"
    loaded = read(f"{LOG}<Transports>{secure.replace('</Type>', '</Type>' + pair)}</Transports>")
    found = loaded.config.replication_transport
    assert found is not None
    assert found.tls is not None
    unverified = secure.replace("</Type>", "</Type>" + pair + "<VerifyClient>true</VerifyClient>")
    assert "VerifyClient needs CAFile or CAPath" in only_of(f"{LOG}<Transports>{unverified}</Transports>")


def test_the_tls_of_an_outgoing_connection(authority: Authority) -> None:
    """replication.md §5, 25.50: the peer is verified with a CA. An own certificate is optional."""
    secure = "<Transport><Type>amps-replication-secure</Type><InetAddr>h:1</InetAddr>{}</Transport>"
    head = NAME + SYNC + TOPIC
    (found,) = read(whole(destination(head, secure.format("")))).config.destinations
    assert found.transports[0].tls == ClientTls()
    ca = f"<VerifyClient>true</VerifyClient><CAFile>{authority.certificate}</CAFile>"
    (found,) = read(whole(destination(head, secure.format(ca)))).config.destinations
    assert found.transports[0].tls == ClientTls(verify=True, ca_file=Path(authority.certificate))
    assert "VerifyClient needs CAFile or CAPath; name the certificates that sign the other" in only(
        head + secure.format("<VerifyClient>true</VerifyClient>")
    )
    issued = authority.issue("localhost")
    assert "Certificate needs PrivateKey" in only(
        head + secure.format(f"<Certificate>{issued.certificate}</Certificate>")
    )
    assert "PrivateKey needs Certificate" in only(
        head + secure.format(f"<PrivateKey>{issued.private_key}</PrivateKey>")
    )
    assert "does not exist" in only(
        head + secure.format("<Certificate>no.pem</Certificate><PrivateKey>no.key</PrivateKey>")
    )


# --- credentials --------------------------------------------------------------------------------------------

MODULES = (
    "<Modules><Module><Name>multi</Name><Library>/opt/lib/libamps_multi_authenticator.so</Library></Module>"
    "<Module><Name>exec</Name><Library>libamps_exec_authenticator.so</Library>{}</Module></Modules>"
)


def use(module: str, options: str = "") -> str:
    return f"<Authenticator><Module>{module}</Module><Options>{options}</Options></Authenticator>"


def test_the_authenticator_of_the_instance_and_of_a_transport() -> None:
    """replication.md §15"""
    own = use(
        "exec",
        "<Command>bin/token {{AMPS_USER_NAME}}</Command><UserName>u</UserName><MaxLength>2kb</MaxLength>",
    )
    loaded = read(
        whole(
            destination(NAME, SYNC, TOPIC, TRANSPORT.replace("</Type>", "</Type>" + own)),
            rest=MODULES.format("")
            + use(
                "amps-default-authenticator-module", "<User>me</User><PasswordFileName>f</PasswordFileName>"
            ),
        )
    )
    assert loaded.findings == ()
    default = "amps-default-authenticator-module"
    assert loaded.config.authenticator == ModuleUse(default, {"User": "me", "PasswordFileName": "f"}, default)
    assert loaded.config.destinations[0].transports[0].authenticator == ModuleUse(
        "libamps_exec_authenticator",
        {"Command": "bin/token {{AMPS_USER_NAME}}", "UserName": "u", "MaxLength": "2kb"},
        "exec",
    )


@pytest.mark.parametrize(
    ("authenticator", "error"),
    [
        (use("none-such"), "no authenticator module is called 'none-such'"),
        (use("amps-default-authenticator-module", "<Word>x</Word>"), "unknown option Word"),
        (
            use(
                "amps-default-authenticator-module",
                "<Password>a</Password><PasswordFileName>b</PasswordFileName>",
            ),
            "Password and PasswordFileName both give the password; keep one of them",
        ),
        (
            use("amps-default-authenticator-module", "<User>a</User><User>b</User>"),
            "User is given more than once",
        ),
        (use("exec", "<UserName>u</UserName>"), "Command is required by the module exec; add it to Options"),
        (use("exec", "<Command>c</Command>"), "UserName is required by the module exec; add it to Options"),
        (
            use("exec", "<Command>c</Command><UserName>u</UserName><MaxLength>0</MaxLength>"),
            "MaxLength: '0' is no length of a password",
        ),
        (use("multi"), "the module multi needs a method; add LDAP.Username and LDAP.PasswordFile to Options"),
        (use("multi", "<LDAP.Username>u</LDAP.Username>"), "LDAP.Username needs LDAP.PasswordFile"),
        (use("multi", "<LDAP.PasswordFile>u</LDAP.PasswordFile>"), "LDAP.PasswordFile needs LDAP.Username"),
        (
            use("multi", "<Kerberos.SPN>u</Kerberos.SPN><Kerberos.Keytab>k</Kerberos.Keytab>"),
            "not supported yet: Kerberos authentication of outgoing connections",
        ),
    ],
)
def test_replication_48_options_of_authenticators(authenticator: str, error: str) -> None:
    """replication.md §26 48, §15: the server does not start with incomplete credentials."""
    one = destination(NAME, SYNC, TOPIC, TRANSPORT)
    assert error in only_of(whole(one, rest=MODULES.format("") + authenticator))


def test_options_where_a_module_is_loaded_are_ignored() -> None:
    """replication.md §15: those of the modules for LDAP and commands count only inside Authenticator."""
    at_module = MODULES.format("<Options><Command>c</Command><MaxLength>5</MaxLength></Options>")
    own = use("exec", "<Command>d</Command><UserName>u</UserName>")
    loaded = read(whole(destination(NAME, SYNC, TOPIC, TRANSPORT), rest=at_module + own))
    assert warnings_of(loaded) == [
        "MaxLength of the entry in Modules has no effect; write it into Options of the Authenticator"
    ]
    assert loaded.config.authenticator is not None
    assert loaded.config.authenticator.options == {"Command": "d", "UserName": "u"}


# --- tuning -------------------------------------------------------------------------------------------------


def tuning(text: str) -> str:
    return f"<Tuning><Replication><MinSyncDestinations>{text}</MinSyncDestinations></Replication></Tuning>"


def test_the_minimum_of_sync_destinations() -> None:
    """replication.md §8, 25.5, 25.54: a number; a name is refused."""
    one = destination(NAME, SYNC, TOPIC, TRANSPORT)
    loaded = read(whole(one, rest=tuning("1")))
    assert (loaded.config.min_sync_destinations, loaded.findings) == (1, ())
    assert "'b' is no number; names of instances are not accepted here" in only_of(
        whole(one, rest=tuning("b"))
    )
    assert "'0' protects no destination" in only_of(whole(one, rest=tuning("0")))
    (warning,) = warnings_of(read(whole(one, rest=tuning("2"))))
    assert warning.startswith("only 1 destinations are sync")
    (warning,) = warnings_of(read(tuning("2")))
    assert warning.startswith("no destination is sync, so this instance is never ready")
    assert read(whole(one)).config.min_sync_destinations is None
