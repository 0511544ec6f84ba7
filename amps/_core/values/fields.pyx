"""Fields of messages: paths, what was found of them, and how messages with known fields are written."""

include "evaluation_budget.pxi"
include "fields.pxi"
include "field_plans.pxi"
include "message_context.pxi"
include "destinations.pxi"
include "builder.pxi"
include "nested.pxi"
