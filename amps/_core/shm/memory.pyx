"""The control page, the rings, the pending tables of destinations, and the placement of the core on processors.

The layouts are in memory.pxd. Every module that depends on a layout includes `layout.pxi`, so that its import fails
beside modules that were built from different declarations.
"""

include "control_page.pxi"
include "pending_table.pxi"
include "placement.pxi"
