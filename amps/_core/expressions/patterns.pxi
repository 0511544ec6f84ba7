# Patterns of LIKE and of the REGEXP functions (expressions.md §7).
#
# The engine is PCRE2 in byte mode. Most patterns are a literal with or without anchors and `(?i)`. These are searched
# directly, without a Python object and with exactly the result of the engine.
#
# Invariant: a search ends. The engine counts the steps from each position of the text and gives up at MATCH_LIMIT. In
# long texts, where the positions themselves are many, a callout checks at each position whether GUARD_SECONDS or the
# time for the current message (values/evaluation_budget.pxi) has passed. A search that was given up has no match and is
# counted in `given_up`.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcmp

import re

import pcre2

from amps._core.values.fields cimport deadline_after, give_up, has_passed, is_large_and_over, is_over


cdef extern from "<string.h>" nogil:
    void* memmem(const void* haystack, size_t haystack_length, const void* needle, size_t needle_length)


cdef enum:
    FOLDED_PART_MIN = 16           # shorter parts, and parts of shorter texts, are compared at each position
    FOLDED_TEXT_MIN = 256

MATCH_LIMIT = 200_000
"""Steps from one position of a text; some milliseconds."""
_DEPTH_LIMIT = 200_000
_HEAP_LIMIT_KIB = 65_536
GUARD_BYTES_MIN = 32_768
"""Texts longer than this are searched with a check of the time."""
GUARD_SECONDS = 2

_LIMITS = b"(*LIMIT_MATCH=%d)(*LIMIT_DEPTH=%d)(*LIMIT_HEAP=%d)" % (MATCH_LIMIT, _DEPTH_LIMIT, _HEAP_LIMIT_KIB)

# Verbs at the beginning of a pattern by which PCRE2 switches to characters instead of bytes.
_UNICODE_MODE = re.compile(rb"(?:\(\*[^)]*\))*?\(\*(?:UTF|UCP)")

# PCRE2 error: the machine code ran out of stack. The search is repeated with the interpreter.
_ERROR_JIT_STACK_LIMIT = -46

_META = frozenset(b"\\^$.[|()?*+{")
_MODIFIERS = re.compile(rb"\(\?([A-Za-z]+)\)")


cdef inline uint8_t lower(uint8_t byte) noexcept nogil:
    return byte | 0x20 if c"A" <= byte <= c"Z" else byte


cdef bint same_text(const uint8_t* left, const uint8_t* right, uint64_t length, bint ignores_case) noexcept nogil:
    cdef uint64_t at
    if not ignores_case:
        return memcmp(left, right, length) == 0
    for at in range(length):
        if lower(left[at]) != lower(right[at]):
            return False
    return True


cdef const uint8_t* find_text(
    const uint8_t* text, uint64_t length, const uint8_t* part, uint64_t part_length, bint ignores_case
) noexcept nogil:
    """The first occurrence; NULL if there is none.

    The time is proportional to the lengths, for every text and part: where comparing at each position might take
    longer, copies in lower case are searched.
    """
    cdef const uint8_t* last
    cdef const uint8_t* found
    cdef uint8_t* folded
    if part_length > length:
        return NULL
    if part_length == 0:
        return text
    if not ignores_case:
        if part_length == 1:
            return <const uint8_t*>memchr(text, part[0], length)
        return <const uint8_t*>memmem(text, length, part, part_length)
    if part_length >= FOLDED_PART_MIN and length >= FOLDED_TEXT_MIN:
        folded = <uint8_t*>malloc(length + part_length)
        if folded != NULL:
            fold_case(folded, text, length)
            fold_case(folded + length, part, part_length)
            found = <const uint8_t*>memmem(folded, length, folded + length, part_length)
            free(folded)
            return text + (found - folded) if found != NULL else NULL
    last = text + (length - part_length)
    while text <= last:
        if lower(text[0]) == lower(part[0]) and same_text(text, part, part_length, True):
            return text
        text += 1
    return NULL


cdef void fold_case(uint8_t* folded, const uint8_t* text, uint64_t length) noexcept nogil:
    cdef uint64_t at
    for at in range(length):
        folded[at] = lower(text[at])


def literal_of(pattern):
    """(literal, anchored at the start, at the end), or None if the engine is needed. No modifiers may be in front."""
    literal = bytearray()
    at = 0
    starts = pattern[:1] == b"^"
    if starts:
        at = 1
    while at < len(pattern):
        byte = pattern[at]
        if byte == ord("$") and at == len(pattern) - 1:
            return bytes(literal), starts, True
        if byte == ord("\\") and at + 1 < len(pattern) and pattern[at + 1] < 0x80:
            byte = pattern[at + 1]
            if bytes((byte,)).isalnum():
                return None
            at += 1
        elif byte in _META:
            return None
        literal.append(byte)
        at += 1
    return bytes(literal), starts, False


cdef void note_given_up(Pattern pattern) noexcept:
    pattern.given_up += 1
    give_up()


cdef class Pattern:

    def __init__(self, bytes text, bint raw=False):
        """raw: every character is literal. ValueError: the pattern is not valid."""
        self.text = text
        self.raw = raw
        self.literal = None
        self.given_up = 0
        self.ignores_case = False
        self.anchored_start = False
        self.anchored_end = False
        body = text
        modifiers = b""
        if raw:
            self.literal = text
            self.compiled = re.sub(rb"([\\^$.\[|()?*+{])", rb"\\\1", text)
        else:
            if _UNICODE_MODE.match(text):
                raise ValueError("broken pattern: patterns work on bytes, there is no UTF mode")
            match = _MODIFIERS.match(text)
            if match is not None:
                modifiers = match[1]
                body = text[match.end() :]
            if modifiers in (b"", b"i"):
                found = literal_of(body)
                if found is not None:
                    self.literal, self.anchored_start, self.anchored_end = found
                    self.ignores_case = modifiers == b"i"
            if b"A" in modifiers:
                rest = modifiers.replace(b"A", b"")
                group = b"(?" + rest + b")" if rest else b""
                self.compiled = b"\\A(?:" + group + body + b"\n" * (b"x" in rest) + b")"
            else:
                self.compiled = text
        self.engine = None
        self.interpreted = None
        self.guarded = None
        if self.literal is None:
            self.prepare()
        else:
            self.literal_text = <const uint8_t*>PyBytes_AS_STRING(self.literal)
            self.literal_length = <uint32_t>len(self.literal)

    def prepare(self):
        """Compile the pattern for the engine. ValueError: it is not valid."""
        if self.engine is None:
            try:
                self.engine = pcre2.compile(_LIMITS + self.compiled)
            except pcre2.LibraryError as error:
                raise ValueError(f"broken pattern: {self._reason(error)}") from error

    def _reason(self, error):
        position = getattr(error, "pos", None)
        if position is None:
            return str(error)
        reason = str(error).partition("; ")[2]
        return f"{reason} (at byte {max(0, min(position - len(_LIMITS), len(self.text)))} of it)"

    def __repr__(self):
        return f"Pattern({self.text!r}, raw={bool(self.raw)})"

    def __eq__(self, other):
        return isinstance(other, Pattern) and (self.text, self.raw) == (other.text, other.raw)

    def __hash__(self):
        return hash((self.text, self.raw))

    @property
    def is_native(self):
        """Whether the pattern is searched without the engine."""
        return self.literal is not None

    cdef bint search(self, const uint8_t* text, uint32_t length) except -1:
        """Whether the pattern is found in a text."""
        if self.literal is not None:
            if is_large_and_over():
                note_given_up(self)
                return False
            return self.search_literal(text, length)
        return self.first_match(PyBytes_FromStringAndSize(<const char*>text, length)) is not None

    cdef bint search_literal(self, const uint8_t* text, uint32_t length) noexcept nogil:
        cdef const uint8_t* part = self.literal_text
        cdef uint64_t part_length = self.literal_length
        if part_length > length:
            return False
        if self.anchored_start:
            if not same_text(text, part, part_length, self.ignores_case):
                return False
            # As in Perl, `$` also matches in front of a last line feed.
            return not self.anchored_end or part_length == length or (
                part_length == length - 1 and text[length - 1] == c"\n"
            )
        if not self.anchored_end:
            return find_text(text, length, part, part_length, self.ignores_case) != NULL
        if same_text(text + (length - part_length), part, part_length, self.ignores_case):
            return True
        return (
            length > part_length
            and text[length - 1] == c"\n"
            and same_text(text + (length - 1 - part_length), part, part_length, self.ignores_case)
        )

    cdef object first_match(self, bytes subject):
        """The first match of the engine, or None."""
        self.prepare()
        self.deadline = deadline_after(GUARD_SECONDS * 1_000_000_000)
        return self.search_engine(subject, 0)

    cdef object search_engine(self, bytes subject, Py_ssize_t start):
        """The engine's match from a position on, or None. An error of the engine (limits, endless recursion) counts as
        a search that was given up.
        """
        if is_over():
            note_given_up(self)
            return None
        engine = self._guarded() if len(subject) > GUARD_BYTES_MIN else self.engine
        try:
            return engine.search(subject, start)
        except pcre2.LibraryError as error:
            if error.code != _ERROR_JIT_STACK_LIMIT:
                note_given_up(self)
                return None
        if self.interpreted is None:
            self.interpreted = pcre2.compile(_LIMITS + self.compiled, jit=False)
        try:
            return self.interpreted.search(subject, start)
        except pcre2.LibraryError:
            note_given_up(self)
            return None

    def _guarded(self):
        """The pattern with a callout before each attempt. If the callout cannot be inserted, the pattern itself."""
        if self.guarded is None:
            try:
                self.guarded = pcre2.compile(
                    _LIMITS + b"(?C1)(?:" + self.compiled + b"\\E)", callout=self._continue_or_not
                )
            except pcre2.LibraryError:
                # The last comment of an `(?x)` pattern includes the closing parenthesis.
                self.guarded = self.engine
        return self.guarded

    def _continue_or_not(self, place):
        return pcre2.CalloutReturn.ABORT if has_passed(&self.deadline) else pcre2.CalloutReturn.PASS

    cdef object replaced(self, bytes subject, bytes replacement, uint64_t bytes_max):
        self.prepare()
        pieces = []
        parts = template_parts(replacement, self.engine.groups)
        copied = 0
        start = 0
        made = 0
        self.deadline = deadline_after(GUARD_SECONDS * 1_000_000_000)
        while start <= len(subject):
            if has_passed(&self.deadline):
                note_given_up(self)
                return subject
            match = self.search_engine(subject, start)
            if match is None:
                break
            first, last = match.span()
            pieces.append(subject[copied:first])
            for part in parts:
                piece = part if isinstance(part, bytes) else match.group(part) or b""
                pieces.append(piece)
                made += len(piece)
            if made > bytes_max:
                raise MemoryError(f"a replacement would make more than {bytes_max} bytes")
            copied = last
            start = last if last > first else last + 1
        pieces.append(subject[copied:])
        return b"".join(pieces)

    def matches(self, bytes subject):
        """Whether the pattern is found, as in LIKE."""
        return bool(self.search(<const uint8_t*>PyBytes_AS_STRING(subject), <uint32_t>len(subject)))

    def find(self, bytes subject):
        """The first text that the pattern matches, or None."""
        match = self.first_match(subject)
        return None if match is None else match.group()

    def replace(self, bytes subject, bytes replacement, uint64_t bytes_max=1 << 28):
        r"""Replace every match. `\1`, `$1`, `${1}` are groups, `\0` and `$0` the match, `\\` and `$$` literals."""
        return self.replaced(subject, replacement, bytes_max)


_REFERENCE = re.compile(rb"\\(\d{1,2}|\\)|\$(\d{1,2}|\$)|\$\{(\d{1,2})\}")


def template_parts(replacement, group_count):
    """The literals and group numbers of a replacement. A reference to a group that does not exist is left out."""
    parts = []
    copied = 0
    for match in _REFERENCE.finditer(replacement):
        if match.start() > copied:
            parts.append(replacement[copied : match.start()])
        name = match[match.lastindex]
        if name in (b"\\", b"$"):
            parts.append(name)
        elif int(name) <= group_count:
            parts.append(int(name))
        copied = match.end()
    if copied < len(replacement):
        parts.append(replacement[copied:])
    return parts
