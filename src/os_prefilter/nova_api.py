"""What nova-api must know of our flavor extra specs, so that it refuses a wrong value at once.

It loads this module by the entry point group ``nova.api.extra_spec_validators``.
"""

from nova.api.validation.extra_specs import base

from os_prefilter.terms import Row
from os_prefilter.vocabulary import rows_asked_by


def register() -> list[base.ExtraSpecValidator]:
    """Return the validators of the extra specs that Nova does not know itself."""
    return [_validator(row) for row in rows_asked_by("deploy_config")]


def _validator(row: Row) -> base.ExtraSpecValidator:
    meaning = f"How the bare-metal node of the instance is configured: {row.name}."
    return base.ExtraSpecValidator(
        name=row.extra_spec,
        description=meaning,
        value={"type": str, "description": meaning, "enum": list(row.values)},
    )
