"""The keys of SOW records, and the fields that the server computes for them."""

include "keys.pxi"
include "stage.pxi"
