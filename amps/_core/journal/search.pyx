"""Walks through journal files for tools, topic indexes, reading ahead, split points, and removals from queues."""

include "../shm/layout.pxi"
include "record_search.pxi"
include "topic_index.pxi"
include "topic_steps.pxi"
include "read_ahead.pxi"
include "split_points.pxi"
include "removals.pxi"
