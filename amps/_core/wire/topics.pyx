"""The topics of one transport, and the facts about a message that its record holds."""

include "../shm/layout.pxi"
include "sow_rules.pxi"
include "topic_table.pxi"
include "message_facts.pxi"
