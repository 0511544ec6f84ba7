"""The topics of one transport, and what a record tells about its message."""

include "../shm/layout.pxi"
include "topic_table.pxi"
include "message_facts.pxi"
