"""BFlat: reading fields, writing messages, merging."""

include "bflat_scan.pxi"
include "bflat_build.pxi"
