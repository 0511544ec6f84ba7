"""XML: reading fields, writing messages, merging."""

include "xml_scan.pxi"
include "xml_build.pxi"
