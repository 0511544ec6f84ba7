"""BSON: reading fields, writing messages, merging."""

include "bson_scan.pxi"
include "bson_build.pxi"
