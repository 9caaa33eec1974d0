# SPDX-License-Identifier: Apache-2.0

"""Strict reading of YAML that people write.

It uses PyYAML's safe loader, and refuses more than that does.

That is: a key that is given twice or is no text, tags, more than one document,
numbers and booleans on which YAML 1.1 and 1.2 disagree, and files made to do
harm, by their size, their depth, or aliases that repeat much. Anchors, aliases
and ``<<`` work; an anchored value must not contain aliases, so that what a
file grows to is known before it is built.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import yaml

from os_prefilter.common.dataclasses import dataclass
from os_prefilter.common.errors import DocumentError
from os_prefilter.common.quoting import quote
from os_prefilter.documents.files import decode, describe_value

MAX_BYTES = 4 * 1024 * 1024
"""The most that is parsed, in some twenty seconds.

A thousand rules have 200 KiB, a thousand hosts 300 KiB.
"""
MAX_DEPTH = 40
MAX_VALUES = 1_000_000
"""The most values of a document, counting each repetition by an alias."""

_MERGE = "tag:yaml.org,2002:merge"
_TEXT = "tag:yaml.org,2002:str"
_QUOTED_TEXT = re.compile(r"(?<=alias|nchor|andle) .*")
_PLAIN = re.compile(
    r"(?i:true|false)|[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?"
)
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Document:
    """The value of a YAML document, and where its parts are."""

    value: Any
    _root: yaml.Node | None

    def line(self, path: Iterable[str | int]) -> int:
        """Return the line of the part that these keys and indexes lead to.

        The line of a key, where the last one is the key of a mapping.

        The first line is 1. A path that leads nowhere has the line of the last
        place on the way.
        """
        line = 1
        node = self._root
        if node:
            line = int(node.start_mark.line) + 1
        for step in path:
            if isinstance(node, yaml.MappingNode):
                # From the end: what a mapping merges stands before its own
                # keys.
                pairs = [
                    pair
                    for pair in reversed(node.value)
                    if pair[0].value == step
                ]
            elif isinstance(node, yaml.SequenceNode) and isinstance(step, int):
                pairs = [(each, each) for each in node.value[step : step + 1]]
            else:
                pairs = []
            if not pairs:
                return line
            line = int(pairs[0][0].start_mark.line) + 1
            node = pairs[0][1]
        return line


def parse_yaml(data: bytes, path: object) -> object:
    """Parse YAML text; ``path`` names it in errors.

    Errors are those of :func:`parse_document`.
    """
    return parse_document(data, path).value


def parse_document(
    data: bytes, path: object, *, as_written: bool = False
) -> Document:
    """Return what YAML text holds, with lines.

    :param as_written: read numbers and dates as the text that is written
    :raises DocumentError: the text is not UTF-8 or not acceptable YAML; the
        message has the line
    """
    if len(data) > MAX_BYTES:
        advice = (
            "Split the file; a fleet can be given as JSON, as 'os-prefilter"
            " snapshot' writes it."
        )
        raise DocumentError(
            path,
            f"the YAML is larger than {MAX_BYTES >> 20} MiB, the most that is"
            f" read. {advice}",
        )
    text = decode(data, path)
    try:
        _check_shape(text)
        loader = (_TextLoader if as_written else _StrictLoader)(text)
        try:
            node = loader.get_single_node()
            return Document(
                None if node is None else loader.construct_document(node), node
            )
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark: Any = error.problem_mark or error.context_mark
        # A name at its end is text of the file, and may be a password: * and !
        # at its start are YAML's own.
        problem = _QUOTED_TEXT.sub("", error.problem or error.context or "")
        # A bracket may begin a key: looking ahead for its colon, libyaml 0.2.6
        # (PyYAML 6.0.4) meets a limit of its own of a thousand levels before
        # the first of them is an event.
        if "maximum nesting" in problem:
            problem = f"nested deeper than {MAX_DEPTH}"
        raise DocumentError(
            path, f"broken YAML: {problem}.", mark.line + 1 if mark else 0
        ) from None
    except yaml.YAMLError as error:
        raise DocumentError(
            path, f"broken YAML: {' '.join(str(error).split())}."
        ) from None


def _check_shape(text: str) -> None:
    """Refuse harmful YAML while it is a flat stream of events.

    So before anything recurses or is built.
    """
    depth = 0
    values = 0
    values_by_anchor: dict[str, int] = {}
    # The anchored collections that are open, each with its depth and the
    # values before it.
    anchored: list[tuple[str, int, int]] = []
    for event in yaml.parse(text, Loader=_Base):
        if getattr(event, "tag", None) is not None:
            raise _refusal("tags are not supported", event.start_mark)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(
            event, yaml.CollectionEndEvent
        )
        if depth > MAX_DEPTH:
            raise _refusal(f"nested deeper than {MAX_DEPTH}", event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            if anchored:
                problem = (
                    "an anchored value must not contain aliases; write out"
                    " what it repeats"
                )
                raise _refusal(problem, event.start_mark)
            values += values_by_anchor.get(str(event.anchor), 1)
        elif isinstance(event, yaml.NodeEvent):
            if event.anchor and isinstance(event, yaml.CollectionStartEvent):
                anchored.append((event.anchor, depth, values))
            values += 1
        elif (
            anchored
            and isinstance(event, yaml.CollectionEndEvent)
            and depth < anchored[-1][1]
        ):
            anchor, _, before = anchored.pop()
            values_by_anchor[anchor] = values - before
        if values > MAX_VALUES:
            raise _refusal(
                f"more than {MAX_VALUES} values, counting what aliases repeat",
                event.start_mark,
            )


class _StrictLoader(_Base):  # type: ignore[misc]
    """The safe loader, refusing duplicate keys and keys that are no text."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._checked: set[int] = set()

    def construct_object(self, node: yaml.Node, deep: bool = False) -> object:  # noqa: FBT001, FBT002 - PyYAML's
        try:
            return super().construct_object(node, deep)
        except (ValueError, OverflowError) as error:
            # Dates that do not exist and integers of thousands of digits get
            # past YAML's grammar.
            raise _refusal(
                describe_value(error).rstrip("."), node.start_mark
            ) from error

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        # Once a node: after a merge, a key that overrides a merged one is
        # rightly there twice.
        if id(node) not in self._checked:
            self._checked.add(id(node))
            seen = set()
            for key, _ in node.value:
                if key.tag not in (_TEXT, _MERGE):
                    raise _refusal(
                        "a key must be text; put it into quotes",
                        key.start_mark,
                    )
                if key.value in seen:
                    raise _refusal(
                        f"the key {quote(key.value)} is given twice; keep one",
                        key.start_mark,
                    )
                seen.add(key.value)
        super().flatten_mapping(node)

    def construct_plain(self, node: yaml.ScalarNode) -> object:
        """Return a number or a boolean; refuse what YAML 1.2 reads otherwise.

        010 is 8 to YAML 1.1 and 10 to YAML 1.2, and yes a boolean or a text.
        """
        if not _PLAIN.fullmatch(node.value):
            problem = (
                f"readers of YAML disagree on {quote(node.value)}; write a"
                " decimal number, true or false, or quote it"
            )
            raise _refusal(problem, node.start_mark)
        return _Base.yaml_constructors[node.tag](self, node)


for _tag in ("bool", "float", "int"):
    _StrictLoader.add_constructor(
        f"tag:yaml.org,2002:{_tag}", _StrictLoader.construct_plain
    )


def _resolvers_ending(ends: tuple[str, ...]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for first, resolvers in _Base.yaml_implicit_resolvers.items():
        found[first] = [each for each in resolvers if each[0].endswith(ends)]
    return found


class _TextLoader(_StrictLoader):
    """The strict loader for documents that compare text.

    010, 1.10 and 2026-01-01 stay as they are written.
    """

    # PyYAML's own attribute.
    yaml_implicit_resolvers = _resolvers_ending((":bool", ":merge", ":null"))


# Rules compare a boolean with each of its spellings, so that here yes and off
# do no harm.
_TextLoader.add_constructor(
    "tag:yaml.org,2002:bool", _Base.construct_yaml_bool
)


def _refusal(problem: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
