"""Reading a log: compressed files, files, and cursors over them."""

include "../shm/layout.pxi"
include "compressed_file.pxi"
include "file.pxi"
include "cursor.pxi"
