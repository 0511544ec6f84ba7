# Taken in by every module that relies on the layout of shared memory or of records.
#
# AMPS_LAYOUT is a hash of those declarations, which setup.py makes; it is compiled into each module. A module that
# was built from other declarations than the rest would read wrong places; so it refuses to be imported.

from amps._core.shm.memory import require_layout

cdef extern from "layout_mark.h":
    const unsigned long long AMPS_LAYOUT

require_layout(__name__, AMPS_LAYOUT)
