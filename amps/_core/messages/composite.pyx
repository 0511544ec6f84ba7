"""Composite messages: several messages in one."""

include "composite_scan.pxi"
include "composite_build.pxi"
include "composite_documents.pxi"
