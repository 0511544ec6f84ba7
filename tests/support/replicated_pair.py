"""Instances with administration interfaces and actions: their metrics and operations, and what their actions wrote."""

from pathlib import Path
from typing import Any

from tests.support.admin import get
from tests.support.instances import Instances, To, two_way
from tests.support.ports import release_port, reserve_port
from tests.support.server import wait_until

CHANGED_S = 30.0


class Pair:
    """Instances with administration interfaces."""

    def __init__(self, directory: Path) -> None:
        self.group = Instances(directory)
        self.ports: dict[str, int] = {}

    def add(self, name: str, to: list[To], *actions: str, xml: str = "", **options: Any) -> None:
        self.ports[name] = reserve_port()
        admin = f"<Admin><InetAddr>127.0.0.1:{self.ports[name]}</InetAddr></Admin>"
        # A configuration has one `Tuning`.
        options |= {"transport_workers": None} if "<Tuning>" in xml else {}
        self.group.add(name, to, xml=f"{admin}<Actions>{''.join(actions)}</Actions>{xml}", **options)

    def two_way(self, *actions: str, xml: str = "", **options: Any) -> None:
        for name, to in two_way(**options):
            self.add(name, to, *(actions if name == "A" else ()), xml=xml if name == "A" else "")

    def start(self, *names: str, connected: bool = True) -> None:
        self.group.start(*names, connected=connected)

    def metric(self, metric: str, destination: str = "B", name: str = "A") -> str:
        return get(self.ports[name], f"/amps/instance/replication/{destination}/{metric}").body.strip()

    def wait_metric(self, metric: str, value: str, destination: str = "B", name: str = "A") -> None:
        wait_until(
            lambda: self.metric(metric, destination, name) == value,
            CHANGED_S,
            lambda: f"{metric} is {self.metric(metric, destination, name)!r}, not {value!r}\n"
            + self.group[name].excerpt(40),
        )

    def run(self, operation: str, destination: str = "B", name: str = "A") -> int:
        return get(self.ports[name], f"/amps/administrator/replication/{destination}/{operation}").status

    def echoes(self, text: str, name: str = "A") -> list[str]:
        return [record.text for record in self.group[name].log.find("29-0001", text)]

    def told(self, event: str, name: str = "A") -> list[str]:
        """What actions wrote about an event, as `event: text` in one line; each text alone."""
        # Behind the last record of a run stand the first lines of the next one.
        found = [text.partition("\n")[0] for text in self.echoes(f"{event}: ", name) if text.startswith(event)]
        return [text.removeprefix(f"{event}: ") for text in found]

    def close(self) -> None:
        self.group.close()
        for port in self.ports.values():
            release_port(port)
