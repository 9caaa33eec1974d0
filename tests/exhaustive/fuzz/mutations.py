"""Changes to a document that a parser may trip over: of its bytes, and of what it holds where it is JSON or YAML."""

import json
from collections.abc import Callable
from random import Random
from typing import Any

import yaml

_LONG = "x" * 5_000
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 10**40, 0.5, -0.0, 1e308, float("nan"), float("inf")),
    *("", " ", "a\nb", "\r\n", "\0", "\x1b[31m", "\x9b", "\u2028", "\u202e", "\ufeff", "\ud800", "\U0001f427", _LONG),
    *("true", "YES", "1_000", "+1", " 1 ", "\uff11\uff12", "\u00b2", "9" * 5_000, "-0", "1e3", "0x10", "NaN"),
    *("required", "forbidden", "A,!B", "in:A", "&limit=1", "%26", "CUSTOM_", "trait:", "resources:", "<<", "*a"),
    *([], {}, [[]], {"": ""}, [None], {"a": {}}, ["a"] * 50),
)
"""What stands in for a value or a key."""
TOKENS: tuple[bytes, ...] = (
    *(b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\x80", b"\0", b"\x1b", b"\xc2\x85", b"\xe2\x80\xa8", b"\r", b"\n", b"\t"),
    *(b"{", b"}", b"[", b"]", b":", b",", b'"', b"'", b"- ", b"? ", b"| ", b"> ", b"# ", b"--- ", b"...", b"%YAML 1.2"),
    *(
        b"&a ",
        b"*a",
        b"<<: *a",
        b"!!int ",
        b"!!python/object:os.system ",
        b"!",
        b"2001-13-45",
        b"0o9",
        b"1:60",
        b".inf",
    ),
    *(b"NaN", b"1e999", b"\\u0000", b"\\ud800", b'"a":1,"a":2', b"[" * 500, b"{" * 50, b"9" * 5_000),
    *(
        b"<!DOCTYPE a [<!ENTITY b 'c'>]>",
        b"&b;",
        b"&#x9b;",
        b"<![CDATA[",
        b"]]>",
        b"<a>" * 60,
        b"xmlns='u'",
        b"<?xml?>",
    ),
    *(b"<?xml version='1.0' encoding='utf-16'?>", b"$virt_type", b"%(a)s", b"[libvirt]", b"= "),
)
"""What is put between bytes."""


def mutated(data: bytes, random: Random) -> bytes:
    """Return a document with one to four changes."""
    for _ in range(random.randint(1, 4)):
        data = random.choice(_CHANGES)(data, random)
    return data


def _part(data: bytes, random: Random) -> tuple[int, int]:
    start = random.randint(0, len(data))
    return start, min(len(data), start + random.randint(0, 40))


def _inserted(data: bytes, random: Random) -> bytes:
    start, _ = _part(data, random)
    return data[:start] + random.choice(TOKENS) + data[start:]


def _replaced(data: bytes, random: Random) -> bytes:
    start, end = _part(data, random)
    return data[:start] + random.choice(TOKENS) + data[end:]


def _removed(data: bytes, random: Random) -> bytes:
    start, end = _part(data, random)
    return data[:start] + data[end:]


def _repeated(data: bytes, random: Random) -> bytes:
    start, end = _part(data, random)
    return data[:end] + data[start:end] * random.randint(1, 20) + data[end:]


def _truncated(data: bytes, random: Random) -> bytes:
    return data[: _part(data, random)[0]]


def _flipped(data: bytes, random: Random) -> bytes:
    if not data:
        return data
    changed = bytearray(data)
    for _ in range(random.randint(1, 3)):
        changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed)


def _of_contents(data: bytes, random: Random) -> bytes:
    """Change a value or a key of what the document holds; of XML and the like, the bytes."""
    try:
        document = json.loads(data) if data.lstrip()[:1] in (b"{", b"[") else yaml.load(data, _Loader)  # noqa: S506
    except Exception:  # noqa: BLE001 - PyYAML raises all kinds for explicit tags
        return _inserted(data, random)
    places = list(_places(document))
    if not places:
        return _replaced(data, random)
    change = random.choice((_set_value, _set_value, _set_key, _swap))
    change(random, places)
    try:
        # A JSON document is YAML as well.
        return json.dumps(document, ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError):
        return _inserted(data, random)


_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
Place = tuple[Any, Any]


def _places(document: Any) -> list[Place]:
    """Return (container, key or index) of each value in a document."""
    found: list[Place] = []
    left, seen = [document], set()
    while left:
        each = left.pop()
        if id(each) in seen or not isinstance(each, (dict, list)):
            continue
        seen.add(id(each))
        items = list(each.items() if isinstance(each, dict) else enumerate(each))
        found += [(each, key) for key, _ in items]
        left += [value for _, value in items]
    return found


def _set_value(random: Random, places: list[Place]) -> None:
    container, key = random.choice(places)
    container[key] = random.choice(VALUES)


def _set_key(random: Random, places: list[Place]) -> None:
    container, key = random.choice(places)
    if isinstance(container, dict):
        container[str(random.choice(VALUES))] = container.pop(key)
    else:
        container.append(container[key])


def _swap(random: Random, places: list[Place]) -> None:
    (one, key), (other, other_key) = random.choice(places), random.choice(places)
    one[key], other[other_key] = other[other_key], one[key]


_CHANGES: tuple[Callable[[bytes, Random], bytes], ...] = (
    *(_of_contents, _of_contents, _of_contents, _of_contents),
    *(_inserted, _replaced, _removed, _repeated, _truncated, _flipped),
)
