"""When messages are fully persisted: durable here, and acknowledged by the destinations that are sync."""

include "../shm/layout.pxi"
include "destinations.pxi"
include "destination_waits.pxi"
include "ack_checkpoints.pxi"
