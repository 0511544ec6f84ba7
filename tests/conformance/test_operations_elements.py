"""Every element of a configuration takes effect or is reported: operations.md §1.9, and all elements that it lists.

`tests/support/elements.py` defines the proof. A new element needs two values here.
"""

from dataclasses import replace
from pathlib import Path

import pytest

import amps.config
from amps.config.elements import ROOT
from amps.config.readers import read_text
from amps.config.schema import Block, Leaf
from tests.support.admin import get
from tests.support.certificates import Authority
from tests.support.elements import READ_SPY, Case, Field, Prover, read_fields
from tests.support.patched_servers import patched
from tests.support.peer import RawClient
from tests.support.ports import release_port, reserve_port
from tests.support.server import StartServer, numbered_bodies

JSON = "<MessageType>json</MessageType>"
LOG = "<TransactionLog><JournalDirectory>journal</JournalDirectory><Topic><Name>.*</Name>{}</Topic></TransactionLog>"
DEFAULT_AUTHENTICATION = "amps-default-authentication-module"
SIMPLE = "<Modules><Module><Name>s</Name><Library>libamps_simple_access_entitlement.so</Library></Module></Modules>"
SIMPLE_OPTIONS = "<AllowedTopics>{}</AllowedTopics>"
DATES = "<Library>libamps_udf_legacy_compatibility.so</Library>"

USES_OWN = (
    "<UserDefinedFunctions><Function><Name>f</Name><Module>own</Module><Symbol>one</Symbol></Function>"
    "</UserDefinedFunctions>"
)
USES_PROTOCOL = (
    "<Transports><Transport><Name>t</Name><Type>tcp</Type><InetAddr>1</InetAddr><Protocol>p</Protocol></Transport>"
    "</Transports>"
)

SIBLINGS = {
    "": "<Name>n</Name>",
    "Transports/Transport": "<Name>t</Name><Type>tcp</Type><InetAddr>1</InetAddr>",
    "Admin": "<InetAddr>8085</InetAddr>",
    "Logging/Target": "<Protocol>file</Protocol><FileName>a</FileName><Level>info</Level>",
    "SOW/Topic": f"<Name>T</Name>{JSON}<Durability>transient</Durability>",
    "SOW/Queue": f"<Name>Q</Name>{JSON}",
    "SOW/LocalQueue": f"<Name>Q</Name>{JSON}",
    "SOW/GroupLocalQueue": f"<Name>Q</Name>{JSON}<InitialOwner>n</InitialOwner>",
    "TransactionLog": f"<JournalDirectory>j</JournalDirectory><Topic><Name>a</Name>{JSON}</Topic>",
    "TransactionLog/Topic": f"<Name>a</Name>{JSON}",
    "Modules/Module": f"<Name>m</Name>{DATES}",
    "MessageTypes/MessageType": "<Name>m</Name><Module>nvfix</Module>",
    "Protocols/Protocol": "<Name>p</Name><Module>amps</Module>",
    "Replication/Destination": (
        f"<Name>b</Name><SyncType>sync</SyncType><Topic><Name>a</Name>{JSON}</Topic>"
        "<Transport><Type>amps-replication</Type><InetAddr>h:1</InetAddr></Transport>"
    ),
    "Replication/Destination/Topic": f"<Name>a</Name>{JSON}",
    "Replication/Destination/Transport": "<Type>amps-replication</Type><InetAddr>h:1</InetAddr>",
    "Actions/Action": "<On><Module>amps-action-on-startup</Module></On>",
    "Actions/Action/Do": "<Module>amps-action-do-nothing</Module>",
}


def security(prefix: str) -> dict[str, Case]:
    """The modules of the instance, of a transport or of the interface."""
    return {
        f"{prefix}Authentication/Module": Case(DEFAULT_AUTHENTICATION, "amps-implicit-authentication-module"),
        f"{prefix}Authentication/Options": Case(
            "<AllowSpoofing>true</AllowSpoofing>",
            "<AllowSpoofing>false</AllowSpoofing>",
            beside=f"<Module>{DEFAULT_AUTHENTICATION}</Module>",
        ),
        f"{prefix}Entitlement/Module": Case(
            "amps-default-entitlement-module", "amps-default-no-entitlement-module"
        ),
        f"{prefix}Entitlement/Options": Case(
            SIMPLE_OPTIONS.format("a"), SIMPLE_OPTIONS.format("b"), beside="<Module>s</Module>", around=SIMPLE
        ),
    }


def tls(files: Path, prefix: str, beside: str) -> dict[str, Case]:
    """Elements of TLS. Each file exists twice, as `a` and as `b`."""
    certificate, key = f"<Certificate>{files}/a.pem</Certificate>", f"<PrivateKey>{files}/a.key</PrivateKey>"
    return {
        f"{prefix}Certificate": Case(f"{files}/a.pem", f"{files}/b.pem", beside=f"{beside}{key}"),
        f"{prefix}PrivateKey": Case(f"{files}/a.key", f"{files}/b.key", beside=f"{beside}{certificate}"),
        f"{prefix}Ciphers": Case("ECDHE+AESGCM", "ECDHE+CHACHA20", beside=beside + certificate + key),
    }


def queue_cases(kind: str) -> dict[str, Case]:
    """Elements that every kind of queue has. Kinds that need further elements have them in SIBLINGS."""
    log = LOG.format(JSON)
    own = "<InitialOwner>n</InitialOwner>" if kind == "GroupLocalQueue" else ""
    two = LOG.format(JSON).replace("</TransactionLog>", "") + (
        "<Topic><Name>.*</Name><MessageType>fix</MessageType></Topic></TransactionLog>"
    )
    over = f"{SIBLINGS[f'SOW/{kind}']}<UnderlyingTopic>^T</UnderlyingTopic>"
    values = {
        "Name": ("Q", "P"),
        "MessageType": ("json", "fix"),
        "UnderlyingTopic": ("T", "U"),
        "DefaultPublishTarget": ("T1", "T2"),
        "Semantics": ("at-least-once", "at-most-once"),
        "LeasePeriod": ("1s", "2s"),
        "MaxBacklog": ("1", "2"),
        "MaxPerSubscriptionBacklog": ("1", "2"),
        "Expiration": ("1s", "2s"),
        "ExpirationModel": ("queue", "latest"),
        "Filter": ("/a = 1", "/a = 2"),
        "RecoveryPoint": ("epoch", "now"),
        "FairnessModel": ("fast", "round-robin"),
        "Leasing": ("strict", "sublet"),
        "MaxDeliveries": ("1", "2"),
        "MaxCancels": ("1", "2"),
        "CancelDelay": ("1s", "2s"),
        "CancelDelayFactor": ("2", "3"),
        "CancelDelayMax": ("1m", "2m"),
        "OrderingKey": ("/a", "/b"),
        "Priority": ("/a", "/b"),
        "BarrierExpression": ("/a = 1", "/a = 2"),
        "TargetQueueDepth": ("1000", "2000"),
        "DeferredAckExpiration": ("1s", "2s"),
        "InitialOwner": ("n", "other"),
        "GroupLocalQueueDomain": ("d", "e"),
    }
    delayed = f"{SIBLINGS[f'SOW/{kind}']}<CancelDelay>1s</CancelDelay>"
    beside = {
        "DefaultPublishTarget": over,
        "MessageType": f"<Name>Q</Name>{own}",
        "CancelDelayFactor": delayed,
        "CancelDelayMax": delayed,
    }
    return {
        f"SOW/{kind}/{name}": Case(
            *both, beside=beside.get(name), around=two if name == "MessageType" else log
        )
        for name, both in values.items()
    }


NOT_READ_YET = {
    *(("SowTopicConfig", name) for name in ("hash_indexes", "indexes", "expected_keys")),
    ("ChainingConfig", "secondaries"),
}
"""Indexes and the expected number of keys have no effect yet (sow.md §2.1). `everything` has no chained keys."""


def sow_topic_cases() -> dict[str, Case]:
    """The elements of SOW topics."""
    chain = (
        "<Modules><Module><Name>chain</Name><Library>libamps_id_chaining_key_generator.so</Library></Module></Modules>"
    )
    bare = f"<Name>T</Name>{JSON}<Durability>transient</Durability>"
    keyed = f"<Name>T</Name>{JSON}<Key>/k</Key>"
    generator = "<Module>chain</Module><Options><Key>/a</Key><Key>/b</Key></Options>"
    values = {
        "Name": ("T", "U"),
        "MessageType": ("json", "nvfix"),
        "FileName": ("a.sow", "b.sow"),
        "Durability": ("transient", "persistent"),
        "RecoveryPoint": ("epoch", "now"),
        "Expiration": ("1s", "enabled"),
        "Key": ("/a", "/b"),
        "KeyDomain": ("a", "b"),
        "SlabSize": ("1MB", "2MB"),
        "InitialSlabCount": ("1", "2"),
        "HashIndex/Key": ("/a", "/b"),
        "Index": ("/a", "<Key>/b</Key>"),
        "ExpectedKeyCountHint": ("1k", "1M"),
        "Preprocessing/Field": ("1 AS /a", "2 AS /a"),
        "Enrichment/Field": ("1 AS /a", "/a OF PREVIOUS AS /a"),
        "Pattern": ("^a", "^b"),
    }
    beside = {
        "FileName": keyed,
        "KeyDomain": f"{bare}<Key>/k</Key>",
        "Durability": f"{keyed}<FileName>f</FileName>",
    }
    around = {"RecoveryPoint": LOG.format(JSON)}
    topic = "SOW/Topic/"
    return {
        topic + "KeyGenerator/Module": Case(
            "chain", "nothing", beside="<Options><Key>/a</Key><Key>/b</Key></Options>", around=chain
        ),
        topic + "KeyGenerator/Options": Case(
            "<Key>/a</Key><Key>/b</Key>",
            "<Key>/a</Key><Key>/c</Key>",
            beside="<Module>chain</Module>",
            around=chain,
        ),
        "SOW/TopicDefinition": Case(f"{bare}<Key>/a</Key>", f"{bare}<Key>/b</Key>"),
        "SOW/TopicMetaData": Case(
            f"{bare}<KeyGenerator>{generator}</KeyGenerator>", f"{bare}<Key>/b</Key>", around=chain
        ),
        **{
            topic + name: Case(*both, beside=beside.get(name), around=around.get(name, ""))
            for name, both in values.items()
        },
    }


def replication_cases(files: Path) -> dict[str, Case]:
    """The elements of destinations, and those of the instance that belong to replication."""
    log = LOG.format(JSON)
    prefix = "Replication/Destination/"
    way, one = f"{prefix}Transport/", f"{prefix}Topic/"
    usual = SIBLINGS["Replication/Destination"]
    fix = "<Topic><Name>.*</Name><MessageType>fix</MessageType></Topic></TransactionLog>"
    two_types = log.replace("</TransactionLog>", fix)
    secure = "<Type>amps-replication-secure</Type><InetAddr>h:1</InetAddr>"
    verified = f"{secure}<VerifyClient>true</VerifyClient>"
    authenticator = "<Module>amps-default-authenticator-module</Module>"
    destination = f"{log}<Replication><Destination>{usual}</Destination></Replication>"
    cases = {
        prefix + "Name": Case("b", "c"),
        prefix + "Group": Case("g", "h"),
        prefix + "SyncType": Case("sync", "async"),
        prefix + "PassThrough": Case("^g$", "^h$"),
        prefix + "AckConflationInterval": Case("1s", "2s"),
        prefix + "CompressionType": Case("zlib", "zstd"),
        prefix + "Compression": Case("zlib", "zstd"),
        one + "Name": Case("a", "b"),
        one + "MessageType": Case("json", "fix", around=two_types),
        one + "Filter": Case("/a = 1", "/a = 2"),
        one + "ExcludeValidation": Case("sow", "keys"),
        way + "Name": Case("t", "u"),
        way + "Type": Case("amps-replication", "amps-replication-secure"),
        way + "InetAddr": Case("h:1", "h:2"),
        way + "ReconnectTimeout": Case("1s", "2s"),
        way + "Authenticator/Module": Case("amps-default-authenticator-module", "no-such-module"),
        way + "Authenticator/Options": Case("<User>u</User>", "<User>v</User>", beside=authenticator),
        way + "CompressionType": Case("zlib", "zstd"),
        way + "Compression": Case("zlib", "zstd"),
        way + "IPProtocolPrefer": Case("ipv4", "ipv6"),
        **security(way),
        **tls(files, way, secure),
        way + "SecureSocketProtocols": Case("TLSv1.2", "TLSv1.3", beside=secure),
        way + "VerifyClient": Case("true", "false", beside=f"{secure}<CAFile>{files}/ca.pem</CAFile>"),
        way + "CAFile": Case(f"{files}/ca.pem", f"{files}/ca2.pem", beside=verified),
        way + "CAPath": Case(str(files), f"{files}/more", beside=verified),
    }
    return {
        "Authenticator/Module": Case(
            "amps-default-authenticator-module", "no-such-module", around=destination
        ),
        "Authenticator/Options": Case("<User>u</User>", "<User>v</User>", beside=authenticator, around=destination),
        "Admin/ExternalInetAddr": Case("h:1", "h:2"),
        "Tuning/Replication/MinSyncDestinations": Case("1", "2", around=destination),
        **{
            path: case if "<TransactionLog>" in case.around else replace(case, around=case.around + log)
            for path, case in cases.items()
        },
    }


def all_cases(files: Path) -> dict[str, Case]:
    transport = "Transports/Transport/"
    unix = "<Name>t</Name><Type>amps-unix</Type>"
    over_tls = (
        "<Name>t</Name><Type>tcps</Type><InetAddr>1</InetAddr>"
        f"<Certificate>{files}/a.pem</Certificate><PrivateKey>{files}/a.key</PrivateKey>"
    )
    syslog = "<Protocol>syslog</Protocol><Level>info</Level>"
    function = "<Name>f</Name><Module>own</Module><Symbol>one</Symbol>"
    own = (
        f"<Modules><Module><Name>own</Name><Library>{files}/own.py</Library></Module>"
        f"<Module><Name>other</Name><Library>{files}/other.py</Library></Module></Modules>"
    )
    protobuf = (
        f"<Name>m</Name><Module>protobuf</Module><ProtoPath>{files}</ProtoPath>"
        "<ProtoFile>a.proto</ProtoFile><Type>p.A</Type>"
    )
    return {
        "Name": Case("n", "m"),
        "Group": Case("g", "h"),
        "ProcessName": Case("p", "q"),
        "Description": Case("d", "e"),
        "Environment": Case("d", "e"),
        "SuggestedMinimumVersion": Case("5.0", "99.0"),
        "RequiredMinimumVersion": Case("5.0", "99.0"),
        "ConfigIncludeCommentDefault": Case("true", "false", around=f"<Include>{files}/part.xml</Include>"),
        "ConfigCycleDetectionThreshold": Case("5MB", "1"),
        "ConfigValidation": Case("enabled", "disabled", around="<Unheard/>"),
        "RegexTopicSupport": Case("true", "false"),
        "MessageMemoryLimit": Case("1GB", "2GB"),
        "ClientMessageAgeLimit": Case("1s", "2s"),
        "ClientMaxCapacity": Case("10%", "20%"),
        **security(""),
        **security(transport),
        **security("Admin/"),
        "Modules/Module/Name": Case(
            "own", "mine", beside=f"<Library>{files}/own.py</Library>", around=USES_OWN
        ),
        "Modules/Module/Library": Case(
            f"{files}/own.py", f"{files}/other.py", beside="<Name>own</Name>", around=USES_OWN
        ),
        "Modules/Module/Options": Case(
            SIMPLE_OPTIONS.format("a"),
            SIMPLE_OPTIONS.format("b"),
            beside="<Name>s</Name><Library>libamps_simple_access_entitlement.so</Library>",
            around="<Entitlement><Module>s</Module></Entitlement>",
        ),
        "UserDefinedFunctions/Function/Name": Case("f", "g", beside=_but(function, "Name"), around=own),
        "UserDefinedFunctions/Function/Module": Case(
            "own", "other", beside=_but(function, "Module"), around=own
        ),
        "UserDefinedFunctions/Function/Symbol": Case(
            "one", "two", beside=_but(function, "Symbol"), around=own
        ),
        "UserDefinedFunctions/Function/ParameterCount": Case("1", "2", beside=function, around=own),
        "MessageTypes/MessageType/Name": Case("m", "o"),
        "MessageTypes/MessageType/Module": Case("fix", "nvfix"),
        "MessageTypes/MessageType/FieldSeparator": Case("1", "2"),
        "MessageTypes/MessageType/EarlyTerminationOptimization": Case(
            "true", "false", beside="<Name>json</Name>"
        ),
        "MessageTypes/MessageType/MessageType": Case(
            "json", "fix", beside="<Name>m</Name><Module>composite-local</Module>"
        ),
        "MessageTypes/MessageType/ProtoPath": Case(
            str(files), f"{files}/more", beside=_but(protobuf, "ProtoPath")
        ),
        "MessageTypes/MessageType/ProtoFile": Case("a.proto", "b.proto", beside=_but(protobuf, "ProtoFile")),
        "MessageTypes/MessageType/Type": Case("p.A", "p.B", beside=_but(protobuf, "Type")),
        "MessageTypes/MessageType/Field": Case(
            "/a = I", "/b = I", beside="<Name>m</Name><Module>struct</Module>"
        ),
        "Protocols/Protocol/Name": Case("p", "q", around=USES_PROTOCOL),
        "Protocols/Protocol/Module": Case("amps", "websocket", around=USES_PROTOCOL),
        transport + "Name": Case("t", "u"),
        transport + "Type": Case("tcp", "tcps", beside=over_tls.replace("<Type>tcps</Type>", "")),
        transport + "Protocol": Case("amps", "websocket"),
        transport + "InetAddr": Case("1", "2"),
        transport + "MessageType": Case("json", "fix"),
        transport + "InitialState": Case("enabled", "disabled"),
        transport + "MessageMemoryLimit": Case("1GB", "2GB"),
        transport + "ClientMessageAgeLimit": Case("1s", "2s"),
        transport + "ClientMaxCapacity": Case("10%", "20%"),
        transport + "FileName": Case("/a", "/b", beside=unix),
        transport + "FileMask": Case("0600", "0660", beside=f"{unix}<FileName>/a</FileName>"),
        **tls(files, transport, "<Name>t</Name><Type>tcps</Type><InetAddr>1</InetAddr>"),
        transport + "SecureSocketProtocols": Case("TLSv1.2", "TLSv1.3", beside=over_tls),
        transport + "VerifyClient": Case(
            "true", "false", beside=f"{over_tls}<CAFile>{files}/ca.pem</CAFile>"
        ),
        transport + "CAFile": Case(f"{files}/ca.pem", f"{files}/ca2.pem", beside=over_tls),
        transport + "CAPath": Case(str(files), f"{files}/more", beside=over_tls),
        "Admin/InetAddr": Case("8085", "8086"),
        "Admin/WWWAuthenticate": Case('Basic realm="a"', 'Basic realm="b"'),
        "Admin/AnonymousPaths": Case("^/a", "^/b"),
        "Admin/Header": Case("A: a", "A: b"),
        "Admin/AccessControlAllowOrigin": Case("a", "b"),
        "Admin/AllowedHost": Case("a.example.com", "b.example.com"),
        "Admin/TrustedOrigin": Case("https://a.example.com", "https://b.example.com"),
        "Admin/SQLTransport": Case("t", "u"),
        **tls(files, "Admin/", "<InetAddr>8085</InetAddr>"),
        "Logging/Target/Protocol": Case("file", "gzip"),
        "Logging/Target/Level": Case("info", "error"),
        "Logging/Target/Levels": Case("trace", "stats"),
        "Logging/Target/IncludeErrors": Case("00-0015", "00-0001"),
        "Logging/Target/ExcludeErrors": Case("00-0015", "00-0001"),
        "Logging/Target/FileName": Case("a", "b"),
        "Logging/Target/RotationThreshold": Case("1M", "2M"),
        "Logging/Target/Ident": Case("a", "b", beside=syslog),
        "Logging/Target/Options": Case("LOG_PID", "LOG_CONS", beside=syslog),
        "Logging/Target/Facility": Case("LOG_USER", "LOG_LOCAL1", beside=syslog),
        **queue_cases("Queue"),
        **queue_cases("LocalQueue"),
        **queue_cases("GroupLocalQueue"),
        **sow_topic_cases(),
        "SOW/ViewDefinition": Case("", ""),
        "SOW/ReplicaDefinition": Case("", ""),
        "SOW/QueueDefinition": Case(
            f"<Name>Q</Name>{JSON}", f"<Name>P</Name>{JSON}", around=LOG.format(JSON)
        ),
        **replication_cases(files),
        "TransactionLog/JournalDirectory": Case("a", "b"),
        "TransactionLog/JournalArchiveDirectory": Case("a", "b"),
        "TransactionLog/PreallocatedJournalFiles": Case("1", "2"),
        "TransactionLog/JournalSize": Case("10MB", "20MB"),
        "TransactionLog/FlushInterval": Case("1ms", "2ms"),
        "TransactionLog/O_DIRECT": Case("true", "false"),
        "TransactionLog/InactiveClientAckExpiration": Case("1d", "2d"),
        "TransactionLog/CompressedJournalCacheMemoryLimit": Case("1GB", "2GB"),
        "TransactionLog/Topic/Name": Case("a", "b"),
        "TransactionLog/Topic/MessageType": Case("json", "fix"),
        "TransactionLog/Topic/Filter": Case("/a = 1", "/a = 2"),
        "Actions/Action/On/Module": Case("amps-action-on-startup", "amps-action-on-shutdown"),
        "Actions/Action/On/Options": Case(
            "<Every>1s</Every>", "<Every>2s</Every>", beside="<Module>amps-action-on-schedule</Module>"
        ),
        "Actions/Action/Do/Module": Case("amps-action-do-nothing", "amps-action-do-rotate-logs"),
        "Actions/Action/Do/Options": Case(
            "<Message>a</Message>",
            "<Message>b</Message>",
            beside="<Module>amps-action-do-echo-message</Module>",
        ),
        "Actions/Action/If/Module": Case("amps-action-if-condition", "amps-action-if-file-system-usage"),
        "Actions/Action/If/Options": Case(
            "<Condition>1 = 1</Condition>",
            "<Condition>1 = 2</Condition>",
            beside="<Module>amps-action-if-condition</Module>",
        ),
        "Tuning/TransactionLog/FreeSpaceWarning": Case("1%", "2%"),
        "Tuning/TransactionLog/TopicIndex/Enabled": Case("true", "false"),
        "Tuning/Transport/Workers": Case("1", "2"),
    }


def _but(siblings: str, name: str) -> str:
    before, _, rest = siblings.partition(f"<{name}>")
    return before + rest.partition(f"</{name}>")[2]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Path:
    """The files to which elements refer: certificates, functions, definitions of messages."""
    directory = tmp_path_factory.mktemp("files")
    (directory / "more").mkdir()
    for name in ("a", "b"):
        issued = authority.issue("localhost")
        for target, source in ((f"{name}.pem", issued.certificate), (f"{name}.key", issued.private_key)):
            (directory / target).write_bytes(source.read_bytes())
    for target in ("ca.pem", "ca2.pem", "more/ca.pem"):
        (directory / target).write_bytes(authority.certificate.read_bytes())
    (directory / "part.xml").write_text("<Description>d</Description>")
    (directory / "own.py").write_text("def one(*a): return 1\ndef two(*a): return 2\n")
    (directory / "other.py").write_text("def two(*a): return 1\n")
    for name in ("a", "b", "more/a"):
        text = 'syntax = "proto3"; package p; message A { int32 id = 1; } message B { int32 id = 1; }'
        (directory / f"{name}.proto").write_text(text)
    return directory


def destinations(peer_port: int, files: Path) -> str:
    """A link to the peer, over which records come back, and one with TLS to nowhere."""
    topics = (
        f"<Topic><Name>Queue</Name>{JSON}<Filter>/a = 1</Filter>"
        "<ExcludeValidation>replicate_filter,cascade</ExcludeValidation></Topic>"
    )
    modules = (
        f"<Authentication><Module>{DEFAULT_AUTHENTICATION}</Module></Authentication>"
        "<Entitlement><Module>s</Module></Entitlement>"
    )
    return (
        f"<Replication><Destination><Name>peer</Name><SyncType>async</SyncType><PassThrough>.*</PassThrough>{topics}"
        f"<Transport><Type>amps-replication</Type><InetAddr>127.0.0.1:{peer_port}</InetAddr>"
        f"<ReconnectTimeout>100ms</ReconnectTimeout>{modules}</Transport></Destination>"
        f"<Destination><Name>nowhere</Name><Group>g</Group><SyncType>async</SyncType>{topics}"
        "<Transport><Type>amps-replication-secure</Type><InetAddr>127.0.0.1:1</InetAddr>"
        f"<VerifyClient>true</VerifyClient><CAFile>{files}/ca.pem</CAFile></Transport></Destination></Replication>"
    )


def peer_of_everything(replication_port: int, own_port: int) -> str:
    """The instance to which the one with everything is connected."""
    log = LOG.format(JSON).replace("<Topic>", "<JournalSize>10MB</JournalSize><Topic>")
    return f"""<AMPSConfig><Name>peer</Name>
<Transports><Transport><Name>r</Name><Type>amps-replication</Type><InetAddr>127.0.0.1:{own_port}</InetAddr></Transport>
</Transports>
<Logging><Target><Protocol>stdout</Protocol><Level>info</Level></Target></Logging>
<SOW><Queue><Name>Queue</Name>{JSON}</Queue></SOW>{log}
<Replication><Destination><Name>everything</Name><SyncType>async</SyncType><PassThrough>.*</PassThrough>
<Topic><Name>Queue</Name>{JSON}<ExcludeValidation>cascade,queue_passthrough</ExcludeValidation></Topic>
<Transport><Type>amps-replication</Type>
<InetAddr>127.0.0.1:{replication_port}</InetAddr></Transport></Destination></Replication></AMPSConfig>"""


def everything(files: Path, port: int, admin_port: int, replication_port: int, peer_port: int) -> str:
    """A configuration with elements of every kind."""
    queues = "".join(
        f"<{kind}><Name>{kind}</Name>{JSON}{more}</{kind}>"
        for kind, more in (
            ("Queue", "<Expiration>1d</Expiration><MaxDeliveries>3</MaxDeliveries>"),
            ("LocalQueue", "<Semantics>at-most-once</Semantics><UnderlyingTopic>T</UnderlyingTopic>"),
            ("GroupLocalQueue", "<InitialOwner>everything</InitialOwner>"),
        )
    )
    security = (
        f"<Authentication><Module>{DEFAULT_AUTHENTICATION}</Module><Options><AllowSpoofing>true</AllowSpoofing></Options>"
        "</Authentication><Entitlement><Module>s</Module></Entitlement>"
    )
    return f"""<AMPSConfig><Name>everything</Name><Description>d</Description>
<ClientMessageAgeLimit>1s</ClientMessageAgeLimit>{security}
<Modules><Module><Name>s</Name><Library>libamps_simple_access_entitlement.so</Library>
  <Options><AllowedTopics>.*</AllowedTopics></Options></Module>
  <Module><Name>own</Name><Library>{files}/own.py</Library></Module></Modules>{USES_OWN}
<MessageTypes><MessageType><Name>pair</Name><Module>composite-local</Module>{JSON}{JSON}</MessageType>
  <MessageType><Name>order</Name><Module>protobuf</Module><ProtoPath>{files}</ProtoPath><ProtoFile>a.proto</ProtoFile>
    <Type>p.A</Type></MessageType>
  <MessageType><Name>tick</Name><Module>struct</Module><Field>/id = I</Field></MessageType></MessageTypes>
<Transports>
  <Transport><Name>tcp</Name><Type>tcp</Type><InetAddr>127.0.0.1:{port}</InetAddr>{security}</Transport>
  <Transport><Name>tls</Name><Type>tcps</Type><InetAddr>127.0.0.1:0</InetAddr>
    <Certificate>{files}/a.pem</Certificate><PrivateKey>{files}/a.key</PrivateKey><VerifyClient>true</VerifyClient>
    <CAFile>{files}/ca.pem</CAFile></Transport>
  <Transport><Name>unix</Name><Type>amps-unix</Type><FileName>s.sock</FileName><FileMask>0600</FileMask>{JSON}</Transport>
  <Transport><Name>off</Name><Type>tcp</Type><InetAddr>127.0.0.1:0</InetAddr><InitialState>disabled</InitialState></Transport>
  <Transport><Name>r</Name><Type>amps-replication</Type><InetAddr>127.0.0.1:{replication_port}</InetAddr></Transport>
</Transports>
<Authenticator><Module>amps-default-authenticator-module</Module></Authenticator>{destinations(peer_port, files)}
<Admin><InetAddr>127.0.0.1:{admin_port}</InetAddr><AnonymousPaths>^/amps/instance/name</AnonymousPaths>
  <AccessControlAllowOrigin>a</AccessControlAllowOrigin><Header>A: b</Header>{security}</Admin>
<Logging>
  <Target><Protocol>stdout</Protocol><Level>info</Level></Target>
  <Target><Protocol>file</Protocol><Level>info</Level><FileName>a.log</FileName><RotationThreshold>1M</RotationThreshold></Target>
  <Target><Protocol>syslog</Protocol><Level>emergency</Level><Ident>me</Ident></Target>
</Logging>
<SOW><Topic><Name>state</Name>{JSON}<Key>/id</Key><FileName>%n.sow</FileName></Topic>{queues}</SOW>
<TransactionLog><JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <JournalArchiveDirectory>archive</JournalArchiveDirectory>
  <Topic><Name>.*</Name>{JSON}<Filter>f(/a) = 1</Filter></Topic></TransactionLog>
<Actions><Action>
  <On><Module>amps-action-on-startup</Module></On>
  <If><Module>amps-action-if-condition</Module><Options><Condition>1 = 1</Condition></Options></If>
  <Do><Module>amps-action-do-echo-message</Module><Options><Message>hello</Message></Options></Do>
</Action></Actions>
<Tuning><Transport><Workers>1</Workers></Transport></Tuning></AMPSConfig>"""


@pytest.fixture(scope="module")
def read(
    files: Path, tmp_path_factory: pytest.TempPathFactory, start_module_server: StartServer
) -> set[Field]:
    """The fields of its configuration that a server with elements of every kind reads, from its start to its end."""
    directory = tmp_path_factory.mktemp("read")
    notes, port, admin_port = directory / "notes", reserve_port(), reserve_port()
    replication_port, peer_port = reserve_port(), reserve_port()
    peer = start_module_server(config_xml=peer_of_everything(replication_port, peer_port))
    server = start_module_server(
        config_xml=everything(files, port, admin_port, replication_port, peer_port),
        environment=patched(directory, READ_SPY.format(notes=str(notes))),
    )
    for each in (server, peer):
        each.log.wait_for("1E-0001", timeout_s=60)
    with RawClient.tcp(port) as client:
        client.logon("reader", user_id="me", mt="json")
        client.subscribe("Queue", "s")
        client.publish_persisted("Queue", [b'{"a":1}'], 1)
        client.receive_published(1)
        client.publish_persisted("LocalQueue", [b'{"a":1}'], 2)
        client.publish_persisted("state", [b'{"id":1,"a":1}'], 3)
        with RawClient.tcp(port, receive_buffer_bytes=4096) as slow:
            slow.logon("slow", user_id="me", mt="json")
            slow.subscribe("much", "s")
            for body in numbered_bodies(200, padding_bytes=100_000):
                client.publish("much", body)
            server.log.wait_for("70-0004", "slow", timeout_s=60)
    for path in ("instance.json", "instance/name", "administrator.json"):
        get(admin_port, f"/amps/{path}", credentials=("me", "secret"), headers={"Origin": "a"})
    server.stop()
    peer.stop()
    for reserved in (port, admin_port, replication_port, peer_port):
        release_port(reserved)
    return read_fields(notes) | NOT_READ_YET


def test_operations_1_9_every_element_takes_effect_or_is_reported(files: Path, read: set[Field]) -> None:
    """operations.md §1.9: each element is read by a running server, refused, or reported to have no effect."""
    problems = Prover(ROOT, all_cases(files), SIBLINGS, read).problems()
    assert not problems, "\n".join(problems)


def test_an_unused_element_is_found(files: Path, read: set[Field]) -> None:
    """The proof finds each of the mistakes that can be made when an element is added or removed."""

    def problems(children: dict[str, Leaf], cases: dict[str, Case], seen: set[Field]) -> list[str]:
        root = Block({**{name: ROOT.children[name] for name in ("Name", "Description")}, **children})
        usual = {name: case for name, case in all_cases(files).items() if name in ("Name", "Description")}
        return Prover(root, {**usual, **cases}, SIBLINGS, seen).problems()

    assert problems({}, {}, read) == []
    forgotten = problems({"Unheard": Leaf(read_text)}, {}, read)
    assert forgotten == ["Unheard: give two values of it, in CASES"]
    (unread,) = problems({}, {}, read - {("ServerConfig", "description")})
    assert (
        unread == "Description: it goes into [('ServerConfig', 'description')], which no running server reads"
    )
    assert problems({}, {"Gone": Case("a", "b")}, read) == ["Gone: there is no such element"]


def test_an_element_that_is_read_without_effect_is_found(
    files: Path, read: set[Field], monkeypatch: pytest.MonkeyPatch
) -> None:
    children = dict(ROOT.children)
    root = Block({**children, "Unheard": Leaf(read_text)}, retired=ROOT.retired)
    monkeypatch.setattr(amps.config, "ROOT", root)
    found = Prover(root, {**all_cases(files), "Unheard": Case("a", "b")}, SIBLINGS, read).problems()
    assert found == ["Unheard: two values of it mean the same, and nothing is said"]
    silent = Block({**children, "Unheard": Leaf(read_text, unused="nothing")}, retired=ROOT.retired)
    monkeypatch.setattr(amps.config, "ROOT", silent)
    assert Prover(silent, all_cases(files), SIBLINGS, read).problems() == []
