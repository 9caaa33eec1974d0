"""The plot: what is lost, how many hosts are looked at, and what it costs. Legible on light and dark pages."""

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from mixed.simulation import Result
from mixed.table import Results, candidates, could, late_failures, milliseconds, percentile, ran

# Each has a contrast of at least 3 to white and to black.
_TEXT, _FIRST, _SECOND = "#7a7a7a", "#2f81c5", "#d9652b"


def _lost(results: Sequence[Result]) -> float:
    return 100 * (1 - len(ran(could(results))) / len(could(results)))


def _late(results: Sequence[Result]) -> float:
    return 100 * late_failures(results) / len(results)


_Measure = tuple[str, str, Callable[[Sequence[Result]], float]]
"""Its name, its colour, and the value for a way."""

_PANELS: Sequence[tuple[str, Sequence[_Measure]]] = (
    ("per 100 requests", (("not booted, though a host could", _FIRST, _lost), ("late failures", _SECOND, _late))),
    (
        "candidates for a request",
        (
            ("median", _FIRST, lambda each: statistics.median(candidates(each))),
            ("95th percentile", _SECOND, lambda each: percentile(candidates(each), 95)),
        ),
    ),
    (
        "ms of the processor in Placement",
        (
            ("median", _FIRST, lambda each: statistics.median(milliseconds(each, whole=True))),
            ("95th percentile", _SECOND, lambda each: percentile(milliseconds(each, whole=True), 95)),
        ),
    ),
)


def write_plot(results: Results, path: Path) -> None:
    """Write the plot as SVG; equal results give equal files."""
    settings = {"svg.hashsalt": "mixed cloud", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9}
    with mpl.rc_context(settings):
        figure = Figure(figsize=(10, 3.1), layout="constrained")
        for axes, (title, measures) in zip(figure.subplots(1, len(_PANELS)), _PANELS, strict=True):
            _draw(axes, title, measures, results)
        path.parent.mkdir(exist_ok=True)
        figure.savefig(path, format="svg", transparent=True, metadata={"Date": None, "Creator": None})


def _draw(axes: object, title: str, measures: Sequence[_Measure], results: Results) -> None:
    names = list(results)
    for index, (label, colour, value) in enumerate(measures):
        places = [row + (index - 0.5) * 0.38 for row in range(len(names))]
        values = [value(each) for each in results.values()]
        bars = axes.barh(places, values, height=0.36, color=colour, label=label)
        axes.bar_label(bars, [f"{each:,.0f}" for each in values], padding=2, color=_TEXT, fontsize=8)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.margins(x=0.18)
    axes.set_title(title, color=_TEXT, fontsize=10)
    axes.tick_params(colors=_TEXT)
    axes.spines[:].set_color(_TEXT)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2, frameon=False, labelcolor=_TEXT, fontsize=8)
