"""XML: reading fields, writing messages, merging, comparing."""

include "xml_scan.pxi"
include "xml_build.pxi"
include "xml_documents.pxi"
