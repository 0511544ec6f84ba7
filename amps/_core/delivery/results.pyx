"""Results of queries of SOW topics: finds the records of a snapshot that match, and lays them out for a client."""

cimport cython

include "../shm/layout.pxi"
include "result_frames.pxi"
include "state_scan.pxi"
