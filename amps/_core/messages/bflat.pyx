"""BFlat: reading fields, writing messages, merging, comparing."""

include "bflat_scan.pxi"
include "bflat_build.pxi"
include "bflat_documents.pxi"
