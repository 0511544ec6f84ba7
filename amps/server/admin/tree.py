"""The tree of resources, and finding nodes in it (operations.md §5.1).

A node is described once, and its values are read at each request. Nodes with contents from other processes are made
when a request comes to them (`Dynamic`). `Visible` decides on the contents of a snapshot, by the full name of each
node: a user who requests a group with all its children gets those that the user may read.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Union

Visible = Callable[[str], bool]
TURN_MEMBERS = 200
"""Number of members of a collection after which the event loop gets a turn."""


class Refused(Exception):
    """A refused request: status and reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Leaf:
    """One value, always a text. `content_type`: of the value by itself."""

    read: Callable[[], str]
    content_type: str = "text/plain"


@dataclass(frozen=True, slots=True)
class Question:
    """A value that depends on the parameters and on the user of the request: `answer(parameters, identity)`."""

    answer: Callable[[Mapping[str, str], str], str]


@dataclass(frozen=True, slots=True)
class Document:
    """A text that must be made by a request to another process. Snapshots of nodes around it leave it out.

    Raises Refused.
    """

    make: Callable[[], Awaitable[str]]
    content_type: str


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation, run with the parameters of a request. Raises Refused. `parameters`: names of the required ones."""

    run: Callable[[Mapping[str, str]], Awaitable[None]]
    description: str = ""
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """A node with named children."""

    children: Mapping[str, "Node"]


@dataclass(frozen=True, slots=True)
class Collection:
    """Members of one kind, by id. `singular`: the name of a single member. `each`, if reading many at once is cheaper
    than one by one: makes the members one after the other, when all are requested. Raises Refused. `aliases`: other
    names by which members are found, with the id of each; they are not listed.
    """

    singular: str
    members: Mapping[str, "Group | Dynamic"]
    each: Callable[[], AsyncIterator[tuple[str, Group]]] | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Dynamic:
    """A node that is made when it is requested. Raises Refused."""

    make: Callable[[], Awaitable["Group | Collection"]]


Node = Union[Leaf, Question, Document, Operation, Group, Collection, Dynamic]  # noqa: UP007 (names that come later)


@dataclass(frozen=True, slots=True)
class Members:
    """The contents of a collection in a snapshot: ids and contents."""

    singular: str
    contents: tuple[tuple[str, "Content"], ...]


Content = Union[str, dict[str, "Content"], Members]  # noqa: UP007


@dataclass(slots=True)
class Place:
    """A node and its path: the names, and the node that contains each of them."""

    node: Node
    names: list[str] = field(default_factory=list)
    parents: list[Group | Collection] = field(default_factory=list)

    @property
    def path(self) -> str:
        """The full name, as in permissions."""
        return "/" + "/".join(self.names)


def children_of(node: Node) -> Mapping[str, Node]:
    """The children of a node, by name."""
    if isinstance(node, Group):
        return node.children
    if isinstance(node, Collection):
        return node.members
    return {}


async def find(root: Node, names: list[str]) -> Place | None:
    """The node with these names, from the root; None if there is none. In the place, aliases are replaced by ids."""
    place = Place(root)
    for name in names:
        parent = place.node
        if isinstance(parent, Collection):
            name = parent.aliases.get(name, name)
        child = children_of(parent).get(name)
        if child is None or not isinstance(parent, Group | Collection):
            return None
        if isinstance(child, Dynamic):
            child = await child.make()
        place = Place(child, [*place.names, name], [*place.parents, parent])
    return place


async def snapshot(place: Place, visible: Visible) -> Content:
    """The contents of a node with all below it, nested from the root. Raises Refused."""
    content = await _content(place.node, place.path, visible) or {}
    for name, parent in zip(reversed(place.names), reversed(place.parents), strict=True):
        content = (
            Members(parent.singular, ((name, content),))
            if isinstance(parent, Collection)
            else {name: content}
        )
    return content


async def _content(node: Node, path: str, visible: Visible) -> Content | None:
    """The contents of a node in a snapshot. None: it is left out."""
    if isinstance(node, Dynamic):
        node = await node.make()
    if isinstance(node, Leaf):
        return node.read()
    if isinstance(node, Question | Document | Operation):
        return None
    found: list[tuple[str, Content]] = []
    if isinstance(node, Collection):
        async for name, member in _each(node):
            below = f"{path}/{name}"
            if visible(below):
                found.append((name, await _content(member, below, visible) or {}))
        return Members(node.singular, tuple(found))
    for name, child in children_of(node).items():
        below = f"{path}/{name}"
        if visible(below):
            # Most nodes are leaves.
            content = child.read() if isinstance(child, Leaf) else await _content(child, below, visible)
            if content is not None:
                found.append((name, content))
    return dict(found)


async def _each(node: Collection) -> AsyncIterator[tuple[str, Node]]:
    """The members of a collection. The event loop gets a turn at intervals."""
    turn = 0
    if node.each is None:
        for name, member in node.members.items():
            turn += 1
            if turn % TURN_MEMBERS == 0:
                await asyncio.sleep(0)
            yield name, member
        return
    async for name, made in node.each():
        turn += 1
        if turn % TURN_MEMBERS == 0:
            await asyncio.sleep(0)
        yield name, made
