"""Two or more real servers that replicate to each other.

    group = Instances(tmp_path)
    group.add("A", to=[To("B")])
    group.add("B", to=[To("A")])
    group.start()                         # waits until all destinations are connected

Each instance has a client transport `json` and a replication transport. `To` describes a destination by the names of
the instances whose addresses it has. `proxy("A", "B")`, before the start, puts a LinkProxy on the way from A to B.

Defaults: topic `t` in all logs and destinations, sync, `PassThrough` `.*`, acknowledgements every 50 ms, group `G`.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from tests.support.link_proxy import LinkProxy
from tests.support.peer import DEFAULT_TIMEOUT_S, Message, RawClient
from tests.support.server import ServerProcess, Transport, wait_until

REPLICATION = "amps-replication"
CONNECTED_S = 30.0


@dataclass(frozen=True)
class Sent:
    """One `Destination/Topic`."""

    name: str
    filter: str | None = None
    message_type: str = "json"
    exclude: str | None = None
    """`ExcludeValidation`; None: that of the destination."""


@dataclass(frozen=True)
class To:
    """One `Destination`: the instances whose addresses it has, in their order."""

    instances: str | Sequence[str]
    sync: bool = True
    topics: Sequence[str | Sent] | None = None
    """None: the recorded topics of the instance, as they are."""
    pass_through: str | None = ".*"
    label: str | None = None
    """`Name`; None: the name of the first instance. Empty: no `Name`."""
    group: str | None = None
    """`Group`; None: no `Group`."""
    ack_interval: str | None = "50ms"
    exclude: str = ""
    dial: bool = True
    """False: no `InetAddr`."""
    reconnect: str | None = "100ms,300ms,1s"
    type: str = REPLICATION
    xml: str = ""
    """Further elements of the destination."""
    transport_xml: str = ""
    """Further elements of its transport."""

    @property
    def names(self) -> Sequence[str]:
        return [self.instances] if isinstance(self.instances, str) else self.instances

    @property
    def name(self) -> str:
        """What logs and statistics call it."""
        return self.label or self.group or self.names[0]


@dataclass
class _Instance:
    name: str
    to: Sequence[To]
    group: str | None
    options: dict[str, Any]
    server: ServerProcess
    topics: Sequence[str] = field(default_factory=tuple)
    host: str = "127.0.0.1"


class Instances:
    """Servers that replicate. Use as a context manager, or call `stop`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._instances: dict[str, _Instance] = {}
        self._proxies: dict[tuple[str, str], LinkProxy] = {}

    # --- building ---------------------------------------------------------------------------------------------

    def add(
        self,
        name: str,
        to: Sequence[To] = (),
        *,
        group: str | None = "G",
        topics: Sequence[str] = ("t",),
        accepts: bool = True,
        directory: Path | None = None,
        host: str = "127.0.0.1",
        replication_xml: str = "",
        xml: str = "",
        **options: Any,
    ) -> ServerProcess:
        """Add an instance. `accepts`: it has a replication transport, with the further elements `replication_xml`.
        `directory`: None for one of its own; `host`: where it accepts instances. `xml`: further elements of the
        instance; `options`: those of ServerOptions.
        """
        transports = list(options.pop("transports", [Transport()]))
        if accepts:
            transports.append(
                Transport(
                    name=REPLICATION, type=REPLICATION, message_type=None, host=host, extra_xml=replication_xml
                )
            )
        options = {"transport_workers": 1, "log_topics": topics, **options, "transports": transports}
        server = ServerProcess(directory or self._directory / name, name=name, **options)
        self._instances[name] = _Instance(name, to, group, {**options, "xml": xml}, server, topics, host)
        return server

    def proxy(self, source: str, target: str) -> LinkProxy:
        """The proxy on the way from one instance to another, which `source` dials. Call it before the start."""
        key = (source, target)
        if key not in self._proxies:
            self._proxies[key] = LinkProxy(self[target].port(REPLICATION))
        return self._proxies[key]

    def _xml(self, instance: _Instance) -> str:
        parts = [f"<Group>{escape(instance.group)}</Group>" if instance.group is not None else ""]
        if instance.to:
            parts.append(
                f"<Replication>{''.join(self._destination(instance, to) for to in instance.to)}</Replication>"
            )
        return "".join(parts) + str(instance.options["xml"])

    def _destination(self, instance: _Instance, to: To) -> str:
        label = to.names[0] if to.label is None else to.label
        topics = instance.topics if to.topics is None else to.topics
        parts = [
            _element("Name", label) if label else "",
            _element("Group", to.group) if to.group is not None else "",
            _element("SyncType", "sync" if to.sync else "async"),
            _element("PassThrough", to.pass_through) if to.pass_through is not None else "",
            _element("AckConflationInterval", to.ack_interval) if to.ack_interval is not None else "",
            to.xml,
        ]
        for topic in topics:
            sent = topic if isinstance(topic, Sent) else Sent(topic)
            exclude = to.exclude if sent.exclude is None else sent.exclude
            parts += [
                "<Topic>",
                _element("Name", sent.name),
                _element("MessageType", sent.message_type),
                _element("Filter", sent.filter) if sent.filter is not None else "",
                _element("ExcludeValidation", exclude) if exclude else "",
                "</Topic>",
            ]
        parts += ["<Transport>", _element("Type", to.type)]
        for name in to.names if to.dial else ():
            proxy = self._proxies.get((instance.name, name))
            host = "127.0.0.1" if proxy is not None else self._instances[name].host
            port = proxy.port if proxy is not None else self[name].port(REPLICATION)
            parts.append(_element("InetAddr", f"{host}:{port}"))
        if to.reconnect is not None:
            parts.append(_element("ReconnectTimeout", to.reconnect))
        parts += [to.transport_xml, "</Transport>"]
        return f"<Destination>{''.join(parts)}</Destination>"

    # --- life -------------------------------------------------------------------------------------------------

    def start(self, *names: str, connected: bool = True) -> None:
        """Start some instances, by default all, and wait until their destinations are connected, if that is asked."""
        for name in names or list(self._instances):
            self.launch(name)
        if connected:
            for name in names or list(self._instances):
                for to in self._instances[name].to:
                    self.wait_connected(name, to.name)

    def launch(self, name: str) -> ServerProcess:
        """Start one instance; do not wait for its links."""
        instance = self._instances[name]
        server = instance.server
        options = {key: value for key, value in vars(server.options).items() if key != "instance_xml"}
        server.options = type(server.options)(**options, instance_xml=self._xml(instance))
        return server.start()

    def change(self, name: str, **changes: Any) -> None:
        """Change `to`, `group` or `xml` of an instance that does not run; it takes effect when it is launched."""
        instance = self._instances[name]
        for key, value in changes.items():
            if key == "xml":
                instance.options["xml"] = value
            else:
                setattr(instance, key, value)

    def kill(self, name: str) -> None:
        """End an instance with SIGKILL, all its processes at once."""
        self[name].kill_all()

    def kill_replication(self, name: str) -> None:
        """End only its replication process with SIGKILL."""
        pids = self[name].pids("amps: replication")
        assert len(pids) == 1, pids
        self[name].kill_process(pids[0])

    def stop(self) -> None:
        """Stop all instances in order, and check that they end well."""
        try:
            for instance in self._instances.values():
                instance.server.stop()
        finally:
            self.close()

    def close(self) -> None:
        """Release everything; ends servers without checks if they still run."""
        for instance in self._instances.values():
            instance.server.close()
        for proxy in self._proxies.values():
            proxy.close()
        self._proxies.clear()

    def __enter__(self) -> "Instances":
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        if kind is None:
            self.stop()
        else:
            self.close()

    def __getitem__(self, name: str) -> ServerProcess:
        return self._instances[name].server

    # --- links ------------------------------------------------------------------------------------------------

    def is_connected(self, name: str, destination: str) -> bool:
        """Whether a destination of an instance has a running flow, by its log."""
        connected = False
        for record in self[name].log.records():
            if record.id == "00-0001":
                connected = False
            elif record.id == "1E-0001" and (
                f" {name}!{destination}!" in record.text or f" {name}!{destination}@" in record.text
            ):
                connected = True
            elif record.id == "1E-0002" and f" {destination} " in record.text:
                connected = False
        return connected

    def wait_connected(self, name: str, destination: str, timeout_s: float = CONNECTED_S) -> None:
        """Wait until a destination of an instance has a running flow."""
        wait_until(
            lambda: self.is_connected(name, destination),
            timeout_s,
            lambda: f"{name} is not connected to {destination}\n{self._excerpts()}",
        )

    def wait_disconnected(self, name: str, destination: str, timeout_s: float = CONNECTED_S) -> None:
        """Wait until a destination of an instance has none."""
        wait_until(
            lambda: not self.is_connected(name, destination),
            timeout_s,
            lambda: f"{name} is still connected to {destination}\n{self._excerpts()}",
        )

    def _excerpts(self) -> str:
        return "\n".join(f"--- {each.name}\n{each.server.excerpt(40)}" for each in self._instances.values())

    # --- contents ---------------------------------------------------------------------------------------------

    def log_of(
        self, name: str, count: int, topic: str = "t", timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> list[Message]:
        """The first `count` messages of a topic in the log of an instance. Fails if there are more soon."""
        with self.reader(name, topic) as client:
            return client.receive_published(count, timeout_s)

    @contextlib.contextmanager
    def reader(self, name: str, topic: str = "t", **fields: Any) -> Iterator[RawClient]:
        """A client that replays a topic from the beginning of the log."""
        with self._connected(name) as client:
            client.logon(f"reader-{name}-{id(client)}", o="ack_conflation=5ms")
            client.subscribe(topic, bm="0", **fields)
            yield client

    @contextlib.contextmanager
    def client(self, name: str, client_name: str, **fields: Any) -> Iterator[RawClient]:
        """A client that is logged on at an instance."""
        with self._connected(name) as client:
            client.logon(client_name, **{"o": "ack_conflation=10ms", **fields})
            yield client

    def _connected(self, name: str) -> RawClient:
        """A connection to the first transport of an instance."""
        path = self[name].transport().socket_path
        return RawClient.tcp(self[name].port()) if path is None else RawClient.unix(path)


def _element(name: str, text: str) -> str:
    return f"<{name}>{escape(text)}</{name}>"


def two_way(first: str = "A", second: str = "B", **options: Any) -> list[tuple[str, list[To]]]:
    """The destinations of a pair: `for name, to in two_way(): group.add(name, to)`."""
    return [(first, [To(second, **options)]), (second, [To(first, **options)])]
