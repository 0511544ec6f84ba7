"""Columns in the layout of Apache Arrow: what Spark reads of journals.

How it works. A `RecordColumns` walks the records of a part of a journal and appends the wanted ones to buffers that
have Arrow's layout. A `FieldColumns` goes through each payload along the tree of wanted columns and appends its
values.

What lives here: rows of records, fields of payloads, conversion by the rules of Spark's JSON reader.

What may not live here: anything that the server needs.

Invariants
- No Python object is made per row or value.
- Every column has as many cells as there are rows; a message without room adds none.

Imports `journal`, and the byte formats of `messages` (C headers only).
"""
