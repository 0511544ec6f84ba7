"""The queues' part in a transport: reads messages, evaluates filters for the core, and sends messages."""

include "../shm/layout.pxi"
include "messages.pxi"
include "filtering.pxi"
include "search.pxi"
include "sender.pxi"
