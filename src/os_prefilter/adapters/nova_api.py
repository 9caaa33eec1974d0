#    Licensed under the Apache License, Version 2.0 (the "License"); you may
#    not use this file except in compliance with the License. You may obtain
#    a copy of the License at
#
#         http://www.apache.org/licenses/LICENSE-2.0
#
#    Unless required by applicable law or agreed to in writing, software
#    distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
#    WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
#    License for the specific language governing permissions and limitations
#    under the License.

"""Validators for nova-api, so that it refuses at once a wrong value, and a trait that gives no guest its device.

It loads this module by the entry point group ``nova.api.extra_spec_validators``.
"""

import nova.conf
from nova import exception
from nova.api.validation.extra_specs import base

from os_prefilter.common.errors import NamedDevice
from os_prefilter.request.remarks import instead_of_trait
from os_prefilter.service.conf import options_from
from os_prefilter.vocabulary.model import Row


def register() -> list[base.ExtraSpecValidator]:
    """Return the validators of the extra specs that Nova does not know itself.

    :raises ConfigurationError: if ``[prefilter] config_templates`` in nova-api's configuration cannot be served.
    """
    options = options_from(nova.conf.CONF, in_nova=True)
    devices = [row for row in options.rows if row.device] if options.nova_builds_guests else []
    return [*(_validator(row) for row in options.rows if row.namespace), *map(_DeviceByTrait, devices)]


class _DeviceByTrait(base.ExtraSpecValidator):  # type: ignore[misc]
    """The trait of a switched device on the host, which a flavor may forbid; by it Nova gives no guest the device."""

    def __init__(self, row: Row) -> None:
        meaning = f"Forbid hosts that can give a guest the device {row.name}."
        value = {"type": str, "description": meaning, "enum": ["required", "forbidden"]}
        super().__init__(name=f"trait:{row.device}", description=meaning, value=value)
        self._refusal = NamedDevice(f"flavor extra spec {self.name}=required", instead_of_trait((row,)))

    def validate(self, name: str, value: str) -> None:
        super().validate(name, value)
        if value == "required":
            raise exception.ValidationError(str(self._refusal))


def _validator(row: Row) -> base.ExtraSpecValidator:
    meaning = f"How the bare-metal node of the instance is configured: {row.name}."
    return base.ExtraSpecValidator(
        name=row.extra_spec,
        description=meaning,
        value={"type": str, "description": meaning, "enum": list(row.values)},
    )
