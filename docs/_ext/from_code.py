"""Pages that are made from the code when the documentation is built, so that they cannot disagree with it."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import ClassVar

import yaml
from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from oslo_config import cfg
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import nested_parse_with_titles

from os_prefilter.conf import GROUP, list_opts
from os_prefilter.operators.catalogue import VOCABULARY_COLUMNS, vocabulary

_FIRST = ("Image property", "Flavor extra spec")
_NOT_ASKED_FOR = "The host's default machine type"
_SHOWN = ("Value", "Also spelt", "Trait", "When", "Why none")


def vocabulary_page() -> Iterator[str]:
    """Yield the vocabulary as reStructuredText: a section for each property, with a table of its values."""
    lines = [dict(zip(VOCABULARY_COLUMNS, line, strict=True)) for line in vocabulary()]
    for (place, extra_spec), group in groupby(lines, lambda line: tuple(line[name] for name in _FIRST)):
        values = list(group)
        yield from _title(place.split(", ")[0] or extra_spec or _NOT_ASKED_FOR)
        yield from _names(place, extra_spec, values[0]["Asked by"])
        yield from table(_SHOWN, ([_cell(name, line) for name in _SHOWN] for line in values))


def _names(place: str, extra_spec: str, asked_by: str) -> Iterator[str]:
    name, *legacy = place.split(", ")
    kind = "Field of the image" if name == "disk_format" else "Image property"
    if name:
        yield f":{kind}: ``{name}``"
    if legacy:
        yield f":Older names: {', '.join(f'``{each}``' for each in legacy)}"
    if extra_spec:
        yield f":Flavor extra spec: ``{extra_spec}``"
    who = (f"filter :ref:`{each} <filter-{each}>`" for each in asked_by.split(", ") if each not in ("", "query"))
    nobody = "the query itself, as in Nova" if asked_by else "nobody: filters forbid those that cannot be"
    yield f":Asked for by: {', '.join(who) or nobody}"
    yield ""


def _cell(name: str, line: dict[str, str]) -> str:
    text = line[name]
    if not text or name in ("When", "Why none"):
        return text
    quoted = ", ".join(f"``{each}``" for each in text.split(", "))
    return f"not {quoted}" if name == "Trait" and line["Rule"] == "forbidden" else quoted


def options_page() -> Iterator[str]:
    """Yield the options as reStructuredText, a section each."""
    for _, options in list_opts():
        for option in options:
            yield f".. _option-{option.name}:"
            yield ""
            yield from _title(option.name)
            yield f":Type: {_type(option)}"
            yield f":Default: {_default(option)}"
            yield ""
            # Help is plain text, in which "CUSTOM_ " is no reference.
            yield from re.sub(r"(?<![`\w])(\w+_)(?=[\s,.])", r"``\1``", (option.help or "").strip()).splitlines()
            yield ""
            choices = getattr(option.type, "choices", None) or {}
            for value, meaning in choices.items():
                yield f"``{value}``"
                yield f"    {meaning}"
            yield ""


def _type(option: cfg.Opt) -> str:
    if getattr(option.type, "choices", None):
        return "one of the values below"
    name = option.type.type_name.removesuffix(" value")
    name = {"list": "comma-separated list", "floating point": "number"}.get(name, name)
    low = getattr(option.type, "min", None)
    return name if low is None else f"{name} of at least {low:g}"


def _default(option: cfg.Opt) -> str:
    value = ",".join(option.default) if isinstance(option.default, list) else str(option.default)
    return f"``{value}``" if value else "empty"


def sample_configuration() -> Iterator[str]:
    """Yield a configuration file with each option at its default, commented out."""
    yield ".. code-block:: ini"
    yield ""
    yield f"    [{GROUP}]"
    for _, options in list_opts():
        for option in options:
            yield f"    # {option.name} = {_default(option).strip('`') if option.default else ''}".rstrip()
    yield ""


def _title(text: str) -> Iterator[str]:
    yield text
    yield "-" * len(text)
    yield ""


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield a table as reStructuredText, without the columns that are empty."""
    rows = [list(row) for row in rows]
    used = [index for index in range(len(heads)) if any(row[index] for row in rows)]
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
        nested_parse_with_titles(self.state, StringList(list(self.make()), source="generated from the code"), section)
        return section.children


class VocabularyPage(FromCode):
    """``.. vocabulary-page::``."""

    make = staticmethod(vocabulary_page)


class OptionsPage(FromCode):
    """``.. options-page::``."""

    make = staticmethod(options_page)


class SampleConfiguration(FromCode):
    """``.. sample-configuration::``."""

    make = staticmethod(sample_configuration)


class NotesWithoutHistory(FromCode):
    """``.. release-notes::`` where reno has no history to read: all notes, not sorted by release."""

    option_spec: ClassVar = {"relnotessubdir": directives.unchanged, "unreleased-version-title": directives.unchanged}

    def make(self) -> Iterator[str]:
        """Yield the notes as reStructuredText."""
        yield from (
            "These pages were built without the history of the repository: the notes are not sorted by release.",
            "",
        )
        for path in sorted(Path(self.env.srcdir, "releasenotes", "notes").glob("*.yaml")):
            note = yaml.safe_load(path.read_text(encoding="utf-8"))
            yield from (note.pop("prelude", ""), "")
            for section, items in note.items():
                yield from (f"**{section.capitalize()}**", "")
                for item in items:
                    yield from (f"- {textwrap.indent(item.strip(), '  ').strip()}\n").split("\n")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("vocabulary-page", VocabularyPage)
    app.add_directive("options-page", OptionsPage)
    app.add_directive("sample-configuration", SampleConfiguration)
    if "reno.sphinxext" not in app.config.extensions:
        app.add_directive("release-notes", NotesWithoutHistory)
    return {"parallel_read_safe": True}
