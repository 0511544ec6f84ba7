"""Protocol buffers: reading fields, by a plan that is made from message descriptors."""

include "protobuf_plan.pxi"
include "protobuf_scan.pxi"
include "protobuf_documents.pxi"
