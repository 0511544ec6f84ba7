"""The state of SOW topics: slots by key, values, and the reading of snapshots."""

cimport cython

include "../shm/layout.pxi"
include "key_table.pxi"
include "value_file.pxi"
include "places.pxi"
include "topic_state.pxi"
include "state_reader.pxi"
