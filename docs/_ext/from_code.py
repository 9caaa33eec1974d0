# SPDX-License-Identifier: Apache-2.0

"""Pages generated from the code when the documentation is built, so that they
cannot disagree with it.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from itertools import groupby
from pathlib import Path
from typing import ClassVar

import yaml
from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from oslo_config import cfg
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import nested_parse_with_titles

from os_prefilter.hosts.capabilities import REPORTERS
from os_prefilter.service.option_definitions import OPTIONS
from os_prefilter_tools.cli.catalogue import VOCABULARY_COLUMNS, vocabulary
from os_prefilter_tools.operators.property_names import properties_without_rows

_FIRST = ("Image property", "Flavor extra spec")
_NOT_ASKED_FOR = "Default machine type, lacking devices, and CPU models"
_SHOWN = ("Value", "Also spelt", "Trait", "When", "Why none")


def vocabulary_page() -> Iterator[str]:
    """Yield the vocabulary as reStructuredText: a section for each property,
    with a table of its values.
    """
    lines = [dict(zip(VOCABULARY_COLUMNS, line)) for line in vocabulary()]
    for (place, extra_spec), group in groupby(
        lines, lambda line: tuple(line[name] for name in _FIRST)
    ):
        values = list(group)
        yield from _title(place.split(", ")[0] or extra_spec or _NOT_ASKED_FOR)
        yield from _names(place, extra_spec, values[0]["Required by"])
        yield from table(
            _SHOWN, ([_cell(name, line) for name in _SHOWN] for line in values)
        )


def without_rows() -> Iterator[str]:
    """Yield a table of the properties without a row, with the reason for
    each.
    """
    yield from table(
        ("Image property", "Flavor extra spec", "Why no row"),
        (
            [
                *map(_quoted, (each.image_properties, each.extra_specs)),
                each.reason,
            ]
            for each in properties_without_rows()
        ),
    )


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"``{name}``" for name in names)


def _names(place: str, extra_spec: str, required_by: str) -> Iterator[str]:
    name, *legacy = place.split(", ")
    kind = "Field of the image" if name == "disk_format" else "Image property"
    if name:
        yield f":{kind}: ``{name}``"
    if legacy:
        yield f":Older names: {', '.join(f'``{each}``' for each in legacy)}"
    if extra_spec:
        yield f":Flavor extra spec: ``{extra_spec}``"
    who = (
        f"filter :ref:`{each} <filter-{each}>`"
        for each in required_by.split(", ")
        if each not in ("", "query")
    )
    no_filter = (
        "the query itself, as in Nova"
        if required_by
        else "no filter; others forbid machine types"
    )
    yield f":Required by: {', '.join(who) or no_filter}"
    yield ""


def _cell(name: str, line: dict[str, str]) -> str:
    text = line[name]
    if not text or name in ("When", "Why none"):
        return text
    quoted = _quoted(text.split(", "))
    return (
        f"not {quoted}"
        if name == "Trait" and line["Rule"] == "forbidden"
        else quoted
    )


def options_overview() -> Iterator[str]:
    """Yield a table of the options, each with its default and a reference to
    its description by oslo.config.
    """
    yield from table(
        ("Option", "Default"),
        (
            [f":ref:`{option.name} <option-{option.name}>`", _default(option)]
            for option in OPTIONS
        ),
    )


def _default(option: cfg.Opt) -> str:
    value = (
        ", ".join(option.default)
        if isinstance(option.default, list)
        else str(option.default)
    )
    return f"``{value}``" if value else "empty"


def label_options(_app: Sphinx, env: BuildEnvironment) -> None:
    """Have ``:ref:`` find an option by the label ``option-NAME``:
    oslo.config's extension gives it an anchor alone.
    """
    labels = env.get_domain("std").anonlabels
    for anchor, page in env.domaindata["oslo.config"]["options"].items():
        labels[f"option-{anchor.rpartition('.')[2]}"] = page, anchor


def reporters_page() -> Iterator[str]:
    """Yield the reporters. stevedore's extension shows the docstring of an
    object's class, the same for all of them.
    """
    for point in sorted(entry_points(group=REPORTERS)):
        summary = str(inspect.getdoc(import_module(point.module))).partition(
            "\n"
        )[0]
        yield f":ref:`{point.name} <reporter-{point.name}>`"
        yield f"    {summary}"


def _title(text: str) -> Iterator[str]:
    yield text
    yield "-" * len(text)
    yield ""


def table(
    heads: Sequence[str], rows: Iterable[Sequence[str]]
) -> Iterator[str]:
    """Yield a table as reStructuredText, without the columns that are
    empty.
    """
    rows = [list(row) for row in rows]
    used = [
        index for index in range(len(heads)) if any(row[index] for row in rows)
    ]
    yield ".. list-table::"
    yield "   :header-rows: 1"
    yield ""
    for row in (heads, *rows):
        for number, index in enumerate(used):
            yield f"   {'* -' if number == 0 else '  -'} {row[index]}".rstrip()
    yield ""


class FromCode(SphinxDirective):
    """Base of the directives: parse what ``make`` yields."""

    def make(self) -> Iterator[str]:
        """Yield lines of reStructuredText."""
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        """Return what the lines mean."""
        self.env.note_reread()
        section = nodes.section()
        section.document = self.state.document
        nested_parse_with_titles(
            self.state,
            StringList(list(self.make()), source="generated from the code"),
            section,
        )
        return section.children


class VocabularyPage(FromCode):
    """``.. vocabulary-page::``."""

    make = staticmethod(vocabulary_page)


class WithoutRows(FromCode):
    """``.. without-rows::``."""

    make = staticmethod(without_rows)


class OptionsOverview(FromCode):
    """``.. options-overview::``."""

    make = staticmethod(options_overview)


class ReportersPage(FromCode):
    """``.. reporters-page::``."""

    make = staticmethod(reporters_page)


class NotesWithoutHistory(FromCode):
    """``.. release-notes::`` where reno has no history to read: all notes, not
    sorted by release.
    """

    option_spec: ClassVar = {
        "relnotessubdir": directives.unchanged,
        "unreleased-version-title": directives.unchanged,
    }

    def make(self) -> Iterator[str]:
        """Yield the notes as reStructuredText."""
        yield from (
            (
                "These pages were built without the history of the repository:"
                " the notes are not sorted by release."
            ),
            "",
        )
        for path in sorted(
            Path(self.env.srcdir, "releasenotes", "notes").glob("*.yaml")
        ):
            note = yaml.safe_load(path.read_text(encoding="utf-8"))
            yield from (note.pop("prelude", ""), "")
            for section, items in note.items():
                yield from (f"**{section.capitalize()}**", "")
                for item in items:
                    yield from (
                        f"- {textwrap.indent(item.strip(), '  ').strip()}\n"
                    ).split("\n")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("vocabulary-page", VocabularyPage)
    app.add_directive("without-rows", WithoutRows)
    app.add_directive("options-overview", OptionsOverview)
    app.add_directive("reporters-page", ReportersPage)
    app.connect("env-updated", label_options)
    if "reno.sphinxext" not in app.config.extensions:
        app.add_directive("release-notes", NotesWithoutHistory)
    return {"parallel_read_safe": True}
