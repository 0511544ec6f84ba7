"""Columns in the layout of Apache Arrow, for reading journals with Spark.

How it works. A `RecordColumns` walks the records of a part of a journal and appends the selected ones to buffers in
Arrow's layout. A `FieldColumns` reads each payload in one pass, along the tree of requested columns, and appends its
values.

What lives here: rows of records, fields of payloads, conversion by the rules of Spark's JSON reader.

What may not live here: any part that the server needs.

Invariants
- No Python object is created per row or value.
- Every column has as many cells as there are rows. A message for which there is no room adds none.

Imports `journal`, and the byte formats of `messages` (C headers only).
"""
