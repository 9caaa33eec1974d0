"""The test kit for those who write filters, reporters and rows: what the fixtures give, and ready-made tests.

::

    from os_prefilter.testing import filter_conformance, reporter_conformance

    TestBigPages = filter_conformance("big_pages")
    TestBhyve = reporter_conformance("bhyve", facts=[BhyveFacts(has_uefi=True), BhyveFacts(has_uefi=False)])

It needs the extra ``testing``: pytest, hypothesis, and the embedded Placement.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from os_prefilter.errors import ConfigurationError

if TYPE_CHECKING:
    from os_prefilter.testing.filters import filter_conformance
    from os_prefilter.testing.fixtures import facts_of, pipeline_of, placement_with
    from os_prefilter.testing.reporters import reporter_conformance
    from os_prefilter.testing.requests import request_of

__all__ = [
    "facts_of",
    "filter_conformance",
    "pipeline_of",
    "placement_with",
    "reporter_conformance",
    "request_of",
]

_MODULES = {
    "facts_of": "fixtures",
    "filter_conformance": "filters",
    "pipeline_of": "fixtures",
    "placement_with": "fixtures",
    "reporter_conformance": "reporters",
    "request_of": "requests",
}


def __getattr__(name: str) -> object:
    """Import what is asked for: the interpreters that conformance tests start do not need hypothesis, for one."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"The test kit needs {error.name}, which is not installed: pip install 'os-prefilter[testing]'."
        ) from error
