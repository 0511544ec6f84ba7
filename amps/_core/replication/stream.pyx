"""The streams of a link between instances: sources, sinks, rules, and what is acknowledged."""

cimport cython

include "../shm/layout.pxi"
include "txids.pxi"
include "number_map.pxi"
include "rules.pxi"
include "payloads.pxi"
include "marks.pxi"
include "source.pxi"
include "acknowledged.pxi"
include "onward.pxi"
include "source_names.pxi"
include "sink_records.pxi"
include "sink.pxi"
