"""FIX and NVFIX: reading fields, writing messages, merging."""

include "fix_scan.pxi"
include "fix_build.pxi"
