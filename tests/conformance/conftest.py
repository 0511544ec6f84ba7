"""The servers that most conformance tests share.

They are named after the set-ups of protocol.md §21; one more, M, has message types and functions beside the standard
ones.

A shared server lives as long as the test session; tests keep apart by topics and client names of their own (fixture
`unique`). After each test the server must still have the processes it started with, so that a crash is charged to the
test that caused it. The next test then gets a new server.

Recorded topics are those below `L/` (in all set-ups that have a log).
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.peer import RawClient
from tests.support.peers import Peers
from tests.support.server import ServerProcess, Transport, loaded_module_xml, module_xml

RECORDED_TOPICS = ("^L/",)

JSON_AND_ANY = (Transport(), Transport(name="any", message_type=None))

DENY_MODULE = loaded_module_xml("simple", "libamps_simple_access_entitlement.so")
DENY_TOPICS = module_xml("Entitlement", "simple", DeniedTopics="^deny")

DATA = Path(__file__).parent.parent / "support" / "data"


def _message_type(name: str, module: str, *elements: str) -> str:
    return f"<MessageType><Name>{name}</Name><Module>{module}</Module>{''.join(elements)}</MessageType>"


def _function(name: str, symbol: str) -> str:
    return (
        f"<Function><Name>{name}</Name><Module>own</Module><Symbol>{symbol}</Symbol>"
        "<ParameterCount>1</ParameterCount></Function>"
    )


MESSAGE_TYPES = "".join(
    (
        "<MessageTypes>",
        _message_type("pipe-nvfix", "nvfix", "<FieldSeparator>124</FieldSeparator>"),
        _message_type(
            "last-json", "json", "<EarlyTerminationOptimization>false</EarlyTerminationOptimization>"
        ),
        _message_type(
            "photo",
            "composite-local",
            *(f"<MessageType>{part}</MessageType>" for part in ("json", "json", "binary")),
        ),
        _message_type("both", "composite-global", *["<MessageType>json</MessageType>"] * 2),
        _message_type(
            "tick",
            "struct",
            *(
                f"<Field>{field}</Field>"
                for field in ("/id = i", "/skip = 4x", "/px = d", "/n = &gt;H", "/t = 4S")
            ),
        ),
        _message_type(
            "order",
            "protobuf",
            f"<ProtoPath>here;{DATA}</ProtoPath><ProtoFile>here/order.proto</ProtoFile><Type>shop.Order</Type>",
        ),
        "</MessageTypes>",
    )
)

OWN_FUNCTIONS = "".join(
    (
        "<UserDefinedFunctions>",
        _function("Twice", "twice"),
        _function("HALF_OF", "half_of"),
        "</UserDefinedFunctions>",
    )
)

SETUPS: dict[str, dict[str, Any]] = {
    "J": {"transports": JSON_AND_ANY},
    "T": {"transports": JSON_AND_ANY, "log_topics": RECORDED_TOPICS},
    "E": {"log_topics": RECORDED_TOPICS, "modules_xml": DENY_MODULE, "entitlement_xml": DENY_TOPICS},
    "I": {"authentication_xml": module_xml("Authentication", "amps-implicit-authentication-module")},
    "U": {
        "authentication_xml": module_xml(
            "Authentication", "amps-default-authentication-module", AllowSpoofing="true"
        ),
        "log_topics": RECORDED_TOPICS,
    },
    "M": {
        "transports": JSON_AND_ANY,
        "log_topics": (
            *(
                (name, message_type)
                for name in RECORDED_TOPICS
                for message_type in ("json", "nvfix", "photo")
            ),
        ),
        "modules_xml": loaded_module_xml("own", str(DATA / "own_functions.py"))
        + loaded_module_xml("dates", "libamps_udf_legacy_compatibility.so"),
        "instance_xml": MESSAGE_TYPES + OWN_FUNCTIONS,
    },
}

SharedServers = Callable[[str], ServerProcess]


@pytest.fixture(scope="session")
def shared_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedServers]:
    """Return the running server of a set-up. It is started at the first use, and again after a test has broken it."""
    running: dict[str, ServerProcess] = {}
    broken: list[ServerProcess] = []

    def get(setup: str) -> ServerProcess:
        server = running.get(setup)
        if server is not None:
            try:
                server.check_undisturbed()
            except AssertionError:
                server.kill_all()
                broken.append(running.pop(setup))
                server = None
        if server is None:
            directory = tmp_path_factory.mktemp(f"setup-{setup}")
            server = running[setup] = ServerProcess(directory, name=f"Test{setup}", **SETUPS[setup]).start()
        return server

    try:
        yield get
        for server in running.values():
            server.stop()
    finally:
        for server in [*running.values(), *broken]:
            server.close()


def _shared(setup: str) -> Callable[..., Iterator[ServerProcess]]:
    def fixture(shared_servers: SharedServers) -> Iterator[ServerProcess]:
        server = shared_servers(setup)
        yield server
        server.check_undisturbed()

    fixture.__doc__ = f"The server with set-up {setup}."
    return fixture


plain_server = pytest.fixture(_shared("J"), name="plain_server")
logged_server = pytest.fixture(_shared("T"), name="logged_server")
entitled_server = pytest.fixture(_shared("E"), name="entitled_server")
implicit_server = pytest.fixture(_shared("I"), name="implicit_server")
typed_server = pytest.fixture(_shared("M"), name="typed_server")
spoofing_server = pytest.fixture(_shared("U"), name="spoofing_server")


@pytest.fixture
def topic(unique: str) -> str:
    """A topic that only this test uses and that no log records."""
    return f"plain/{unique}"


@pytest.fixture
def recorded_topic(unique: str) -> str:
    """A topic that only this test uses and that set-ups with a log record."""
    return f"L/{unique}"


@pytest.fixture
def publisher(peers: Peers, logged_server: ServerProcess) -> RawClient:
    """A client that publishes to the shared server with a log. Modules that need another client define their own."""
    return peers.logged_on(logged_server)


@pytest.fixture
def subscriber(peers: Peers, logged_server: ServerProcess) -> RawClient:
    """A client that subscribes on the shared server with a log."""
    return peers.logged_on(logged_server)
