"""Operations on whole messages: merging a delta, comparing two states, applying a select list (sow.md §14, §17, §18)."""

include "member_tree.pxi"
include "selection.pxi"
include "documents.pxi"
