"""Values of expressions, and the fields of messages that they come from.

How it works. A `FieldSet` is the tree of all paths that live expressions name. An `Extractor` of a message type walks
the message and the tree side by side and leaves what it finds in the slots of a `FieldValues`. A value stays as it
stands in the message until an expression looks at it; `settle` then converts it once.

What lives here: values, their conversion and comparison, sets of constants, publisher ids (`value`); paths,
extractors and builders as all message types share them, and the evaluation budget of one message (`fields`); text of
numbers and times (the C headers).

What may not live here: a message format (`messages`), an operator or a function (`expressions`).

Invariants
- A slot keeps its number as long as its FieldSet lives.
- Values point into the message or into the arena of one message. Nothing of them is kept beyond it.
- No Python object is made for a value, except where a Python function asks for one.

Imports `shm`.
"""
