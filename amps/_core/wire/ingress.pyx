"""The input of one connection: receiving, publishes, acknowledgements of queue messages, transactions."""

include "../shm/layout.pxi"
include "leases.pxi"
include "acknowledgements.pxi"
include "pending_transactions.pxi"
include "publishes.pxi"
include "transactions.pxi"
