"""A progress bar, on a terminal alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from os_prefilter.operators.audit.audit import Progress


@contextmanager
def progress_on(stream: TextIO, *, is_wanted: bool = True) -> Iterator[Progress]:
    """Show what is done on ``stream`` while the context lasts; nothing where that is no terminal."""
    if not (is_wanted and stream.isatty()):
        yield lambda _what, _done, _of: None
        return
    # It takes its time to import.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415
    from rich.progress import Progress as Bars  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=Console(file=stream), transient=True) as bars:
        tasks: dict[str, object] = {}

        def show(what: str, done: int, of: int | None) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=of)
            bars.update(tasks[what], completed=done, total=of)  # type: ignore[arg-type]

        yield show
