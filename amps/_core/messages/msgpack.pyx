"""MessagePack: reading fields, writing messages, merging."""

include "msgpack_scan.pxi"
include "msgpack_build.pxi"
