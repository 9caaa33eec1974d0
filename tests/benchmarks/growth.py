"""How the time of a request grows with filters and rules: ``python tests/benchmarks/growth.py [small]``.

A request is what a scheduler does before it asks Placement: the pipeline runs, and the query is built.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from pipeline import PROPERTIES, medians, own_spec

from os_prefilter import Options, Pipeline, RequestSpec, allocation_candidates_query
from os_prefilter.common.trait_names import trait_named
from os_prefilter.filters.loading import installed_filters
from os_prefilter.request.requirements import ROOT
from os_prefilter.rules.conditions import IMAGE_PROPERTY, Condition
from os_prefilter.rules.model import Rule, RuleSet

_FACTS: dict[str, Callable[[Any], Any]] = {"owner_is_reported": lambda _context: True}
FILTERS = tuple(name for name in sorted(installed_filters()) if name != "rules")
RULES = (0, 10, 100, 1000)


def rules_of(number: int, *, all_apply: bool = False) -> RuleSet:
    """Return that many rules; the request of these benchmarks meets all, or the first, the others ask for more."""
    others = ["os_distro" if all_apply else f"a_property_{each}" for each in range(1, number)]
    names = ["os_distro", *others][:number]
    return RuleSet(
        Rule(
            f"rule-{each}",
            ((Condition(IMAGE_PROPERTY, name, frozenset((PROPERTIES.get(name, "yes"),))),),),
            require=(trait_named(f"CUSTOM_RULE_{each}"),),
            scope=ROOT,
        )
        for each, name in enumerate(names)
    )


def request(names: Sequence[str], rules: RuleSet) -> Callable[[RequestSpec], str]:
    """Return what a scheduler does with a request: apply a pipeline, build the query."""
    facts = {**_FACTS, "rules": lambda _context: rules}
    pipeline = Pipeline.from_names(*names, options=Options(), facts=facts)

    def ask(spec: RequestSpec) -> str:
        pipeline.apply(spec)
        return allocation_candidates_query(spec)

    return ask


def table(title: str, sides: Mapping[str, Callable[[RequestSpec], str]], rounds: int, calls: int) -> list[str]:
    """Return the lines of one comparison."""
    number = count(1)
    again = {name: (call, own_spec) for name, call in sides.items()}
    new = {name: (call, lambda: own_spec(next(number))) for name, call in sides.items()}
    known, unknown = medians(again, rounds, calls), medians(new, rounds, calls)
    lines = [f"  {name:24} {known[name] * 1e6:10.1f} us {unknown[name] * 1e6:16.1f} us" for name in sides]
    return [f"{title:28} {'made before':>11} {'never made':>19}", *lines]


def main(arguments: Sequence[str]) -> None:
    """Print both tables."""
    rounds, calls = (2, 10) if "small" in arguments else (20, 100)
    by_filters = {
        f"{number} filters": request(FILTERS[:number], rules_of(0)) for number in range(0, len(FILTERS) + 1, 3)
    }
    by_rules = {f"{number} rules": request(("rules",), rules_of(number)) for number in RULES}
    applying = {f"{number} rules": request(("rules",), rules_of(number, all_apply=True)) for number in RULES}
    for number in RULES:
        for sides, expected in ((by_rules, min(number, 1)), (applying, number)):
            asked = sides[f"{number} rules"](own_spec()).count("CUSTOM_RULE_")
            if asked != expected:
                raise SystemExit(f"With {number} rules, {asked} of their traits are asked for, not {expected}.")
    tables = (
        ("Enabled filters", by_filters),
        ("Rules, of which one applies", by_rules),
        ("Rules that apply", applying),
    )
    print("\n\n".join("\n".join(table(title, sides, rounds, calls)) for title, sides in tables))


if __name__ == "__main__":
    main(sys.argv[1:])
