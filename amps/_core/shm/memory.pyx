"""The control page, the rings, and where the core runs.

The layouts are in memory.pxd. Every module that relies on a layout includes `layout.pxi`: it refuses to be imported
beside modules that were built from other declarations.
"""

include "control_page.pxi"
include "placement.pxi"
