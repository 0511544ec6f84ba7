# Publisher ids: the fixed 64-bit hash of a client name.
#
# The hash is part of the journal format and of every bookmark, so it is the same on every instance and platform and
# will not change: FNV-1a over the UTF-8 bytes (offset basis 0xcbf29ce484222325, prime 0x100000001b3), then the
# 64-bit finalizer of MurmurHash3; 0 becomes 1, because 0 means EPOCH and NOW (transaction_log.md §20, items 2, 3).

SERVER_NAMES = "amps-server: "
"""How the names of a server's own publishers begin, for which no client may log on."""

cdef uint64_t FNV_OFFSET = <uint64_t>0xCBF29CE484222325
cdef uint64_t FNV_PRIME = <uint64_t>0x100000001B3


cdef uint64_t hash_bytes(const uint8_t* data, Py_ssize_t length, uint64_t start) noexcept nogil:
    """The hash. A `start` other than 0 selects another hash function of the family."""
    cdef uint64_t value = FNV_OFFSET ^ start
    cdef Py_ssize_t index
    for index in range(length):
        value = (value ^ data[index]) * FNV_PRIME
    value ^= value >> 33
    value *= <uint64_t>0xFF51AFD7ED558CCD
    value ^= value >> 33
    value *= <uint64_t>0xC4CEB9FE1A85EC53
    value ^= value >> 33
    return value if value else 1


def publisher_id(str client_name):
    """Publisher id of a client name: first part of its bookmarks. Never 0."""
    cdef bytes raw = client_name.encode("utf-8", "surrogatepass")
    return hash_bytes(<const uint8_t*><const char*>raw, len(raw), 0)


def derived_publisher_id(str client_name, str instance_name):
    """Publisher id that the server uses for messages of this client without a sequence number."""
    cdef bytes raw = (client_name + "\0" + instance_name).encode("utf-8", "surrogatepass")
    return hash_bytes(<const uint8_t*><const char*>raw, len(raw), 0)


def topic_hash(str topic, str message_type):
    """Hash of a topic and its message type, as stored in topic records."""
    cdef bytes raw = (message_type + "\0" + topic).encode("utf-8", "surrogatepass")
    return hash_bytes(<const uint8_t*><const char*>raw, len(raw), 0)
