"""Operations on whole messages: merging deltas, comparing states, applying select lists (sow.md §14, §17, §18)."""

include "member_tree.pxi"
include "selection.pxi"
include "documents.pxi"
