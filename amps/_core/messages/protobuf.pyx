"""Protocol buffers: reading fields, by the plan that a message descriptor gives."""

include "protobuf_plan.pxi"
include "protobuf_scan.pxi"
