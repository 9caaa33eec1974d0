"""``os-prefilter rules check``: check files of rules before they are deployed."""

import argparse
from pathlib import Path
from typing import Any

from os_prefilter.cli.listing import Listing
from os_prefilter.rules.model import Rule
from os_prefilter.rules.reader import read_rules

_ERROR = 1


class RulesCheck(Listing):
    """Show the rules in files and directories as the filter reads them, or all their errors."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "paths",
            metavar="PATH",
            nargs="+",
            help="a file of rules, or a directory; give all directories of [prefilter] rules_dirs at once",
        )

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Print the table, or the problems; return 1 if the rules must not be used."""
        # A file that is named twice would have duplicate rules.
        read = read_rules(list({Path(path).resolve(): path for path in parsed_args.paths}.values()))
        for problem in read.problems:
            self.tell(str(problem), warning=True)
        if read.errors:
            return _ERROR
        self._rules = read.rules.rules
        if not self._rules:
            self.tell("No rules found. The names of rule files end in .yaml or .yml.", warning=True)
        return int(super().run(parsed_args) or 0)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:  # noqa: ARG002
        columns = ("Rule", "When", "Required", "Forbidden", "Preferred", "On", "Because", "File")
        return columns, [_line(each) for each in self._rules]


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
