"""Fields of payloads, rows of records, and the walk through a journal that fills them."""

include "../shm/layout.pxi"
include "payload_fields.pxi"
include "rows.pxi"
include "records.pxi"
include "placed.pxi"
