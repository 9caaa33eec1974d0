"""The traits by which a host says that it was asked: what it then does not report, it cannot do."""

import re

from os_prefilter.vocabulary.model import Trait

REVISION = 2
"""Of the table: raised by each release that adds a trait to it, so that older reports are known to leave it out."""

REPORTED = Trait(f"CUSTOM_PREFILTER_REPORTED_{REVISION}")
"""The host's capability reporter has answered for each trait of the vocabulary, and each answer can be seen."""

REPORTED_CUSTOM = Trait(f"CUSTOM_PREFILTER_REPORTED_CUSTOM_{REVISION}")
"""The same of the ``CUSTOM_`` traits alone: a provider configuration file of Nova's takes no others."""

_MARKER = re.compile(r"CUSTOM_PREFILTER_REPORTED_\d+", re.ASCII)


def is_reported_marker(trait: str) -> bool:
    """Whether a trait is :data:`REPORTED`, of this revision or another."""
    return _MARKER.fullmatch(trait) is not None
