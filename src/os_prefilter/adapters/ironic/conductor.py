# SPDX-License-Identifier: Apache-2.0

"""BIOS interfaces for Ironic's conductor, which configure nodes by flavor.

Nova's driver passes no deploy steps, and of a flavor only the keys ``trait:``
and ``capabilities:``. So the conductor asks Nova for the flavor that is kept
with the server, and the node's own deploy steps follow from it. They are steps
of the driver: unlike those of a client, Ironic leaves none of them out where
an interface does not have it.

Source: Ironic 39 (``ironic/conductor/steps.py`` and ``deployments.py``,
``ironic/drivers/base.py``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from http import HTTPStatus
from typing import Any

from ironic import objects
from ironic.common import exception, keystone, states
from ironic.conf import CONF
from ironic.conf import redfish as redfish_options
from ironic.drivers import base, redfish
from ironic.drivers.modules.redfish import bios as redfish_bios
from keystoneauth1 import exceptions as auth_exceptions

from os_prefilter.adapters.ironic.errors import NodeNotReady
from os_prefilter.adapters.ironic.traits import EXTRA, read_own_traits
from os_prefilter.common.errors import PrefilterError
from os_prefilter.common.logs import get_logger
from os_prefilter.common.quoting import describe_error, quote
from os_prefilter.hosts.driver_check import guest_settings, unsupported
from os_prefilter.hosts.drivers.ironic import unknown
from os_prefilter.hosts.drivers.ironic_facts import (
    BiosSetting,
    BiosValue,
    IronicFacts,
    bios_from,
    facts_from_node,
)
from os_prefilter.hosts.drivers.ironic_steps import bios_changes, deploy_steps
from os_prefilter.request.spec import Flavor, RequestSpec
from os_prefilter.service.conf import options_from
from os_prefilter.vocabulary.config_templates import BIOS_STEP, PREFIX, RECORD

LOG = get_logger(__name__)

_NODE = (
    "uuid",
    "driver",
    "properties",
    "bios_interface",
    "boot_mode",
    "secure_boot",
    "last_error",
)
_SETTING = (
    "name",
    "value",
    "attribute_type",
    "allowable_values",
    "read_only",
    "lower_bound",
    "upper_bound",
    "min_length",
    "max_length",
)
_RIGHTS = (
    "the user of [nova] in Ironic's configuration must see servers of all"
    " projects, and their extra specs"
)
_HARDWARE_TYPE = "prefilter-redfish"
_READS = 13
_PAUSE = 5.0
"""Seconds between two reads of the BIOS settings that are to be checked."""
_UNDER_WAY = {
    "deploy": (states.DEPLOYING, states.DEPLOYWAIT, states.DEPLOYHOLD),
    "clean": (states.CLEANING, states.CLEANWAIT, states.CLEANHOLD),
}
_SETTINGS = {
    "settings": {
        "description": "BIOS settings, each with a name and a value",
        "required": True,
    }
}


class NotConfigured(
    exception.InvalidParameterValue,  # type: ignore[misc]
    exception.InstanceDeployFailure,  # type: ignore[misc]
):
    """A node is not, or cannot be, configured as it should be.

    Ironic takes the first base for a node that does not validate, the second
    for the reason why a deployment failed.
    """


class ConfiguresOnDeploy(base.BIOSInterface):  # type: ignore[misc]
    """Mixin for a BIOS interface that applies templates at deployment.

    List it first.

    While a node is deployed or rebuilt, it gets what its server asks for, and
    the default of each other type of configuration; cleaning sets the
    defaults.

    :raises ConfigurationError: ``[prefilter]`` in Ironic's configuration is
        wrong; the conductor does not start
    """

    def __init__(self) -> None:
        super().__init__()
        self._templates = options_from(CONF).templates

    def get_deploy_steps(self, task: Any) -> list[dict[str, Any]]:
        """Return the steps of the interface, and our steps for the node.

        They stay the same during a deployment.

        :raises NotConfigured: the node cannot be configured so, or it is not
            known what is asked for
        """

        def find() -> list[dict[str, Any]]:
            facts = self._facts(task)
            traits = {each.trait for each in task.node.traits}
            lost = unknown(facts).keys() & traits
            if lost:
                # Not known is not unable: the server would get what another
                # one has left.
                reason = (
                    "Ironic cannot read its BIOS settings, and it has"
                    f" {', '.join(sorted(lost))}"
                )
                raise NotConfigured(
                    f"{reason}: try again when its BMC shows them (openstack"
                    " baremetal node manage)"
                )
            ours = self._steps(facts, _configuration(task.node))
            settings = [
                {"name": name, "value": value}
                for name, value in bios_changes(ours).items()
            ]
            if settings:
                check = {
                    "interface": "bios",
                    "step": "check_configuration",
                    "args": {"settings": settings},
                    # After all that configures the node or writes the image;
                    # before Ironic ends the ramdisk (40) and boots.
                    "priority": 45,
                }
                ours.append(check)
            return ours

        return _with(
            super().get_deploy_steps(task), _kept("deploy", task.node, find)
        )

    def get_clean_steps(self, task: Any) -> list[dict[str, Any]]:
        """Return the steps of the interface, and ours for BIOS defaults."""

        def find() -> list[dict[str, Any]]:
            steps = self._steps(self._facts(task), {})
            return [
                step
                for step in steps
                if (step["interface"], step["step"]) == BIOS_STEP
            ]

        return _with(
            super().get_clean_steps(task), _kept("clean", task.node, find)
        )

    @base.deploy_step(priority=0, argsinfo=_SETTINGS)  # type: ignore[untyped-decorator]
    def check_configuration(
        self, task: Any, settings: list[Mapping[str, Any]]
    ) -> None:
        """Read the BIOS settings again; fail the deployment if they differ.

        An operator may disallow the step before, and an interface may take a
        value without an effect.

        :raises NotConfigured: after a minute, they still differ or the BMC
            does not show them
        """
        difference = ""
        for number in range(_READS):
            if number:
                time.sleep(_PAUSE)
            # After a reset a BMC shows no settings, or the former ones, until
            # the machine has started.
            try:
                self.cache_bios_settings(task)
            # Also those of the BMC's library, which Ironic passes on.
            except Exception as error:
                LOG.debug("The BIOS settings cannot be read.", exc_info=True)
                reason = describe_error(error)
                difference = f"its BIOS settings cannot be read: {reason}"
                continue
            difference = _difference(settings, _bios(task))
            if not difference:
                return
        raise NotConfigured(difference)

    def _facts(self, task: Any) -> IronicFacts:
        """Return the facts of the node; read settings that Ironic lacks."""
        node = task.node
        if not _bios(task) and node.bios_interface != "no-bios":
            try:
                self.cache_bios_settings(task)
            except Exception as error:  # noqa: BLE001 - as Ironic where it reads them itself: each BMC fails differently
                LOG.warning(
                    "Node %s: its BIOS settings cannot be read: %s",
                    node.uuid,
                    describe_error(error),
                )
        try:
            own = read_own_traits(node.extra, node.uuid)
        except NodeNotReady as error:
            # What is configured does not depend on who has set the traits.
            LOG.warning(
                "Node %s: %s. Remove it: openstack baremetal node unset %s"
                " --extra %s.",
                node.uuid,
                error.reason,
                node.uuid,
                EXTRA,
            )
            own = frozenset()
        document = {name: getattr(node, name) for name in _NODE}
        try:
            facts = facts_from_node(
                document, traits={each.trait for each in node.traits} - own
            )
        except PrefilterError as error:
            raise NotConfigured(str(error)) from error
        return replace(facts, bios=_bios(task), templates=self._templates)

    def _steps(
        self, facts: IronicFacts, asked: Mapping[str, str]
    ) -> list[dict[str, Any]]:
        try:
            # Defaults as well: where nodes are not cleaned, the next tenant
            # would get what the last one asked for.
            wanted: dict[str, str] = {}
            for template in self._templates:
                default = {template.extra_spec: template.value}
                # A default that the node cannot have, by its BIOS or by its
                # traits, is none of its.
                if template.is_default and not (
                    unsupported(_request(default), facts)
                ):
                    wanted |= default
            settings = guest_settings(_request({**wanted, **asked}), facts)
            return deploy_steps(settings, facts)
        except PrefilterError as error:
            raise NotConfigured(str(error)) from error


class RedfishBIOS(ConfiguresOnDeploy, redfish_bios.RedfishBIOS):  # type: ignore[misc]
    """``bios_interface=prefilter-redfish``."""


class RedfishHardware(redfish.RedfishHardware):  # type: ignore[misc]
    """Hardware type ``driver=prefilter-redfish``.

    Ironic takes a BIOS interface only if the hardware type names it.
    """

    def __init__(self) -> None:
        super().__init__()
        register_options(_HARDWARE_TYPE)

    @property
    def supported_bios_interfaces(self) -> list[type]:
        """Ours, and those of Ironic's own hardware type."""
        return [RedfishBIOS, *super().supported_bios_interfaces]


def register_options(hardware_type: str) -> None:
    """Register the options of Ironic's ``[redfish]`` for a hardware type.

    The values there are its defaults.

    Ironic looks for an option in the group that is named like the hardware
    type of a node, and without that group no node passes validation. All
    options are registered: another release may look for another one.

    Source: Ironic 39 (``get_verify_ca`` in ``ironic/drivers/utils.py``).
    """
    for option in redfish_options.opts:
        CONF.register_opt(option, group=hardware_type)
        CONF.set_default(
            option.dest, CONF.redfish[option.dest], group=hardware_type
        )


def _request(extra_specs: Mapping[str, str]) -> RequestSpec:
    return RequestSpec(Flavor(extra_specs=extra_specs))


def _configuration(node: Any) -> dict[str, str]:
    """Return the extra specs ``deploy-config:TYPE`` of the node's server."""
    if RECORD not in node.instance_info:
        specs = _flavor_of(node.instance_uuid) if node.instance_uuid else {}
        return {
            name: value
            for name, value in specs.items()
            if name.startswith(PREFIX)
        }
    record = node.instance_info[RECORD]
    if not isinstance(record, dict) or not all(
        isinstance(each, str) for pair in record.items() for each in pair
    ):
        raise NotConfigured(
            f"instance_info/{RECORD} is {quote(record)}, not types with values"
        )
    return {PREFIX + name: value for name, value in record.items()}


def _flavor_of(server: str) -> dict[str, str]:
    """Return the extra specs of the flavor of a server, from Nova's API."""
    what = f"Nova's GET /servers/{server}"
    document: Any = None
    try:
        # The first version in which a server has its flavor, as it was when
        # the server was made.
        response = _nova().get(
            f"/servers/{server}", microversion="2.47", raise_exc=False
        )
        if response.status_code == HTTPStatus.OK:
            document = response.json()
    except (
        auth_exceptions.ClientException,
        exception.IronicException,
        ValueError,
    ) as error:
        raise NotConfigured(
            f"{what} failed: {describe_error(error)}"
        ) from error
    if document is None:
        raise NotConfigured(
            f"{what} ended with status {response.status_code}:"
            f" {_advice(response.status_code)}"
        )
    try:
        specs: dict[str, str] = document["server"]["flavor"]["extra_specs"]
    except (KeyError, TypeError) as error:
        # Nova leaves them out for users who may not see them.
        raise NotConfigured(
            f"{what} has no flavor with extra_specs: {_RIGHTS}"
        ) from error
    return specs


def _advice(status: int) -> str:
    """Return what helps against an error of Nova."""
    if status == HTTPStatus.NOT_FOUND:
        # Also for other projects' servers, where the user may not see them.
        reason = (
            "the node's instance_uuid is no server of this Nova, or of a"
            " project that the user may not see"
        )
        return (
            f"{reason}: {_RIGHTS}. For a node that Nova does not use, set"
            f" instance_info/{RECORD}, to {{}} for defaults"
        )
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return _RIGHTS
    if (
        status == HTTPStatus.TOO_MANY_REQUESTS
        or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    ):
        return (
            "try again when Nova's API is up; with [nova] status_code_retries"
            " Ironic asks it several times"
        )
    return (
        "check that [nova] in Ironic's configuration leads to Nova's API, 2.47"
        " or later"
    )


@cache
def _nova() -> Any:
    """Return the client of Nova's API, by Ironic's own section ``[nova]``."""
    # Seconds for one response: the node is locked meanwhile, and Ironic's
    # default is to wait for ever.
    session = keystone.get_session("nova", timeout=CONF.nova.timeout or 30)
    return keystone.get_adapter(
        "nova", session=session, auth=keystone.get_auth("nova"), version="2.1"
    )


def _bios(task: Any) -> dict[str, BiosSetting]:
    rows = objects.BIOSSettingList.get_by_node_id(task.context, task.node.id)
    return bios_from(
        {name: getattr(each, name) for name in _SETTING} for each in rows
    )


def _difference(
    settings: Iterable[Mapping[str, Any]], found: Mapping[str, BiosSetting]
) -> str:
    """Return what differs in the BIOS; empty if all is as it should be."""
    for each in settings:
        name: str = each["name"]
        value: BiosValue = each["value"]
        if name not in found:
            return f"its BMC does not show the BIOS setting {quote(name)}"
        if not found[name].has(value):
            return (
                f"its BIOS setting {quote(name)} is"
                f" {quote(found[name].current)}, not {quote(value)}"
            )
    return ""


def _kept(
    kind: str, node: Any, find: Callable[[], list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Return our steps, unchanged from the first step to the end.

    The first step of a deployment, or of a cleaning.

    Ironic asks anew when the ramdisk calls, or after a step that reset the
    machine. Then the BMC may show no settings.
    """
    key = f"os_prefilter_{kind}_steps"
    info = node.driver_internal_info
    is_under_way = node.provision_state in _UNDER_WAY[kind]
    if (
        is_under_way
        and key in info
        and info.get(f"{kind}_step_index") is not None
    ):
        kept: list[dict[str, Any]] = info[key]
        return kept
    steps = find()
    if is_under_way:
        # Ironic saves the node with the list of all steps.
        node.set_driver_internal_info(key, steps)
    return steps


def _with(
    declared: list[dict[str, Any]], ours: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Merge our steps into the steps that an interface declares.

    Our arguments and priorities replace those of the same step.
    """
    by_key = {(step["interface"], step["step"]): step for step in declared}
    for step in ours:
        key = step["interface"], step["step"]
        by_key[key] = {**by_key.get(key, {}), **step}
    return list(by_key.values())
