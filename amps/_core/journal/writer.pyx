"""Writing a log: the index of the file in use, appending, and going through a file without trusting it."""

include "../shm/layout.pxi"
include "bookmark_index.pxi"
include "append.pxi"
include "scan.pxi"
