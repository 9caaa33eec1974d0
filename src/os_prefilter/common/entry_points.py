# SPDX-License-Identifier: Apache-2.0

"""Entry points of installed packages, found by stevedore.

By itself stevedore skips an entry point that does not load, and lets the last
of two equal names win. Both are wrong here: an operator who enabled a filter
must not get a scheduler without it. So each of these is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from sys import version_info

from stevedore.named import NamedExtensionManager

from os_prefilter.common.quoting import describe_error, join_names


def installed_entry_points(namespace: str) -> dict[str, str]:
    """List an entry point group, unimported: name -> target, sorted."""
    # A manager of no names loads nothing.
    points = NamedExtensionManager(namespace, []).list_entry_points()
    return {
        point.name: point.value
        for point in sorted(points, key=lambda point: point.name)
    }


def load_entry_point(
    namespace: str, name: str, error: Callable[[str], Exception]
) -> object:
    """Import what is offered under a name of an entry point group.

    :param error: makes the error for an entry point that is missing, offered
        more than once, or does not load
    """
    points = NamedExtensionManager(namespace, []).list_entry_points()
    found = {point.value: point for point in points if point.name == name}
    if not found:
        known = {point.name for point in points}
        close = get_close_matches(name.lower(), known, n=1)
        names = (
            f"the nearest name is {close[0]}"
            if close
            else f"there are {join_names(known)}"
        )
        raise error(f"no installed package offers it; {names}")
    if len(found) > 1:
        raise error(
            f"it is offered more than once: {', '.join(sorted(found))}"
        )
    ((target, point),) = found.items()
    try:
        return point.load()
    except (Exception, SystemExit) as cause:
        problem = f"{target} does not load: {describe_error(cause)}"
        # Most often X | None in an annotation, or a new name of typing. Not
        # their subclasses: a missing package has nothing to do with it.
        if version_info < (3, 10) and type(cause) in (
            SyntaxError,
            TypeError,
            ImportError,
        ):
            problem += (
                ". This is Python 3.9: begin its module with 'from __future__"
                " import annotations', and use nothing newer than Python 3.9"
            )
        raise error(problem) from cause
