"""Fields of messages: paths, the values found at them, and the writing of messages with known fields."""

include "evaluation_budget.pxi"
include "fields.pxi"
include "field_plans.pxi"
include "message_context.pxi"
include "destinations.pxi"
include "builder.pxi"
include "nested.pxi"
