# SPDX-License-Identifier: Apache-2.0

"""``os-prefilter rules check``: check rules before deployment."""

from __future__ import annotations

import argparse
import os

from os_prefilter.common.errors import DocumentError, PrefilterError
from os_prefilter.common.quoting import escape_line
from os_prefilter.rules.model import Rule
from os_prefilter.rules.reader import SUFFIXES, read_rules, rule_files
from os_prefilter_agent.cli.listing import Listing, Rows


class CheckRules(Listing):
    """Check files of rules: show them as the filter reads them, or errors."""

    arguments = " PATH ..."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        text = (
            "check this file of rules, or directory; give all directories of"
            " [prefilter] rules_dirs at once"
        )
        parser.add_argument("paths", metavar="PATH", nargs="+", help=text)

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        """Return the columns and rows of the table.

        :raises PrefilterError: with all problems, if the rules must not be
            used
        """
        # A file that is named twice would have duplicate rules.
        paths = list(
            {
                os.path.realpath(path): path for path in parsed_args.paths
            }.values()
        )
        for path in paths:
            # An error of a path that is none is among those of all.
            if os.path.isdir(path) and not rule_files(path):  # noqa: PTH112 - Path's may raise an error
                raise DocumentError(
                    path,
                    "no file of rules is in it: their names end in"
                    f" {' or '.join(SUFFIXES)}.",
                )
        with self.context.progress() as progress:
            read = read_rules(paths, progress)
        if read.errors:
            raise PrefilterError("\n".join(map(str, read.problems)))
        for problem in read.problems:
            self.print_line(str(problem), warning=True)
        rules = read.rules.rules
        self.print_line(
            f"Rules: {len(rules)} in {escape_line(', '.join(paths))}."
        )
        if not rules:
            self.print_line("The files have no rules.", warning=True)
        columns = (
            "Rule",
            "When",
            "Required",
            "Forbidden",
            "Preferred",
            "On",
            "Because",
            "File",
        )
        return columns, [_line(each) for each in rules]


def _line(rule: Rule) -> tuple[str, ...]:
    return (
        rule.name,
        rule.conditions,
        ", ".join(rule.require),
        ", ".join(rule.forbid),
        ", ".join(rule.prefer),
        rule.scope,
        rule.because,
        f"{rule.file}:{rule.line}",
    )
