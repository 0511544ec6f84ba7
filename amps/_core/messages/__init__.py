"""Message types: reading fields of messages, and writing messages.

How it works. Each module holds one type, its extractor (`…_scan.pxi`) and its builder (`…_build.pxi`) side by side. An
extractor fills the slots of a `FieldSet`; a builder writes a message, or an existing message with some fields changed.
`amps/messages/` names the types for configurations and adds the ones that are written in Python.

What lives here: JSON, XML, FIX and NVFIX, MessagePack, BSON, BFlat, protocol buffers, structs, composite messages. The
headers `…_wire.h` contain the byte formats that columns for Spark read too.

What may not live here: the evaluation of fields in expressions.

Invariants
- Input is hostile: nothing is read beyond the end of a message, and depth and lengths are bounded.
- A text is copied only if it has to change (escapes).
- A merge keeps every byte that does not have to change.

A new type is one module here that subclasses `Extractor` (and `MessageBuilder`), and one module and entry in
`amps/messages/`. CONTRIBUTING.md lists all places.

Imports `values`.
"""
