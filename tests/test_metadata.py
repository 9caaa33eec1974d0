"""What is installed is what the project says: names, entry points, the public interface."""

from importlib.metadata import distribution, entry_points

import os_prefilter
from os_prefilter.conf import list_opts


def test_every_entry_point_loads() -> None:
    groups = ("os_prefilter.request_filters", "os_prefilter.cli", "oslo.config.opts", "console_scripts")
    ours = [point for group in groups for point in entry_points(group=group) if point.value.startswith("os_prefilter.")]
    assert {point.group for point in ours} == set(groups)
    for point in ours:
        assert callable(point.load()), point


def test_the_options_are_offered_to_the_generator() -> None:
    (point,) = (each for each in entry_points(group="oslo.config.opts") if each.value.startswith("os_prefilter."))
    assert point.load()() == list_opts()


def test_the_public_names_are_sorted_and_there() -> None:
    """Capitals first, as the linter sorts them."""
    names = os_prefilter.__all__
    constants = [name for name in names if name.isupper()]
    classes = [name for name in names if name[0].isupper() and not name.isupper()]
    functions = [name for name in names if name[0].islower()]
    assert names == sorted(constants) + sorted(classes) + sorted(functions)
    for name in names:
        assert getattr(os_prefilter, name).__doc__


def test_the_core_depends_on_what_the_design_lists_and_pyyaml() -> None:
    """ADR 0012 says why PyYAML. What logs here is the standard library, so a scheduler may have oslo.log or not."""
    core = {
        requirement.partition(">")[0].replace(".", "-").lower()
        for requirement in distribution("os-prefilter").requires or []
        if "extra ==" not in requirement
    }
    assert core == {"os-resource-classes", "os-traits", "oslo-config", "pyyaml", "stevedore"}
