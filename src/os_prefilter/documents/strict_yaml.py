"""Reading of YAML files that people write: strict, and safe against files made to do harm.

Stricter than PyYAML's safe loader, which lets the last of two equal keys win, and recurses as deep as a file nests.
Explicit tags (``!!int``), more than one document, and merges of several mappings at once (``<<: [*a, *b]``, which can
grow exponentially) are refused; anchors, aliases and ``<<: *a`` work. So are numbers and booleans that YAML 1.1, which
PyYAML reads, and YAML 1.2 take for different values: ``010``, ``0x10``, ``1_000``, ``1:30``, ``yes`` and ``off``.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from os_prefilter.common.errors import DocumentError
from os_prefilter.common.quoting import quote
from os_prefilter.documents.files import decode, describe_value, read_bytes

MAX_BYTES = 4 * 1024 * 1024
"""The most that is parsed, in about ten seconds: a thousand rules have 200 KiB, a thousand hosts 300 KiB."""
MAX_DEPTH = 40
MAX_MERGED_KEYS = 200
MAX_VALUES = 1_000_000
"""The most values of a document that is checked against a schema: aliases make a few lines to as many as they like."""

_MERGE = "tag:yaml.org,2002:merge"
_BOOLEAN = "tag:yaml.org,2002:bool"
_FLOAT = "tag:yaml.org,2002:float"
_INTEGER = "tag:yaml.org,2002:int"
_TEXT = "tag:yaml.org,2002:str"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_VALUE = "tag:yaml.org,2002:value"
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
    with _document_errors(path, _with_column):
        text = _text_of(data, path)
        _check_shape(text)
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - it is a subclass of the safe loader


@dataclass(frozen=True, slots=True)
class Document:
    """The value of a YAML document, and where its parts are."""

    value: Any
    _root: yaml.Node | None

    def line(self, path: Iterable[str | int]) -> int:
        """Return the line of what these keys and indexes lead to: of a key, where the last one is the key of a mapping.

        The first line is 1. A path that leads nowhere has the line of the last place on the way.
        """
        line, node = 1, self._root
        if node:
            line = int(node.start_mark.line) + 1
        for step in path:
            if isinstance(node, yaml.MappingNode):
                # From the end: what a mapping merges stands before its own keys.
                pairs = [pair for pair in reversed(node.value) if pair[0].value == step]
            elif isinstance(node, yaml.SequenceNode) and isinstance(step, int):
                pairs = [(each, each) for each in node.value[step : step + 1]]
            else:
                pairs = []
            if not pairs:
                return line
            line, node = int(pairs[0][0].start_mark.line) + 1, pairs[0][1]
        return line


def parse_document(data: bytes, path: object, *, as_written: bool = False) -> Document:
    """Return what YAML text holds, with lines. Keys must be text, and aliases must not make it huge.

    :param as_written: read numbers and dates as the text that is written, and yes, no, on and off as booleans
    :raises DocumentError: as :func:`parse_yaml`, with the line
    """
    with _document_errors(path, _with_line):
        text = _text_of(data, path)
        _check_shape(text)
        loader = (_TextLoader if as_written else _StrictLoader)(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return Document(None, None)
            _count_values(node, {})
            return Document(loader.construct_document(node), node)
        finally:
            loader.dispose()


def _count_values(node: yaml.Node, counts: dict[int, int]) -> int:
    """Return how many values a node holds with all that its aliases name.

    :param counts: those of the nodes that were counted already; 0 for one that is being counted
    """
    if id(node) in counts:
        if not counts[id(node)]:
            raise _refusal("a value contains itself", node.start_mark)
        return counts[id(node)]
    counts[id(node)] = 0
    count, children = 1, []
    if isinstance(node, yaml.MappingNode):
        for key, _ in node.value:
            if key.tag not in (_TEXT, _MERGE):
                raise _refusal("a key must be text; put it into quotes", key.start_mark)
        children = [value for _, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        children = node.value
    for child in children:
        count += _count_values(child, counts)
        if count > MAX_VALUES:
            raise _refusal(f"more than {MAX_VALUES} values, with those that aliases repeat", child.start_mark)
    counts[id(node)] = count
    return count


def _text_of(data: bytes, path: object) -> str:
    if len(data) > MAX_BYTES:
        advice = "Split the file; a fleet can be given as JSON, as 'os-prefilter snapshot' writes it."
        raise DocumentError(path, f"the YAML is larger than {MAX_BYTES >> 20} MiB, the most that is read. {advice}")
    return decode(data, path)


def _with_column(path: object, mark: Any, problem: str) -> DocumentError:
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return DocumentError(path, where + problem)


def _with_line(path: object, mark: Any, problem: str) -> DocumentError:
    return DocumentError(path, problem, mark.line + 1 if mark else 0)


@contextmanager
def _document_errors(path: object, error_at: Callable[[object, Any, str], DocumentError]) -> Iterator[None]:
    """Raise what PyYAML raises as an error of ours, with the place in the document."""
    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        # A name at its end is text of the file, and may be a password: * and ! at its start are YAML's own.
        problem = _QUOTED_TEXT.sub("", error.problem or error.context or "")
        raise error_at(path, mark, f"broken YAML: {problem}.") from None
    except yaml.YAMLError as error:
        raise DocumentError(path, f"broken YAML: {' '.join(str(error).split())}.") from None
    except (ValueError, OverflowError) as error:
        # Dates that do not exist and integers of thousands of digits get past YAML's grammar.
        raise DocumentError(path, describe_value(error)) from error
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


class _TextLoader(_StrictLoader):
    """The strict loader for documents that compare text: 010, 1.10 and 2026-01-01 stay as they are written."""


for _tag in (_INTEGER, _FLOAT, _TIMESTAMP, _MERGE, _VALUE):
    _TextLoader.add_constructor(_tag, _Base.construct_yaml_str)
# Rules compare a boolean with each of its spellings, so that here yes and off do no harm.
_TextLoader.add_constructor(_BOOLEAN, _Base.construct_yaml_bool)


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
