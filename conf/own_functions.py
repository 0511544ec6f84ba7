"""Functions of expressions that message-types.xml declares.

The arguments of a function are None, bool, int, float or bytes; it returns one of these, or a str. For an array it gets
the first element. If a function raises an exception, its result is NULL and the server logs it.
"""


def has_tag(tags: object, tag: object) -> bool:
    """True if a tag is in a text of tags with blanks between them."""
    return isinstance(tags, bytes) and tag in tags.split()
