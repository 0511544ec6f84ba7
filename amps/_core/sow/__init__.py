"""SOW topics: the last value of every key.

How it works. A transport computes the fields of a topic's `Preprocessing`, and then the key of the message: a hash of
the topic's domain and the texts of its key fields. Both go to the core in the record of the message. The core computes
the fields of `Enrichment`, which may read the value that the key had before, and merges deltas.

A value is a record of the log, and the log is the store. A `KeyTable` has one slot of 64 bytes for each key of a topic:
the place of the key's newest record, its transaction id, its expiry. Each record of a SOW topic names its key, and the
place of the key's record before it. So the state before any transaction id is found by walking back from the slots: a
consistent snapshot without a lock. Values that are in no journal are in the topic's `ValueFile`: those of topics that
are not recorded, and those whose journals were removed.

What lives here:

- `shaping`, transports and core: the keys of messages (`keys.pxi`), and the fields that the server computes.
- `table`: the slots (`key_table.pxi`), the value file (`value_file.pxi`), the places of records (`places.pxi`), one
  topic in the core (`topic_state.pxi`), and the reading of a topic's state in other processes (`state_reader.pxi`).
- `ranking`, transports: the records of a topic in an order, for paginated subscriptions (`sort_keys.pxi`,
  `ranked_list.pxi`, `ranking.pxi`).

What may not live here: the commands of clients, the delivery to subscribers, I/O except on mapped files, clocks.

Invariants
- The same message, domain and fields give the same key, in every process, after every restart.
- The core is the only writer of slots and value files. Other processes read slots while they are written, and check
  that a slot did not change during the read.
- Every change of a topic's state is a record of the log or of the value file. A record's place never changes while a
  reader may follow it: the memory of removed values is used again only when all readers have passed their removal.
- The state that is rebuilt from records is the state that the core had after the last of them.

Imports `expressions`, `journal`, `values` and `shm`.
"""
