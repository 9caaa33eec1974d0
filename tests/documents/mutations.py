#    Licensed under the Apache License, Version 2.0 (the "License"); you may
#    not use this file except in compliance with the License. You may obtain
#    a copy of the License at
#
#         http://www.apache.org/licenses/LICENSE-2.0
#
#    Unless required by applicable law or agreed to in writing, software
#    distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
#    WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
#    License for the specific language governing permissions and limitations
#    under the License.

"""Changes to a document that a parser may trip over: to its bytes, and to its content where it is JSON or YAML."""

import json
from collections.abc import Sequence
from random import Random
from typing import Any

import yaml

_LONG = "x" * 5_000
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 10**40, 0.5, -0.0, 1e308, float("nan"), float("inf")),
    *("", " ", "a\nb", "\r\n", "\0", "\x1b[31m", "\x9b", "\u2028", "\u202e", "\ufeff", "\ud800", "\U0001f427", _LONG),
    *("true", "YES", "1_000", "+1", " 1 ", "\uff11\uff12", "\u00b2", "9" * 5_000, "-0", "1e3", "0x10", "NaN"),
    *("2026-01-01", "2001-13-45", "1:60", "~", "=", "1e999", "''", "&a x"),
    *("required", "forbidden", "A,!B", "in:A", "&limit=1", "%26", "CUSTOM_", "trait:", "resources:", "<<", "*a"),
    *([], {}, [[]], {"": ""}, [None], {"a": {}}, ["a"] * 50),
)
"""What stands in for a value or a key."""
TOKENS: tuple[bytes, ...] = (
    *(b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\x80", b"\0", b"\x1b", b"\xc2\x85", b"\xe2\x80\xa8", b"\r", b"\n", b"\t"),
    *(b"{", b"}", b"[", b"]", b":", b",", b'"', b"'", b"- ", b"? ", b"| ", b"> ", b"# ", b"--- ", b"...", b"%YAML 1.2"),
    *(b"&a ", b"*a", b"<<: *a", b"!!int ", b"!!python/object:os.system ", b"!", b"2001-13-45", b"0o9", b"1:60"),
    *(b"NaN", b"1e999", b"\\u0000", b"\\ud800", b'"a":1,"a":2', b"[" * 500, b"{" * 50, b"9" * 5_000),
    *(b"<!DOCTYPE a [<!ENTITY b 'c'>]>", b"&b;", b"&#x9b;", b"<![CDATA[", b"]]>", b"<a>" * 60, b"xmlns='u'"),
    *(b"<?xml version='1.0' encoding='utf-16'?>", b"$virt_type", b"%(a)s", b"[libvirt]", b"= ", b".inf", b"<?xml?>"),
)
"""What is put between bytes."""


def mutated(data: bytes, random: Random, keys: Sequence[str] = ()) -> bytes:
    """Return a document with one to four changes, of its bytes or of its content."""
    for _ in range(random.choice((1, 1, 2, 4))):
        data = _of_content(data, random, keys) if random.random() < 0.5 else _of_bytes(data, random)
    return data


def tree(random: Random, keys: Sequence[str], levels: int = 4) -> Any:
    """Return a value of these keys: below mappings and lists, values that parsers trip over."""
    kind = random.random()
    if levels and kind < 0.4:
        return {_key(random, keys): tree(random, keys, levels - 1) for _ in range(random.randint(0, 6))}
    if levels and kind < 0.5:
        return [tree(random, keys, levels - 1) for _ in range(random.randint(0, 3))]
    return random.choice((random.choice(VALUES), random.choice(keys), _text(random), random.randint(-9, 999)))


def tree_file(random: Random, keys: Sequence[str], *, is_yaml: bool) -> bytes:
    """Return a file with a mapping of the first keys, so that what is below them is reached; or of any."""
    first = random.choice((keys[:6], keys))
    document = {random.choice(first): tree(random, keys) for _ in range(random.randint(1, 6))}
    text = _flow(document) if is_yaml and random.random() < 0.5 else _json(document, random)
    return text.encode("utf-8", "surrogatepass")


def _key(random: Random, keys: Sequence[str]) -> str:
    return random.choice(keys) if random.random() < 0.9 else _text(random)


def _text(random: Random) -> str:
    return "".join(chr(random.randrange(random.choice((0x80, 0x3000, 0x110000)))) for _ in range(random.randint(0, 4)))


def _json(document: Any, random: Random) -> str:
    return json.dumps(document, ensure_ascii=random.random() < 0.5)


def _flow(value: Any) -> str:
    """Return YAML without quotes, each collection with the anchor a: what is text may be an alias or a merge."""
    if isinstance(value, dict):
        return f"&a {{{', '.join(f'{key}: {_flow(each)}' for key, each in value.items())}}}"
    if isinstance(value, list):
        return f"&a [{', '.join(map(_flow, value))}]"
    return str(value)


def _of_bytes(data: bytes, random: Random) -> bytes:
    """Insert a token, or replace, remove, repeat, or garble a part, or cut the document off."""
    start = random.randint(0, len(data))
    part = data[start : start + random.randint(0, 40)]
    token, rest = random.choice(TOKENS), data[start + len(part) :]
    garbled = random.randbytes(min(len(part), 3)) + part[3:]
    new = (token + part + rest, token + rest, rest, part * random.randint(2, 21) + rest, garbled + rest, b"")
    return data[:start] + random.choice(new)


def _of_content(data: bytes, random: Random, keys: Sequence[str]) -> bytes:
    """Change a value or a key of the content, exchange two values, or put a tree in; of XML and the like, the bytes."""
    document = _content(data)
    if not (places := _places(document)):
        return _of_bytes(data, random)
    (one, key), (other, other_key) = random.choice(places), random.choice(places)
    change = random.choice(("value", "value", "key", "exchange", *(("tree", "tree") if keys else ())))
    if change == "value":
        one[key] = random.choice(VALUES)
    elif change == "exchange":
        one[key], other[other_key] = other[other_key], one[key]
    elif change == "tree":
        one[_key(random, keys) if isinstance(one, dict) and random.random() < 0.5 else key] = tree(random, keys)
    elif isinstance(one, dict):
        one[str(random.choice(VALUES))] = one.pop(key)
    else:
        one.append(one[key])
    try:
        # A document of JSON is YAML as well.
        return _json(document, random).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError):
        return _of_bytes(data, random)


def _content(data: bytes) -> Any:
    """Return what a document of JSON or YAML holds; None if it is neither."""
    try:
        return json.loads(data) if data.lstrip()[:1] in (b"{", b"[") else yaml.load(data, _Loader)  # noqa: S506
    except Exception:  # noqa: BLE001 - PyYAML raises all kinds for explicit tags
        return None


_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _places(document: Any) -> list[tuple[Any, Any]]:
    """Return (container, key or index) of each value in a document."""
    found: list[tuple[Any, Any]] = []
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
