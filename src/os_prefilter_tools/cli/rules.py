"""``os-prefilter rules check``: check files of rules before they are deployed, and see what each rule does."""

import argparse
import os
from collections.abc import Sequence
from typing import Any

from os_prefilter.common.errors import DocumentError, PrefilterError
from os_prefilter.common.quoting import escape_line, pluralize, shorten
from os_prefilter.rules.model import Rule
from os_prefilter.rules.reader import read_rules
from os_prefilter_tools.cli.audit_arguments import example_images
from os_prefilter_tools.cli.context import option_name
from os_prefilter_tools.cli.filters_and_hosts import FiltersAndHosts
from os_prefilter_tools.cli.listing import NO_HOST, Cell, Listing, cut, escape_formula, first_of
from os_prefilter_tools.operators.audit.entry_list import LeftOut
from os_prefilter_tools.operators.audit.image_audit import BECOMES_UNSCHEDULABLE
from os_prefilter_tools.operators.audit.image_list import read_images
from os_prefilter_tools.operators.rule_effects import Effect, OnImage, rule_effects

_MOST_NAMES = 3
_Table = tuple[tuple[str, ...], list[Any]]


class CheckRules(Listing):
    """Check files of rules: show the rules as the filter reads them, all errors, or what each rule does to images."""

    arguments = " PATH ..."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        text = "check this file of rules, or directory; give all directories of [prefilter] rules_dirs at once"
        parser.add_argument("paths", metavar="PATH", nargs="+", help=text)
        text = "show what each rule does to which images on the hosts of this file; 'os-prefilter snapshot' writes one"
        parser.add_argument("--against", metavar="FLEET", dest="hosts", help=text)
        text = "with --against: read the images from this file, as 'os-prefilter audit' does; default: the bundled"
        parser.add_argument("--images", metavar="FILE", help=text)
        text = "with --against: read [prefilter] enabled_filters from this file; default: all filters of the library"
        parser.add_argument("--config-file", metavar="FILE", help=text)

    def take_action(self, parsed_args: argparse.Namespace) -> _Table:
        """Return the columns and rows of the table.

        :raises PrefilterError: with all problems, if the rules must not be used
        """
        for name in ("images", "config_file") if not parsed_args.hosts else ():
            if getattr(parsed_args, name):
                raise DocumentError(option_name(name), "it is for --against FLEET alone. Give that, too.")
        # A file that is named twice would have duplicate rules.
        paths = list({os.path.realpath(path): path for path in parsed_args.paths}.values())
        with self.context.progress() as progress:
            read = read_rules(paths, progress)
        if read.errors:
            raise PrefilterError("\n".join(map(str, read.problems)))
        for problem in read.problems:
            self.tell(str(problem), warning=True)
        rules = read.rules.rules
        self.tell(f"Rules: {len(rules)} in {escape_line(', '.join(paths))}.")
        if not rules:
            self.tell("No rules found. The names of rule files end in .yaml or .yml.", warning=True)
        if parsed_args.hosts:
            asked = FiltersAndHosts(config_file=parsed_args.config_file, hosts=parsed_args.hosts)
            return self._effects(rules, asked, parsed_args.images, is_csv=parsed_args.formatter == "csv")
        columns = ("Rule", "When", "Required", "Forbidden", "Preferred", "On", "Because", "File")
        return columns, [_line(each) for each in rules]

    def _effects(self, rules: Sequence[Rule], asked: FiltersAndHosts, images: str | None, *, is_csv: bool) -> _Table:
        left_out = LeftOut()
        fleet = asked.fleet(self.context)
        entries = read_images(images, left_out) if images else example_images()
        effects = rule_effects(rules, entries, fleet, asked.service(fleet))
        for text in first_of("Left out", left_out.first, left_out.count):
            self.tell(text, warning=True)
        # A hint about a trait is the choice of each user.
        if any(each.verdict in BECOMES_UNSCHEDULABLE and not each.rule.hint_trait for each in effects):
            self.exit_code = NO_HOST
        columns = ("Rule", "Request", "Verdict", "Count", "Images")
        return columns, [_effect_line(each, is_csv=is_csv) for each in effects]


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


def _effect_line(effect: Effect, *, is_csv: bool) -> tuple[Any, ...]:
    first = [_on_image(each) for each in effect.images[:_MOST_NAMES]]
    all_of = "; ".join(map(_on_image, effect.images))
    return (
        effect.rule.name,
        effect.request,
        str(effect.verdict or "applies to no image"),
        len(effect.images),
        Cell(
            [each._asdict() for each in effect.images],
            "\n".join(shorten(first, _MOST_NAMES, len(effect.images))),
            escape_formula(all_of) if is_csv else all_of,
        ),
    )


def _on_image(each: OnImage) -> str:
    return f"{cut(each.name)}: " + (each.reason or f"{each.before} to {pluralize(each.after, 'host')}")
