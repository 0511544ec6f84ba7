"""The client's hot path: frames in, frames out. The sub-package describes it."""

include "received.pxi"
include "outgoing.pxi"
include "segment_writer.pxi"
include "arrivals.pxi"
