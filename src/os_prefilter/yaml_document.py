"""Reading of YAML files that people write: strict, and safe against files made to do harm.

Stricter than PyYAML's safe loader, which lets the last of two equal keys win, and recurses as deep as a file nests.
Explicit tags (``!!int``), more than one document, and merges of several mappings at once (``<<: [*a, *b]``, which can
grow exponentially) are refused; anchors, aliases and ``<<: *a`` work.
"""

from pathlib import Path
from typing import Any

import yaml

from os_prefilter.errors import DocumentError
from os_prefilter.files import read_bytes
from os_prefilter.texts import shown

MAX_DEPTH = 40
MAX_MERGED_KEYS = 200

_MERGE = "tag:yaml.org,2002:merge"
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
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentError(path, f"byte {error.start} is not UTF-8; save the file as UTF-8.") from error
    try:
        _check_shape(text)
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - it is a subclass of the safe loader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise DocumentError(path, f"{line}broken YAML: {error.problem or error.context}.") from error
    except yaml.YAMLError as error:
        raise DocumentError(path, f"broken YAML: {' '.join(str(error).split())}.") from error
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


def _check_keys(node: yaml.MappingNode) -> bool:
    """Refuse duplicate keys and merges of lists; say whether the mapping merges another one."""
    seen = set()
    for key, value in node.value:
        if key.tag == _MERGE and not isinstance(value, yaml.MappingNode):
            raise _refusal("'<<' merges one mapping, not a list", key.start_mark)
        if not isinstance(key, yaml.ScalarNode):
            continue
        if (key.tag, key.value) in seen:
            raise _refusal(f"the key {shown(key.value)} is given twice; keep one", key.start_mark)
        seen.add((key.tag, key.value))
    return any(tag == _MERGE for tag, _ in seen)


def _refusal(problem: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
