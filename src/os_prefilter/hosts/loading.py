"""Capability reporters, loaded by the name of their virt driver."""

from functools import partial

from os_prefilter.common.entry_points import Errors, load_entry_point
from os_prefilter.common.quoting import join_names
from os_prefilter.errors import UnusableReporter
from os_prefilter.hosts.reporter import Reporter
from os_prefilter.vocabulary import table

REPORTERS = "os_prefilter.capability_reporters"


def load_reporter(driver: str) -> Reporter:
    """Import the capability reporter of a virt driver.

    :raises UnusableReporter: if it is missing, offered twice, does not import, or is not a reporter.
    """
    plugin = load_entry_point(REPORTERS, driver, Errors.from_problem(partial(UnusableReporter, driver)))
    if not isinstance(plugin, Reporter):
        raise UnusableReporter(driver, f"it is a {type(plugin).__name__}, not an os_prefilter.hosts.reporter.Reporter")
    unknown = set(plugin.owns) - {row.name for row in table()}
    if unknown:
        raise UnusableReporter(driver, f"it owns {join_names(unknown)}, which is no row of the vocabulary")
    return plugin
