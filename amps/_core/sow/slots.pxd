# The layout of a key table in shared memory, which other processes read. See sow/key_table.pxi.

from libc.stdint cimport uint16_t, uint32_t, uint64_t


cdef enum:
    TABLE_HEADER_BYTES = 4096
    NO_KEY_SLOT = 0xFFFFFFFF

# The highest bit of a place: the rest is an offset in the value file. Without it, a place is a log position.
cdef enum:
    PLACE_IN_FILE_BIT = 63


cdef enum KeyState:
    KEY_FREE = 0
    KEY_LIVE = 1
    KEY_REMOVED = 2                # deleted or expired: the newest record is that of the removal


# 64 bytes. One key of a topic.
cdef packed struct KeySlot:
    uint64_t key
    uint64_t place                 # of the key's newest record
    uint64_t txid                  # of that record
    uint64_t expires_ns            # UNIX time at which the value expires; NEVER
    # place of the value before `begin_position`, if it is not the newest record; 0 = none
    uint64_t base
    uint32_t length                # bytes of the newest record
    uint32_t next                  # number of the next slot of its bucket, plus 1; 0 = none
    uint32_t heap_place            # in the core's heap of expiries, plus 1; 0 = it is not there
    uint32_t version               # odd while the core changes the slot
    uint16_t state                 # KeyState
    uint16_t unused
    uint32_t topic                 # number of the logical topic, of a topic with a Pattern; 0 otherwise


# The beginning of the file.
cdef packed struct TableHeader:
    uint64_t version               # odd while the core changes chains of buckets
    uint64_t bucket_count
    uint64_t slots_used            # slots from 0 on that have been used
    uint64_t live                  # keys with a value
    uint64_t removed               # slots of removed keys
    uint64_t value_bytes           # of the records of the live keys
    uint64_t insert_count          # since the instance started
    uint64_t update_count
    uint64_t delete_count          # expiries too
    uint64_t last_txid             # of the last change
    uint64_t topic_count           # logical topics with a number
    # The past that can be read: what was before is in `KeySlot.base`. Of a topic that is not recorded: 0 and NEVER.
    uint64_t begin_position        # links to log positions before it lead nowhere
    uint64_t begin_txid            # snapshots before it cannot be read


cdef enum:
    REMOVED_KEYS_MAX = 2048        # keys of one record of a removal


# The payload of a KIND_SOW_DELETE in a ring. The core answers with the keys that have changed meanwhile.
cdef packed struct RemovalRequest:
    uint32_t token                 # of the answer; 0: none is wanted
    uint32_t count                 # of the keys that follow, ascending


cdef packed struct RequestedKey:
    uint64_t key
    # the key is removed only if its newest record has this transaction id; 0: in any case
    uint64_t seen_txid
