"""Writing a log: the index of the file in use, appending, and scanning files whose content is not trusted."""

include "../shm/layout.pxi"
include "bookmark_index.pxi"
include "append.pxi"
include "scan.pxi"
