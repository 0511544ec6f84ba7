"""SOW topics: the keys of their records, and the fields that the server computes for them (sow.md §3, §15).

How it works. A transport computes the fields of a topic's `Preprocessing`, and then the key of the message: a hash of
the topic's domain and the texts of its key fields. Both go to the core in the record of the message. The core computes
the fields of `Enrichment`, which may read the value that the key had before.

What lives here: keys and computed fields (`shaping`).

What may not live here: message formats, the compiler of expressions, policy.

Invariants
- A key depends only on the domain and on the texts of the key fields in the message. It is the same on every instance
  and after every restart, because it is stored in journals and compared by replicas.
- Key 0 means "no key". No message has it.
- A message that cannot be read has no key and no computed fields. It is refused, never stored in part.

Imports `values` and `expressions`.
"""
