# SPDX-License-Identifier: Apache-2.0

"""``os-prefilter vocabulary list`` and ``os-prefilter filter list``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from importlib.metadata import version

from os_prefilter.common.errors import ConfigurationError
from os_prefilter.common.quoting import escape_line
from os_prefilter.service.loading import installed_filters, load_filters
from os_prefilter.vocabulary.options import Options
from os_prefilter_agent.cli.listing import Listing, Rows
from os_prefilter_tools.operators.property_names import properties_without_rows
from os_prefilter_tools.operators.releases import (
    release_of_trait,
    release_of_value,
)

_WRITTEN = ("Image property", "Flavor extra spec", "Value", "Also spelt")
_MEANING = (
    "Rule",
    "Trait",
    "Kind",
    "Trait since",
    "Nova since",
    "When",
    "Required by",
    "Why none",
)
VOCABULARY_COLUMNS = (*_WRITTEN, *_MEANING)


class VocabularyList(Listing):
    """List the values of properties, each with the trait that hosts report.

    The properties are image properties and flavor extra specs of Nova.
    """

    def take_action(
        self,
        parsed_args: argparse.Namespace,  # noqa: ARG002
    ) -> Rows:
        lines = [*vocabulary(), *without_rows()]
        self.print_line(
            f"Vocabulary: {len(lines)} lines, of os-prefilter"
            f" {version('os-prefilter')} and installed plugins."
        )
        return VOCABULARY_COLUMNS, lines


class FilterList(Listing):
    """List the installed request filters."""

    def take_action(
        self,
        parsed_args: argparse.Namespace,  # noqa: ARG002
    ) -> Rows:
        """Return the table of filters.

        A filter that does not load has the reason.
        """
        rows = [
            (name, _summary(name), target)
            for name, target in installed_filters().items()
        ]
        self.print_line(
            f"Filters: {len(rows)}, of the packages installed in"
            f" {escape_line(sys.prefix)}."
        )
        return ("Name", "What it does", "From"), rows


def vocabulary() -> Iterator[tuple[str, ...]]:
    """Yield one line for each trait of each value.

    Those of the bundled configuration templates, too.
    """
    for row in Options().rows:
        place = ", ".join(
            filter(
                None,
                (row.image_property or row.image_attribute, *row.legacy_names),
            )
        )
        names = place, row.extra_spec or ""
        required_by = ", ".join(row.required_by)
        for value, term in row.values.items():
            also = ", ".join(
                old for old, new in row.spelling.older.items() if new == value
            )
            rule = when = ""
            if term.trait:
                rule = "required" if term.required else "forbidden"
                when = "if reported" if term.opt_in else "always"
            for trait in term.traits or ("",):
                since = release_of_trait(trait), release_of_value(row, value)
                yield (
                    *names,
                    value,
                    also,
                    rule,
                    trait,
                    term.kind,
                    *since,
                    when,
                    required_by,
                    term.reason,
                )


def without_rows() -> Iterator[tuple[str, ...]]:
    """Yield one line for each property of Nova that requires no trait.

    Without those for which another package has a row.
    """
    of_rows = {name for row in Options().rows for name in row.request_names}
    for each in properties_without_rows():
        for names in (
            *((name, "") for name in each.image_properties),
            *(("", name) for name in each.extra_specs),
        ):
            if of_rows.isdisjoint(filter(None, names)):
                yield (
                    *names,
                    "*",
                    "",
                    "",
                    "",
                    "none",
                    "",
                    "",
                    "",
                    "",
                    each.reason,
                )


def _summary(name: str) -> str:
    try:
        return load_filters([name], provided=None)[0].summary
    except ConfigurationError as error:
        return f"does not load: {error}"
