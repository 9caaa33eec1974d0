"""Capability reporters, loaded by the name of their virt driver."""

from os_prefilter.common.entry_points import Errors, load_entry_point
from os_prefilter.common.quoting import describe_error, join_names
from os_prefilter.errors import (
    UnusableReporter,
)
from os_prefilter.hosts.reporter import Reporter
from os_prefilter.vocabulary import table

REPORTERS = "os_prefilter.capability_reporters"


def load_reporter(driver: str) -> Reporter:
    """Import the capability reporter of a virt driver.

    :raises UnusableReporter: if it is missing, offered twice, does not import, or is not a reporter.
    """
    errors = Errors(
        lambda known: UnusableReporter(driver, f"no installed package offers it; there are {join_names(known)}"),
        lambda targets: UnusableReporter(driver, f"it is offered more than once: {', '.join(targets)}"),
        lambda target, cause: UnusableReporter(driver, f"{target} does not load: {describe_error(cause)}"),
    )
    plugin = load_entry_point(REPORTERS, driver, errors)
    if not isinstance(plugin, Reporter):
        raise UnusableReporter(driver, f"it is a {type(plugin).__name__}, not an os_prefilter.hosts.reporter.Reporter")
    unknown = set(plugin.owns) - {row.name for row in table()}
    if unknown:
        raise UnusableReporter(driver, f"it owns {join_names(unknown)}, which is no row of the vocabulary")
    return plugin
