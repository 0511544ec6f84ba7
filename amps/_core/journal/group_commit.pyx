"""Group commit: syncing what was written, saying what is durable, giving pages back."""

include "../shm/layout.pxi"
include "page_release.pxi"
include "group_commit.pxi"
