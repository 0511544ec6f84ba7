"""Queues in a transport: reading messages, filtering them for the core, sending them."""

include "../shm/layout.pxi"
include "messages.pxi"
include "filtering.pxi"
include "search.pxi"
include "sender.pxi"
