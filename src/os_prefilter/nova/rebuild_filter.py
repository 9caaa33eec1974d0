# SPDX-License-Identifier: Apache-2.0

"""Host filter: no rebuild with an image that the server's host cannot run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from nova import context as nova_context
from nova import exception
from nova.scheduler.filters import BaseHostFilter
from nova.scheduler.utils import request_is_rebuild

from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.common import errors
from os_prefilter.common.logs import get_logger
from os_prefilter.common.quoting import (
    describe_error,
    escape_line,
    join_names,
    shorten,
)
from os_prefilter.hosts.marker_traits import REPORTED, groups_by_trait, keys_in
from os_prefilter.request.fields import clone_of, field_of
from os_prefilter.request.requirements import ROOT, Requirement
from os_prefilter.service import Service
from os_prefilter.service.deployment_facts import ask_in_time, latest_end
from os_prefilter.service.facts_from_conf import RULES

LOG = get_logger("os_prefilter.nova")

# Nova keeps the first 255 bytes of a server's fault.
_LONGEST_FAULT = 255


class RebuildFilter(BaseHostFilter):  # type: ignore[misc]
    """Refuse to rebuild a server with an image that its host cannot run.

    Nova runs no request filter for a rebuild on the same host. This one runs
    the service for the new image and without one, and compares what only the
    image requires with the traits that the host has in Placement now. Any
    other request passes, and so does a rebuild where something is not known.
    :func:`~os_prefilter.nova.activation.activate` sets the fields.

    What the old image required is not known here: before nova-api asks, it has
    replaced it in the request spec, in the server's metadata and in its
    ``image_ref``. So what both images require counts as required by the new
    one.
    """

    RUN_ON_REBUILD = True

    service: Service
    client: PlacementClient

    def host_passes(self, host_state: Any, spec_obj: Any) -> bool:
        """Return True, unless the host cannot serve a rebuild.

        :raises nova.exception.NoValidHost: in place of False, for which Nova
            gives the user no reason
        """
        # A user may give a new server the hint by which Nova tells a rebuild;
        # it then filters every host of the cloud. nova-api forces a rebuild to
        # the server's host.
        if not field_of(spec_obj, "force_hosts") or not request_is_rebuild(
            spec_obj
        ):
            return True
        until = latest_end()
        # Nova hands no context to host filters.
        context = nova_context.get_admin_context()
        without_image = clone_of(spec_obj)
        without_image.image = None
        is_of_image = False
        try:
            # What flavor, hints and project require was no reason to refuse
            # the server before, and is none now.
            service = replace(
                self.service.without_nova_style(), look_up_server_options=None
            )
            anyway, _ = _decide(service, without_image, context)
            is_of_image = True
            required, contradiction = _decide(self.service, spec_obj, context)
        except errors.RequestRejected as error:
            # A filter written for Nova, which does not run it for a rebuild,
            # refuses none.
            if is_of_image and not isinstance(error, errors.RejectedByFilter):
                raise exception.NoValidHost(reason=str(error)) from error
            return _pass_unchecked(host_state, spec_obj, describe_error(error))
        except Exception:  # noqa: BLE001 - what is not known refuses no rebuild
            return _pass_unchecked(
                host_state, spec_obj, "a request filter failed", LOG.exception
            )
        of_image = _of_image_alone(required, anyway)
        if contradiction:
            demands = {
                item.required
                for item in of_image
                if item.trait == contradiction.trait
            }
            if demands == {True, False}:
                raise exception.NoValidHost(reason=str(contradiction))
        if not of_image:
            return True
        unmet = self._unmet(of_image, host_state, spec_obj, until)
        if not unmet:
            return True
        LOG.info(
            "Refused to rebuild server %s on host %s: %s.",
            spec_obj.instance_uuid,
            host_state.host,
            "; ".join(map(str, unmet)),
        )
        raise exception.NoValidHost(reason=_refusal(unmet))

    def _unmet(
        self,
        required: Iterable[Requirement],
        host_state: Any,
        spec_obj: Any,
        until: float,
    ) -> list[Requirement]:
        """Return the requirements that the host certainly does not meet."""
        read, problem = ask_in_time(
            partial(self.client.provider_traits, host_state.uuid),
            "traits of a host",
            until,
        )
        if problem:
            _pass_unchecked(host_state, spec_obj, problem)
            return []
        _, traits = read.result()
        options = self.service.options
        groups = groups_by_trait(options.templates)
        keys = keys_in(REPORTED, traits)
        unmet: list[Requirement] = []
        unreported: set[str] = set()
        for item in required:
            if (item.trait in traits) == item.required:
                continue
            group = groups.get(item.trait)
            if (
                item.required
                and group
                and group.keys.isdisjoint(keys)
                and group.implied_by.isdisjoint(traits)
            ):
                # It lacks the trait, and may have what the trait stands for.
                unreported.add(item.trait)
            else:
                unmet.append(item)
        if unreported:
            _pass_unchecked(
                host_state,
                spec_obj,
                f"it has not reported whether it has {join_names(unreported)}",
            )
        return unmet


def _decide(
    service: Service, spec_obj: Any, context: Any
) -> tuple[tuple[Requirement, ...], errors.ContradictingRequirements | None]:
    """Return all that is required, also where it contradicts itself.

    The new image may have no part in that.
    """
    try:
        return service.decide(spec_obj, context).requirements, None
    except errors.ContradictingRequirements as error:
        return error.requirements, error


def _of_image_alone(
    required: Iterable[Requirement], anyway: Iterable[Requirement]
) -> list[Requirement]:
    """Return what only the properties of the new image require.

    :param anyway: what flavor, hints and project require without it
    """
    # The server runs with its flavor's devices. A rule makes none: what the
    # image requires counts even if a rule requires it too.
    in_force = set()
    for item in anyway:
        if item.scope == ROOT:
            rule = item.source if item.filter == RULES else ""
            in_force.add((item.trait, item.required, rule))
    found = []
    for item in required:
        # What comes from no property, such as a disabled compute service,
        # keeps no server from a rebuild.
        if item.scope != ROOT or not item.properties:
            continue
        trait = item.trait, item.required
        if in_force.isdisjoint([(*trait, ""), (*trait, item.source)]):
            found.append(item)
    return found


def _pass_unchecked(
    host_state: Any,
    spec_obj: Any,
    problem: str,
    log: Callable[..., None] = LOG.warning,
) -> bool:
    log(
        "The server %s is rebuilt without a check whether its host %s can run"
        " the new image: %s",
        spec_obj.instance_uuid,
        host_state.host,
        problem,
    )
    return True


def _refusal(unmet: Iterable[Requirement]) -> str:
    """Return why a host is refused, as long as Nova's fault can be.

    It names the properties of the image and the flavor.
    """
    offers: dict[str, None] = {}
    for item in unmet:
        offers[escape_line(" together with ".join(item.properties))] = None
    for number in range(len(offers), 0, -1):
        shown = ", ".join(shorten(list(offers), number))
        reason = f"This host does not offer {shown}."
        fault = str(exception.NoValidHost(reason=reason))
        if len(fault.encode()) <= _LONGEST_FAULT:
            return reason
    return "This host does not offer what image and flavor require."
