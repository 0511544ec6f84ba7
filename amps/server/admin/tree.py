"""The tree of resources, and walking it (operations.md §5.1).

A node is described once and asked whenever somebody wants to know. Parts whose content comes from elsewhere are made
when they are walked through (`Dynamic`). What a snapshot shows is up to `Visible`, asked with the full name of each
node: who asks for a group with all its children gets those that he may see.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Union

Visible = Callable[[str], bool]
TURN_MEMBERS = 200
"""After so many members of a collection, others have a turn."""


class Refused(Exception):
    """A request that is not answered: status and reason."""

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
    """A value that depends on the parameters of the request and on who asks: `answer(parameters, identity)`."""

    answer: Callable[[Mapping[str, str], str], str]


@dataclass(frozen=True, slots=True)
class Document:
    """A text of its own that takes asking for. It is had by itself only: a snapshot of what is around leaves it out.

    Raises Refused.
    """

    make: Callable[[], Awaitable[str]]
    content_type: str


@dataclass(frozen=True, slots=True)
class Operation:
    """Something to do, with the parameters of the request. Raises Refused. `parameters`: names of those it needs."""

    run: Callable[[Mapping[str, str]], Awaitable[None]]
    description: str = ""
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Group:
    """Named children."""

    children: Mapping[str, "Node"]


@dataclass(frozen=True, slots=True)
class Collection:
    """Members of one kind, by id. `singular`: the name of one of them. `each`, where asking for many at once is cheaper
    than for each: makes the members one after the other, when all of them are wanted. Raises Refused. `aliases`: other
    names under which members are found, with the id of each; nothing shows them.
    """

    singular: str
    members: Mapping[str, "Group | Dynamic"]
    each: Callable[[], AsyncIterator[tuple[str, Group]]] | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Dynamic:
    """A node that is made when it is wanted. Raises Refused."""

    make: Callable[[], Awaitable["Group | Collection"]]


Node = Union[Leaf, Question, Document, Operation, Group, Collection, Dynamic]  # noqa: UP007 (names that come later)


@dataclass(frozen=True, slots=True)
class Members:
    """What a snapshot has for a collection: ids and contents."""

    singular: str
    contents: tuple[tuple[str, "Content"], ...]


Content = Union[str, dict[str, "Content"], Members]  # noqa: UP007


@dataclass(slots=True)
class Place:
    """A node and the way to it: the names, and the node in which each of them is."""

    node: Node
    names: list[str] = field(default_factory=list)
    parents: list[Group | Collection] = field(default_factory=list)

    @property
    def path(self) -> str:
        """The full name, as permissions have it."""
        return "/" + "/".join(self.names)


def children_of(node: Node) -> Mapping[str, Node]:
    """The nodes right below one."""
    if isinstance(node, Group):
        return node.children
    if isinstance(node, Collection):
        return node.members
    return {}


async def find(root: Node, names: list[str]) -> Place | None:
    """The node with these names, from the root; None if there is none. The place has ids instead of other names."""
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
    """None: nothing to show."""
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
            # Most of what there is are leaves.
            content = child.read() if isinstance(child, Leaf) else await _content(child, below, visible)
            if content is not None:
                found.append((name, content))
    return dict(found)


async def _each(node: Collection) -> AsyncIterator[tuple[str, Node]]:
    """The members of a collection. Others have a turn now and then."""
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
