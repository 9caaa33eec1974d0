# SPDX-License-Identifier: Apache-2.0

"""Validators of bare-metal configurations in flavors, for nova-api.

nova-api then refuses a wrong value at once. It loads this module by the entry
point group ``nova.api.extra_spec_validators`` wherever the package is
installed, and reads ``[prefilter]`` in its own configuration. A validator gets
one extra spec, without the others and without the image. So the trait of a
device passes here: only the scheduler sees whether its property is there too.
"""

from __future__ import annotations

import nova.conf
from nova.api.validation.extra_specs import base

from os_prefilter.common.errors import ConfigurationError
from os_prefilter.common.logs import get_logger
from os_prefilter.service.conf import GROUP, options_from
from os_prefilter.vocabulary.model import Row

LOG = get_logger(__name__)


def register() -> list[base.ExtraSpecValidator]:
    """Return validators of extra specs that Nova does not know itself.

    They are those of the enabled filters.

    A configuration that cannot be served is logged as an error, and nothing is
    refused: raised here, it would keep nova-api from starting.
    """
    try:
        rows = options_from(nova.conf.CONF, in_nova=True).rows
    except ConfigurationError as error:
        LOG.error(  # noqa: TRY400 - the message says it all
            "nova-api does not check extra specs of os-prefilter: %s", error
        )
        return []
    enabled = set(nova.conf.CONF[GROUP].enabled_filters)
    return [
        _validator(row)
        for row in rows
        if row.namespace and enabled.intersection(row.required_by)
    ]


def _validator(row: Row) -> base.ExtraSpecValidator:
    meaning = (
        f"How the bare-metal node of the instance is configured: {row.name}."
    )
    return base.ExtraSpecValidator(
        name=row.extra_spec,
        description=meaning,
        value={"type": str, "description": meaning, "enum": list(row.values)},
    )
