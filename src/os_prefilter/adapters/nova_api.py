"""Validators of our flavor extra specs for nova-api, so that it refuses a wrong value at once.

It loads this module by the entry point group ``nova.api.extra_spec_validators``.
"""

import nova.conf
from nova.api.validation.extra_specs import base

from os_prefilter.service.conf import options_from
from os_prefilter.vocabulary.model import Row


def register() -> list[base.ExtraSpecValidator]:
    """Return the validators of the extra specs that Nova does not know itself.

    :raises ConfigurationError: if ``[prefilter] config_templates`` in nova-api's configuration cannot be served.
    """
    return [_validator(row) for row in options_from(nova.conf.CONF).rows if row.namespace]


def _validator(row: Row) -> base.ExtraSpecValidator:
    meaning = f"How the bare-metal node of the instance is configured: {row.name}."
    return base.ExtraSpecValidator(
        name=row.extra_spec,
        description=meaning,
        value={"type": str, "description": meaning, "enum": list(row.values)},
    )
