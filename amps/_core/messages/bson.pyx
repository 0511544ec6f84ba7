"""BSON: reading fields, writing messages, merging, comparing."""

include "bson_scan.pxi"
include "bson_build.pxi"
include "bson_documents.pxi"
