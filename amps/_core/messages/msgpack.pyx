"""MessagePack: reading fields, writing messages, merging, comparing."""

include "msgpack_scan.pxi"
include "msgpack_build.pxi"
include "msgpack_documents.pxi"
