"""FIX and NVFIX: reading fields, writing messages, merging, comparing."""

include "fix_scan.pxi"
include "fix_build.pxi"
include "fix_documents.pxi"
