"""Reading of YAML files that people write: strict, and safe against files made to do harm.

Stricter than PyYAML's safe loader, which lets the last of two equal keys win, and recurses as deep as a file nests.
Explicit tags (``!!int``), more than one document, and merges of several mappings at once (``<<: [*a, *b]``, which can
grow exponentially) are refused; anchors, aliases and ``<<: *a`` work. So are numbers and booleans that YAML 1.1, which
PyYAML reads, and YAML 1.2 take for different values: ``010``, ``0x10``, ``1_000``, ``1:30``, ``yes`` and ``off``.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from os_prefilter.common.quoting import quote
from os_prefilter.documents.files import read_bytes
from os_prefilter.errors import DocumentError

MAX_BYTES = 4 * 1024 * 1024
"""The most that is parsed, in about ten seconds: a thousand rules have 200 KiB, a thousand hosts 300 KiB."""
MAX_DEPTH = 40
MAX_MERGED_KEYS = 200

_MERGE = "tag:yaml.org,2002:merge"
_BOOLEAN = "tag:yaml.org,2002:bool"
_FLOAT = "tag:yaml.org,2002:float"
_INTEGER = "tag:yaml.org,2002:int"
_NULL = "tag:yaml.org,2002:null"
_DECIMAL = re.compile(r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
_QUOTED_TEXT = re.compile(r"(?<=alias|nchor|andle) .*")
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(path: str | Path) -> object:
    """Return what a YAML file holds, in plain Python types.

    :raises DocumentError: the file is missing, unreadable, too large, not UTF-8 or not acceptable YAML
    """
    return parse_yaml(read_bytes(path), path)


def parse_yaml(data: bytes, path: object) -> object:
    """Return what YAML text holds; ``path`` names it in errors.

    :raises DocumentError: the text is not UTF-8 or not acceptable YAML; the message has the line
    """
    with _document_errors(path, _said_in_words):
        text = _text_of(data, path)
        _check_shape(text)
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - it is a subclass of the safe loader


@dataclass(frozen=True, slots=True)
class Located:
    """A value of a YAML document, and where it is."""

    value: Any
    """A dict or a list of such values, True, False, None, or text: whatever else YAML would make of it."""
    line: int
    """The first is 1."""
    key_lines: Mapping[str, int] = field(default_factory=dict)
    """The line of each key of a dict."""


def parse_located(data: bytes, path: object) -> Located:
    """Return what YAML text holds, each value with its line; keys must be text.

    :raises DocumentError: as :func:`parse_yaml`; its path is ``FILE:LINE``
    """
    with _document_errors(path, _said_in_path):
        text = _text_of(data, path)
        _check_shape(text)
        loader = _StrictLoader(text)
        try:
            node = loader.get_single_node()
            return _located(loader, node, {}) if node else Located(None, 1)
        finally:
            loader.dispose()


def _located(loader: Any, node: yaml.Node, known: dict[int, Located | None]) -> Located:
    """Return a node as a value.

    :param known: what nodes became already, since aliases may name one many times; None while one is looked at
    """
    line = node.start_mark.line + 1
    if id(node) in known:
        found = known[id(node)]
        if found is None:
            raise _refusal("a value contains itself", node.start_mark)
        return found
    known[id(node)] = None
    if isinstance(node, yaml.MappingNode):
        loader.flatten_mapping(node)
        keys = {_key(loader, key): key.start_mark.line + 1 for key, _ in node.value}
        values = {_key(loader, key): _located(loader, value, known) for key, value in node.value}
        made = Located(values, line, key_lines=keys)
    elif isinstance(node, yaml.SequenceNode):
        made = Located([_located(loader, each, known) for each in node.value], line)
    else:
        made = Located(_scalar(loader, node), line)
    known[id(node)] = made
    return made


def _scalar(loader: Any, node: yaml.Node) -> bool | str | None:
    # As written: 010, 1.10 and 2026-01-01 are no numbers and dates to who compares text.
    if node.tag not in (_BOOLEAN, _NULL):
        return str(node.value)
    # Rules compare a boolean with each of its spellings, so that here yes and off do no harm.
    return None if node.tag == _NULL else bool(loader.construct_yaml_bool(node))


def _key(loader: Any, node: yaml.Node) -> str:
    key = _scalar(loader, node) if isinstance(node, yaml.ScalarNode) else None
    if not isinstance(key, str):
        raise _refusal("a key must be text; put it into quotes", node.start_mark)
    return key


def _text_of(data: bytes, path: object) -> str:
    if len(data) > MAX_BYTES:
        advice = "Split the file; a fleet can be given as JSON, as 'os-prefilter snapshot' writes it."
        raise DocumentError(path, f"the YAML is larger than {MAX_BYTES >> 20} MiB, the most that is read. {advice}")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentError(path, f"byte {error.start} is not UTF-8; save the file as UTF-8.") from error


def _said_in_words(path: object, mark: Any, problem: str) -> DocumentError:
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return DocumentError(path, where + problem)


def _said_in_path(path: object, mark: Any, problem: str) -> DocumentError:
    return DocumentError(f"{path}:{mark.line + 1}" if mark else path, problem)


@contextmanager
def _document_errors(path: object, said: Callable[[object, Any, str], DocumentError]) -> Iterator[None]:
    """Raise what PyYAML raises as an error of ours, with the place in the document."""
    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        # A name at its end is text of the file, and may be a password: * and ! at its start are YAML's own.
        problem = _QUOTED_TEXT.sub("", error.problem or error.context or "")
        raise said(path, mark, f"broken YAML: {problem}.") from None
    except yaml.YAMLError as error:
        raise DocumentError(path, f"broken YAML: {' '.join(str(error).split())}.") from None
    except (ValueError, OverflowError) as error:
        # Dates that do not exist and integers of thousands of digits get past YAML's grammar.
        raise DocumentError(path, f"a value cannot be read: {error}.") from error
    except RecursionError as error:
        raise DocumentError(path, "the YAML is nested too deep.") from error


def _check_shape(text: str) -> None:
    """Refuse deep nesting and tags while the text is still a flat stream of events, before anything recurses."""
    depth = 0
    for event in yaml.parse(text, Loader=_Base):
        if getattr(event, "tag", None) is not None:
            raise _refusal("tags are not supported", event.start_mark)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise _refusal(f"nested deeper than {MAX_DEPTH}", event.start_mark)


class _StrictLoader(_Base):  # type: ignore[misc]
    """The safe loader, minus silent loss of duplicate keys and minus merges that explode."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._checked: set[int] = set()

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        # Once a node: after a merge, a key that overrides a merged one is rightly there twice.
        if id(node) in self._checked:
            return
        self._checked.add(id(node))
        merges = _check_keys(node)
        super().flatten_mapping(node)
        if merges and len(node.value) > MAX_MERGED_KEYS:
            raise _refusal(f"a merge of more than {MAX_MERGED_KEYS} keys", node.start_mark)

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        """Return a number that every reader of YAML takes for the same."""
        if not _DECIMAL.fullmatch(node.value):
            # To YAML 1.1 010 is 8, 1:30 is 90 and 1_000 is 1000; to YAML 1.2 one is 10, and two are texts.
            problem = f"{quote(node.value)} is not a plain decimal number; write it as one, or put it into quotes"
            raise _refusal(problem, node.start_mark)
        return int(node.value) if node.tag == _INTEGER else float(node.value)

    def construct_boolean(self, node: yaml.ScalarNode) -> bool:
        """Return a boolean that every reader of YAML takes for one."""
        value = node.value.lower()
        if value not in ("true", "false"):
            # yes, no, on and off: booleans to YAML 1.1, texts to YAML 1.2.
            problem = f"{quote(node.value)} is a boolean or a text; write true or false, or put it into quotes"
            raise _refusal(problem, node.start_mark)
        return bool(value == "true")


_StrictLoader.add_constructor(_INTEGER, _StrictLoader.construct_number)
_StrictLoader.add_constructor(_FLOAT, _StrictLoader.construct_number)
_StrictLoader.add_constructor(_BOOLEAN, _StrictLoader.construct_boolean)


def _check_keys(node: yaml.MappingNode) -> bool:
    """Refuse duplicate keys and merges of lists; say whether the mapping merges another one."""
    seen = set()
    for key, value in node.value:
        if key.tag == _MERGE and not isinstance(value, yaml.MappingNode):
            raise _refusal("'<<' merges one mapping, not a list", key.start_mark)
        if not isinstance(key, yaml.ScalarNode):
            continue
        if (key.tag, key.value) in seen:
            raise _refusal(f"the key {quote(key.value)} is given twice; keep one", key.start_mark)
        seen.add((key.tag, key.value))
    return any(tag == _MERGE for tag, _ in seen)


def _refusal(problem: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
