"""Importing what installed packages offer under stevedore entry points.

By itself stevedore skips what does not load and lets the last of two equal names win. Both are wrong here: an operator
who enabled something must not get a scheduler without it. So each of these is an error.
"""

from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any, NamedTuple, NoReturn

from stevedore.named import NamedExtensionManager


class Errors(NamedTuple):
    """What to raise for an entry point that is missing, there twice, or does not load."""

    missing: Callable[[list[str]], Exception]
    """Gets the names that there are."""
    twice: Callable[[list[str]], Exception]
    """Gets the targets."""
    broken: Callable[[str, BaseException], Exception]
    """Gets the target and the cause."""


def installed_entry_points(namespace: str) -> dict[str, str]:
    """Return the names under an entry point group and where each comes from, sorted, without importing any."""
    # A manager of no names loads nothing.
    entry_points = _manager(namespace, []).list_entry_points()
    return {point.name: point.value for point in sorted(entry_points, key=lambda point: point.name)}


def load_entry_point(namespace: str, name: str, errors: Errors) -> object:
    """Return what is offered under a name."""

    def fail(_manager: object, point: EntryPoint, error: Exception) -> NoReturn:
        raise errors.broken(point.value, error) from error

    points = _manager(namespace, []).list_entry_points()
    found = {point.value for point in points if point.name == name}
    if not found:
        raise errors.missing([point.name for point in points])
    if len(found) > 1:
        raise errors.twice(sorted(found))
    try:
        return _manager(namespace, [name], fail).extensions[0].plugin
    except (AssertionError, SystemExit) as error:
        # These stevedore does not hand to the callback.
        raise errors.broken(found.pop(), error) from error


def _manager(
    namespace: str, names: list[str], on_failure: Callable[..., NoReturn] | None = None
) -> "NamedExtensionManager[Any]":
    return NamedExtensionManager(
        namespace,
        names,
        on_load_failure_callback=on_failure,
        on_missing_entrypoints_callback=None,
    )
