"""The differences from Nova, from the list that the tests use."""

from collections.abc import Iterator

from from_code import FromCode
from sphinx.application import Sphinx

from tests.against_nova.differences import DIFFERENCES, QUERY, Difference


def differences() -> Iterator[str]:
    """Yield each difference as reStructuredText: what Nova does, what we do, and why."""
    for difference in DIFFERENCES:
        yield difference.title
        yield "~" * len(difference.title)
        yield ""
        yield f":In: {', '.join(map(_place, difference.of))}"
        yield f":Nova: {difference.nova}"
        yield f":Here: {difference.ours}"
        yield f":Why: {difference.reason}"
        example = _example(difference)
        if example:
            yield f":Shown by: {example}"
        yield ""


def _place(name: str) -> str:
    return "the query" if name == QUERY else f":ref:`{name} <filter-{name}>`"


def _example(difference: Difference) -> str:
    said = {**difference.properties, **difference.extra_specs}
    return ", ".join(f"``{name}={value}``" for name, value in said.items())


class Differences(FromCode):
    """``.. differences-from-nova::``."""

    make = staticmethod(differences)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("differences-from-nova", Differences)
    return {"parallel_read_safe": True}
