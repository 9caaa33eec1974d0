"""Entry points of installed packages, found by stevedore.

By itself stevedore skips an entry point that does not load, and lets the last of two equal names win. Both are wrong
here: an operator who enabled a filter must not get a scheduler without it. So each of these is an error.
"""

from collections.abc import Callable
from typing import NamedTuple

from stevedore.named import NamedExtensionManager

from os_prefilter.common.quoting import describe_error, join_names


class Errors(NamedTuple):
    """The errors for an entry point that is missing, offered more than once, or does not load."""

    missing: Callable[[list[str]], Exception]
    """Gets the names that there are."""
    twice: Callable[[list[str]], Exception]
    """Gets the targets."""
    broken: Callable[[str, BaseException], Exception]
    """Gets the target and the cause."""

    @classmethod
    def from_problem(cls, error: Callable[[str], Exception]) -> "Errors":
        """Return errors of one class, which gets the problem as text."""
        return cls(
            lambda known: error(f"no installed package offers it; there are {join_names(known)}"),
            lambda targets: error(f"it is offered more than once: {', '.join(targets)}"),
            lambda target, cause: error(f"{target} does not load: {describe_error(cause)}"),
        )


def installed_entry_points(namespace: str) -> dict[str, str]:
    """Return the names under an entry point group and where each comes from, sorted, without importing any."""
    # A manager of no names loads nothing.
    points = NamedExtensionManager(namespace, []).list_entry_points()
    return {point.name: point.value for point in sorted(points, key=lambda point: point.name)}


def load_entry_point(namespace: str, name: str, errors: Errors) -> object:
    """Import what is offered under a name of an entry point group."""
    points = NamedExtensionManager(namespace, []).list_entry_points()
    found = {point.value: point for point in points if point.name == name}
    if not found:
        raise errors.missing([point.name for point in points])
    if len(found) > 1:
        raise errors.twice(sorted(found))
    ((target, point),) = found.items()
    try:
        return point.load()
    except (Exception, SystemExit) as error:
        raise errors.broken(target, error) from error
