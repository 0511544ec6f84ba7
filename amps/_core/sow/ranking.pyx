"""The records of a SOW topic in an order, for paginated subscriptions."""

cimport cython

include "../shm/layout.pxi"
include "sort_keys.pxi"
include "ranked_list.pxi"
include "ranking.pxi"
