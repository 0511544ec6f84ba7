"""The control page, the rings, and the placement of the core on processors.

The layouts are in memory.pxd. Every module that depends on a layout includes `layout.pxi`, so that its import fails
beside modules that were built from different declarations.
"""

include "control_page.pxi"
include "placement.pxi"
