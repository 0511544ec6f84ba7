"""The register of sessions, the sequencer, and the turns of the core."""

include "../shm/layout.pxi"
include "transport_state.pxi"
include "undecided.pxi"
include "sequencer.pxi"
include "transactions.pxi"
include "replicated.pxi"
include "turns.pxi"
