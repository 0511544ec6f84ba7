"""The state of SOW topics, read from their files without a server."""

cimport cython

include "../shm/layout.pxi"
include "state_fold.pxi"
