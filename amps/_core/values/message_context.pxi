# The facts about a message that expressions can read besides its fields (expressions.md §§10.9 and 10.10).
#
# A fact that was not set is NULL. The facts of a message are cleared before the next one; the instance's facts stay.

from libc.stdint cimport uint64_t

from amps._core.values.value cimport VALUE_NULL, Arena, from_python, to_python

FACT_NAMES = (
    "message_size",
    "correlation_id",
    "last_updated",
    "bookmark",
    "topic_name",
    "sow_key",
    "last_read",
    "sow_key_hash",
    "lease_count",
    "last_leased",
    "client_name",
    "connection_name",
    "user",
    "client_version",
    "remote_address",
    "amps_instance_name",
    "amps_instance_group",
)
"""The names of the facts, in the order of MessageFact. The functions have the same names."""


cdef class MessageContext:

    def __init__(self, bytes instance_name=b"", bytes instance_group=b""):
        cdef int at
        self.arena = Arena()
        self.instance_arena = Arena()
        self.live = False
        for at in range(<int>MESSAGE_FACTS_ALL):
            self.facts[at].kind = VALUE_NULL
            self.facts[at].flags = 0
        from_python(instance_name, &self.facts[<int>MESSAGE_INSTANCE_NAME], self.instance_arena)
        from_python(instance_group, &self.facts[<int>MESSAGE_INSTANCE_GROUP], self.instance_arena)

    cdef void forget(self) noexcept:
        """Clear the facts of the message, and the text that was copied for them."""
        cdef int at
        for at in range(<int>MESSAGE_FACTS):
            self.facts[at].kind = VALUE_NULL
            self.facts[at].flags = 0
        self.arena.clear()

    def set(self, str name, value):
        """Set a fact of the message: None, an int, a float or bytes, which are copied."""
        cdef uint64_t at = <uint64_t>FACT_NAMES.index(name)
        from_python(value, &self.facts[at], self.arena if at < MESSAGE_FACTS else self.instance_arena)

    def get(self, str name):
        """The value of a fact."""
        return to_python(&self.facts[<uint64_t>FACT_NAMES.index(name)], self.arena)

    def clear(self):
        """Clear the facts of the message, from Python."""
        self.forget()
