"""Group commit: syncs the journal, publishes the durable watermark, and releases pages."""

include "../shm/layout.pxi"
include "page_release.pxi"
include "group_commit.pxi"
