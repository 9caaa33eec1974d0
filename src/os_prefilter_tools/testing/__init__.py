# SPDX-License-Identifier: Apache-2.0

"""Test kit for authors of filters, reporters and rows.

Builders behind the fixtures, and ready-made tests.

::

    from os_prefilter_tools.testing import (
        filter_conformance,
        reporter_conformance,
    )

    TestBigPages = filter_conformance("big_pages")
    TestBhyve = reporter_conformance(
        "bhyve",
        facts=[BhyveFacts(has_uefi=True), BhyveFacts(has_uefi=False)],
    )

It needs the extra ``testing``: pytest, hypothesis, and the embedded Placement.
"""

from os_prefilter.common.errors import ConfigurationError, install_extra

try:
    from os_prefilter_tools.testing.builders import (
        facts_of,
        pipeline_of,
        placement_with,
        request_of,
    )
    from os_prefilter_tools.testing.filters import filter_conformance
    from os_prefilter_tools.testing.reporters import reporter_conformance
except ModuleNotFoundError as error:
    raise ConfigurationError(
        f"The test kit needs {error.name}, which is not installed:"
        f" {install_extra('testing')}."
    ) from error

__all__ = [
    "facts_of",
    "filter_conformance",
    "pipeline_of",
    "placement_with",
    "reporter_conformance",
    "request_of",
]
