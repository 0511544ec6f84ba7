"""The streams of a link between instances: sources, sinks, rules, and what is acknowledged."""

cimport cython

include "../shm/layout.pxi"
include "txids.pxi"
include "number_map.pxi"
include "rules.pxi"
include "payloads.pxi"
include "source.pxi"
include "acknowledged.pxi"
include "onward.pxi"
include "sink.pxi"
