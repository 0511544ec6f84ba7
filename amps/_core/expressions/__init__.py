"""Filters and other expressions, compiled to numbers and evaluated without Python objects.

How it works. The compiler (`amps/expressions/`) turns text into code: numbers, an operation and an argument each. A
`Program` checks the code once, then a stack machine runs it on the field values of a message. A `FilterSet` holds all
filters of one topic: it reads a message once, looks the wanted equalities up, and runs only the programs that can
match.

What lives here: functions, operators and patterns (`functions`); the machine, predicates and filter sets (`machine`);
the state of groups for aggregates (`aggregates`).

What may not live here: the grammar, which is Python; message formats; subscriptions.

Invariants
- Code is checked when a Program is made; the machine relies on it and never reads outside the stack.
- An evaluation ends: patterns, pairs of arrays and large messages stop at the evaluation budget.
- Whether a filter matches does not depend on which other filters there are.

Imports `values` and `shm`.
"""
