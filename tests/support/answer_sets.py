# SPDX-License-Identifier: Apache-2.0

"""Answer sets of a logic program, found by clingo.

A program states a page's text as rules. It shares no code and no search with
what it judges, and reaches sizes at which trying everything would not end.
"""

from __future__ import annotations

from collections.abc import Iterator

from clingo import Control, Function, Number, String, Symbol


def fact(name: str, *arguments: int | str) -> str:
    """Return a fact of a program: numbers, and texts in quotes."""
    terms: list[Symbol] = [
        Number(each) if isinstance(each, int) else String(each)
        for each in arguments
    ]
    return f"{Function(name, terms)}."


def has_answer(program: str, most_conflicts: int = 0) -> bool | None:
    """Return whether a program has an answer set.

    :param most_conflicts: of the search, after which None is returned; 0 for
        no limit. Unlike a time, it is the same on each machine.
    """
    options = []
    if most_conflicts:
        options.append(f"--solve-limit={most_conflicts}")
    return _ground(program, *options).solve().satisfiable


def least_cost(program: str) -> int:
    """Return the least sum of a program's weak constraints.

    :raises ValueError: if the program has no answer set
    """
    control = _ground(program)
    costs: list[int] = []
    with control.solve(yield_=True) as search:
        for model in search:
            # Empty if nothing can cost anything.
            costs = model.cost or [0]
    if not costs:
        raise ValueError("The program has no answer set.")
    return costs[0]


def smallest_answers(program: str) -> Iterator[frozenset[str]]:
    """Yield the smallest sets of ``option(X)`` that a program can choose.

    It chooses ``chosen(X)`` among them; each set has the texts X, and contains
    no other one.
    """
    # Each atom is first tried without, and what contains an answer is none.
    options = ("--heuristic=Domain", "--enum-mode=domRec", "0")
    program = f"{program}\n#heuristic chosen(X) : option(X). [1,false]"
    control = _ground(program, *options)
    with control.solve(yield_=True) as search:
        for model in search:
            yield frozenset(
                each.arguments[0].string
                for each in model.symbols(atoms=True)
                if each.match("chosen", 1)
            )


def _ground(program: str, *options: str) -> Control:
    # It says of each predicate that no fact has.
    control = Control(["--warn=none", *options])
    control.add("base", [], program)
    control.ground([("base", [])])
    return control
