"""Values of expressions, and the fields and facts of messages from which they are read.

How it works. A `FieldSet` is the tree of all paths that live expressions name. An `Extractor` of a message type walks
the message and the tree side by side and stores the values it finds in the slots of a `FieldValues`. A value keeps the
form it has in the message until an expression reads it; `settle` then converts it once. Facts about a message that are
not in its payload (size, bookmark, topic, user) are in a `MessageContext`. `wire/message_facts.pxi` sets those that are
in the record.

What lives here: values, their conversion and comparison, sets of constants, publisher ids (`value`); paths, the parts
of extractors and builders that all message types share, the facts about a message (`message_context.pxi`), and the
evaluation budget of one message (`fields`); the text form of numbers and times (the C headers).

What may not live here: a message format (`messages`), an operator or a function (`expressions`).

Invariants
- A slot keeps its number for the lifetime of its FieldSet.
- Values point into the message or into the arena of one message. No pointer is kept beyond it.
- No Python object is created for a value, except as an argument or result of a Python function.

Imports `shm`.
"""
