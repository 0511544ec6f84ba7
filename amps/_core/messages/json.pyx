"""JSON: reading fields, writing messages, merging, comparing."""

include "json_scan.pxi"
include "json_build.pxi"
include "json_documents.pxi"
