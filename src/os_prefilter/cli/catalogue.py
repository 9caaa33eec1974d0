"""``os-prefilter vocabulary list`` and ``os-prefilter filter list``."""

import argparse
from typing import Any

from os_prefilter.cli.listing import Listing
from os_prefilter.operators.catalogue import FILTER_COLUMNS, VOCABULARY_COLUMNS, filters, vocabulary


class VocabularyList(Listing):
    """List what a request may ask for, and the trait by which a host says that it can."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:  # noqa: ARG002
        """Return the columns and rows of the table."""
        return VOCABULARY_COLUMNS, vocabulary()


class FilterList(Listing):
    """List the installed request filters."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:  # noqa: ARG002
        """Return the columns and rows of the table."""
        return FILTER_COLUMNS, filters()
