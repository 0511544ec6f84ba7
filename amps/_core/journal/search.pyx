"""Reading parts of a log: by topic, ahead of a reader, in parallel, and for tools."""

include "../shm/layout.pxi"
include "record_search.pxi"
include "topic_index.pxi"
include "topic_steps.pxi"
include "read_ahead.pxi"
include "split_points.pxi"
include "removals.pxi"
