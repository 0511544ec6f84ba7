"""Groups of instances in the shapes that replication.md §9 and §18 describe, and questions about what they hold.

Each function adds the instances of one shape to `Instances`; the caller starts them. All of them are configured as the
validation of §16 wants it, without exclusions, so a test of a shape also proves that.
"""

import json
from collections.abc import Sequence

from tests.support.admin import get
from tests.support.instances import Instances, To
from tests.support.ports import release_port, reserve_port

LINES = {
    "pair": ("AB", "BA"),
    "chain": ("AB", "BAC", "CBD", "DC"),
    "star": ("HABC", "AH", "BH", "CH"),
    "ring": ("ABD", "BCA", "CDB", "DAC"),
}
"""Instance, then those that it sends to, synchronously and all that it has."""

SITES = {"east": ("E1", "E2"), "west": ("W1", "W2")}


class Shape:
    """Instances in one shape, each with an administration interface."""

    def __init__(self, instances: Instances) -> None:
        self.instances = instances
        self.names: list[str] = []
        self._admin: dict[str, int] = {}

    def add_lines(self, name: str) -> "Shape":
        """A shape of `LINES`."""
        for line in LINES[name]:
            self._add(line[0], [To(other) for other in line[1:]])
        return self

    def add_sites(self) -> "Shape":
        """Two sites of two, as conf/two-sites.xml: sync inside, async to the first server of the other site that
        answers, and to there only what was not received from there.
        """
        for site, other in (("east", "west"), ("west", "east")):
            for name, partner in (SITES[site], SITES[site][::-1]):
                to = [
                    To(partner, label=partner, group=site),
                    To(SITES[other], label=other, group=other, sync=False, pass_through=site),
                ]
                self._add(name, to, site)
        return self

    def _add(self, name: str, to: Sequence[To], group: str = "G") -> None:
        self.names.append(name)
        self._admin[name] = reserve_port()
        admin = f"<Admin><InetAddr>127.0.0.1:{self._admin[name]}</InetAddr><Interval>1s</Interval></Admin>"
        self.instances.add(name, to, group=group, xml=admin)

    def close(self) -> None:
        self.instances.close()
        for port in self._admin.values():
            release_port(port)

    def uri(self, name: str) -> str:
        """Where clients of the project's own client package connect."""
        return f"tcp://127.0.0.1:{self.instances[name].port()}/amps/json"

    def sent(self) -> int:
        """How many messages all instances have sent to all destinations since their starts."""
        total = 0
        for port in self._admin.values():
            answer = json.loads(get(port, "/amps/instance/replication.json").body)
            total += sum(int(each["messages_out"]) for each in answer["amps"]["instance"]["replication"])
        return total

    def numbers(self, name: str, count: int) -> list[int]:
        """The numbers of the `count` messages in the log of an instance, in its order. Fails if there are more."""
        messages = self.instances.log_of(name, count)
        return [json.loads(message.body)["n"] for message in messages]
