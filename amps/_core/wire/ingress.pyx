"""The input of one connection: receiving, publishes, acknowledgements of queue messages."""

include "../shm/layout.pxi"
include "leases.pxi"
include "acknowledgements.pxi"
include "publishes.pxi"
