"""The results as plain-text tables."""

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from mixed.requests import IMAGES
from mixed.simulation import Result

Results = Mapping[str, Sequence[Result]]
"""By way, in the order of the ways."""

_LABEL, _COLUMN = 35, 13


def could(results: Sequence[Result]) -> list[Result]:
    """Return those that some host with room could do at that moment."""
    return [each for each in results if each.able]


def ran(results: Sequence[Result]) -> list[Result]:
    """Return those that run."""
    return [each for each in results if each.booted]


def late_failures(results: Sequence[Result]) -> int:
    """Return how often a host failed after it was chosen."""
    return sum(len(each.outcome.failed) for each in results)


def excluded(results: Sequence[Result]) -> int:
    """Return how many hosts that could do it were kept out, summed over the requests."""
    return sum(each.excluded for each in results)


def candidates(results: Sequence[Result]) -> list[int]:
    """Return how many hosts Placement returned, for each request that reached it."""
    return [each.outcome.candidates for each in results if each.outcome.query]


def milliseconds(results: Sequence[Result], *, whole: bool) -> list[float]:
    """Return the time of the processor in Placement: for the candidates, or for ``whole`` requests."""
    asked = [each.outcome for each in results if each.outcome.query]
    return [1000 * (each.seconds if whole else each.query_seconds) for each in asked]


def percentile(values: Sequence[float], part: int) -> float:
    """Return the value that so many of a hundred do not exceed."""
    return statistics.quantiles(values, n=100, method="inclusive")[part - 1]


def _attempts(results: Sequence[Result]) -> str:
    return f"{statistics.mean(each.attempts for each in ran(results)):.2f}"


def _excluded(results: Sequence[Result]) -> str:
    share = 100 * excluded(results) / sum(each.able for each in results)
    return f"{excluded(results):,} {share:3.0f}%"


def _share_that_ran(results: Sequence[Result]) -> str:
    of_all = could(results)
    # Of fewer than a hundred, a tenth of a percent would say more than there is to know.
    decimals = 1 if len(of_all) >= 100 else 0
    return f"{100 * len(ran(of_all)) / len(of_all):.{decimals}f}%"


def _lost(results: Sequence[Result], *, tried: bool) -> str:
    return str(sum(not each.booted and bool(each.attempts) == tried for each in results))


def _impossible(results: Sequence[Result]) -> list[Result]:
    return [each for each in results if not each.able]


_ROWS: Sequence[tuple[str, Callable[[Sequence[Result]], str]]] = (
    ("requests that some host could do", lambda each: str(len(could(each)))),
    ("  that ran", lambda each: str(len(ran(could(each))))),
    ("  that ran, share", _share_that_ran),
    ("  No valid host, none was tried", lambda each: _lost(could(each), tried=False)),
    ("  No valid host, each tried failed", lambda each: _lost(could(each), tried=True)),
    ("requests that no host could do", lambda each: str(len(_impossible(each)))),
    ("  refused before any was tried", lambda each: _lost(_impossible(each), tried=False)),
    ("  failed on hosts first", lambda each: _lost(_impossible(each), tried=True)),
    ("late failures", lambda each: str(late_failures(each))),
    ("attempts for a request that ran", _attempts),
    ("requests with able hosts excluded", lambda each: str(sum(bool(result.excluded) for result in each))),
    ("able hosts excluded, of all able", _excluded),
    ("candidates, median", lambda each: f"{statistics.median(candidates(each)):,.0f}"),
    ("candidates, 95th percentile", lambda each: f"{percentile(candidates(each), 95):,.0f}"),
    ("ms for the candidates, median", lambda each: f"{statistics.median(milliseconds(each, whole=False)):,.0f}"),
    ("ms for the whole request, median", lambda each: f"{statistics.median(milliseconds(each, whole=True)):,.0f}"),
    ("ms for the whole request, 95th p.", lambda each: f"{percentile(milliseconds(each, whole=True), 95):,.0f}"),
)


def tables(results: Results) -> str:
    """Return all tables."""
    return "\n".join(
        (
            _heading("", results),
            *(_line(label, [value(each) for each in results.values()]) for label, value in _ROWS),
            "",
            _heading("ran, of those a host could do", results),
            *_by_image(results),
            "",
            _heading("late failures, by what was requested", results),
            *_by_cause(results),
            "",
        )
    )


def _by_image(results: Results) -> Sequence[str]:
    """Return a line for each image of which some way lost a boot."""
    lines = []
    for image in IMAGES:
        of_image = [[each for each in could(one) if each.boot.image.name == image.name] for one in results.values()]
        if any(not each.booted for one in of_image for each in one):
            lines.append(_line(image.name, [f"{len(ran(one))} of {len(one)}" for one in of_image]))
    return lines


def _by_cause(results: Results) -> Sequence[str]:
    counts = [Counter(cause for each in one for cause in each.causes) for one in results.values()]
    return [_line(cause, [str(one[cause]) for one in counts]) for cause in sorted(set().union(*counts))]


def _heading(label: str, results: Results) -> str:
    line = _line(label, list(results))
    return f"{line}\n{'-' * len(line)}"


def _line(label: str, values: Sequence[str]) -> str:
    return f"{label:{_LABEL}}" + "".join(f"{value:>{_COLUMN}}" for value in values)
