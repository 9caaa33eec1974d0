"""Checks for UUIDs: the forms that Placement accepts, and the usual one that users mean."""

_LENGTH, _DIGITS = 36, 32
_CHARACTERS = frozenset("0123456789abcdefABCDEF-")
_PARTS = [8, 4, 4, 4, 12]


def is_uuid(value: object) -> bool:
    """Return whether Placement takes it for a UUID in ``member_of`` or ``in_tree``; hyphens may be missing."""
    return (
        isinstance(value, str)
        and len(value) <= _LENGTH
        and set(value) <= _CHARACTERS
        and len(value.replace("-", "")) == _DIGITS
    )


def is_hyphenated_uuid(text: str) -> bool:
    """Return whether it is a UUID in the usual form: digits without hyphens may be the name of a host or an image."""
    return is_uuid(text) and list(map(len, text.split("-"))) == _PARTS
