"""The key generator for chains of messages (sow.md §3.1): which record a message belongs to.

A message has an identifier of its own, the *primary*, and may name earlier messages in *secondary* fields. Messages
that are connected by these are a *chain*, and have the key of the chain's *head*: one record. What counts is the order
in which messages come, so the core asks here, one message after the other (D39).

An identifier is a number, `KeyMaker.text_key` of the field's text: it includes the topic, also a logical one, and no
text of a publisher can make it larger. The key of a chain is the identifier of its head. NONE stands for a field
without a value. A *link* says that an identifier belongs to a chain. Links are all the state that there is; ChainFile
(chain_file.py) keeps them over restarts.

Invariants: no clock and no I/O. The same messages in the same order give the same keys, also if some of them are asked
for again: so what a file has not got yet is made again from the log. A message that is refused changes nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

NONE = 0
"""The identifier of a field without a value, and the key of a message that has none. No text has it."""


@dataclass(frozen=True, slots=True)
class Link:
    """An identifier, the key of its chain, and the transaction id of the message that showed it."""

    identifier: int
    key: int
    txid: int


class ChainKeys:
    """The chains of one topic."""

    def __init__(self, validation: bool = False, links: Iterable[Link] = ()) -> None:
        """`validation`: a message whose own identifier belongs to another chain than the one it names is refused.
        `links`: those of earlier runs, in their order.
        """
        self._validation = validation
        self._keys = {link.identifier: link.key for link in links}
        self._new: list[Link] = []

    def __len__(self) -> int:
        """The number of known identifiers."""
        return len(self._keys)

    def resolve(self, primary: int, secondaries: Sequence[int], missing_key: int, txid: int) -> int:
        """Return the key of the next message; NONE: it belongs to two chains, and is refused.

        `missing_key`: the key of a message without any identifier, that of the empty text.
        """
        named = [identifier for identifier in secondaries if identifier != NONE]
        if not named:
            if primary == NONE:
                return missing_key
            return self._keys.get(primary) or self._link(primary, primary, txid)
        chains = {self._keys[identifier] for identifier in named if identifier in self._keys}
        if len(chains) > 1:
            return NONE
        key = chains.pop() if chains else named[0]
        if self._validation and primary != NONE and self._keys.get(primary, key) != key:
            return NONE
        for identifier in (*named, primary):
            if identifier != NONE and self._keys.get(identifier) != key:
                self._link(identifier, key, txid)
        return key

    def take_new_links(self) -> list[Link]:
        """Return the links made since the last call, in their order."""
        taken, self._new = self._new, []
        return taken

    def _link(self, identifier: int, key: int, txid: int) -> int:
        self._keys[identifier] = key
        self._new.append(Link(identifier, key, txid))
        return key
