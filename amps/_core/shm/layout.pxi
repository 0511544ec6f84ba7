# Included by every module that depends on the layout of shared memory or of records.
#
# AMPS_LAYOUT is a hash of those declarations, which setup.py computes; it is compiled into each module. A module that
# was built from different declarations would access wrong addresses, so its import fails.

from amps._core.shm.memory import require_layout

cdef extern from "layout_mark.h":
    const unsigned long long AMPS_LAYOUT

require_layout(__name__, AMPS_LAYOUT)
