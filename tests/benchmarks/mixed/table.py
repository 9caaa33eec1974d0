#    Licensed under the Apache License, Version 2.0 (the "License"); you may
#    not use this file except in compliance with the License. You may obtain
#    a copy of the License at
#
#         http://www.apache.org/licenses/LICENSE-2.0
#
#    Unless required by applicable law or agreed to in writing, software
#    distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
#    WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
#    License for the specific language governing permissions and limitations
#    under the License.

"""The results, and the ways, as plain-text tables."""

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from tests.benchmarks.mixed.requests import IMAGES
from tests.benchmarks.mixed.simulation import Result
from tests.benchmarks.mixed.ways import WAYS

Results = Mapping[str, Sequence[Result]]
"""By way, in the order of the ways."""

_LABEL, _COLUMN = 35, 13


def described() -> str:
    """Return what the ways are; hosts, images and flavors are listed in the modules of these names."""
    return "\n".join(["Ways", *(f"{way.name:14}{way.what}" for way in WAYS)])


def could(results: Sequence[Result]) -> list[Result]:
    """Return those that some host with room could do at that moment."""
    return [each for each in results if each.able]


def ran(results: Sequence[Result]) -> list[Result]:
    return [each for each in results if each.booted]


def _candidates(results: Sequence[Result]) -> list[int]:
    return [each.outcome.candidates for each in results if each.outcome.query]


def _milliseconds(results: Sequence[Result], *, whole: bool) -> list[float]:
    """Return the time of the processor in Placement: for the candidates, or for ``whole`` requests."""
    asked = [each.outcome for each in results if each.outcome.query]
    return [1000 * (each.seconds if whole else each.query_seconds) for each in asked]


def _median(values: Sequence[float]) -> str:
    return f"{statistics.median(values):,.0f}"


def _most(values: Sequence[float]) -> str:
    return f"{statistics.quantiles(values, n=100, method='inclusive')[94]:,.0f}"


def _excluded(results: Sequence[Result]) -> str:
    excluded = sum(each.excluded for each in results)
    return f"{excluded:,} {100 * excluded / sum(each.able for each in results):3.0f}%"


def _share_that_ran(results: Sequence[Result]) -> str:
    of_all = could(results)
    # Of fewer than a hundred, a tenth of a percent would say more than there is to know.
    return f"{100 * len(ran(of_all)) / len(of_all):.{1 if len(of_all) >= 100 else 0}f}%"


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
    ("late failures", lambda each: str(sum(len(result.outcome.failed) for result in each))),
    ("attempts for a request that ran", lambda each: f"{statistics.mean(one.attempts for one in ran(each)):.2f}"),
    ("requests with able hosts excluded", lambda each: str(sum(bool(result.excluded) for result in each))),
    ("able hosts excluded, of all able", _excluded),
    ("candidates, median", lambda each: _median(_candidates(each))),
    ("candidates, 95th percentile", lambda each: _most(_candidates(each))),
    ("ms for the candidates, median", lambda each: _median(_milliseconds(each, whole=False))),
    ("ms for the whole request, median", lambda each: _median(_milliseconds(each, whole=True))),
    ("ms for the whole request, 95th p.", lambda each: _most(_milliseconds(each, whole=True))),
)


def tables(results: Results) -> str:
    rows = [_line(label, [value(each) for each in results.values()]) for label, value in _ROWS]
    ran_, late = "ran, of those a host could do", "late failures, by what was requested"
    parts = (("", rows), (ran_, _by_image(results)), (late, _by_cause(results)))
    return "\n".join("\n".join((*_heading(label, results), *lines, "")) for label, lines in parts)


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


def _heading(label: str, results: Results) -> tuple[str, str]:
    line = _line(label, list(results))
    return line, "-" * len(line)


def _line(label: str, values: Sequence[str]) -> str:
    return f"{label:{_LABEL}}" + "".join(f"{value:>{_COLUMN}}" for value in values)
