"""Filters and other expressions, compiled to numeric code and evaluated without Python objects.

How it works. The compiler (`amps/expressions/`) translates text into code: numbers, each with an operation and an
argument. A `Program` checks the code once, then a stack machine runs it on the field values of a message. A `FilterSet`
holds all filters of one topic: it reads a message once, looks up the equalities that its filters require, and runs only
the programs that can match.

What lives here: functions, operators and patterns (`functions`); the machine, predicates and filter sets (`machine`);
the state of groups for aggregates (`aggregates`).

What may not live here: the grammar, which is Python; message formats; subscriptions.

Invariants
- Code is checked when a Program is created. The machine relies on the check and never reads outside the stack.
- Every evaluation ends: patterns, pairs of arrays and large messages stop at the evaluation budget.
- Whether a filter matches does not depend on the other filters.

Imports `values` and `shm`.
"""
