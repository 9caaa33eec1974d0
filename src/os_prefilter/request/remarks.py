# SPDX-License-Identifier: Apache-2.0

"""Notes on parts of a request that have no effect.

Traits that only choose a host, and unknown names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import cache

from os_prefilter.common.errors import (
    MalformedRequest,
    NamedDevice,
    NeverStarts,
    RequestRejected,
)
from os_prefilter.common.trait_names import Trait
from os_prefilter.request.guest_platform import guest_of
from os_prefilter.request.named_traits import NamedTrait, named_traits
from os_prefilter.request.requirements import Note, Source
from os_prefilter.request.values import (
    advice_of,
    raw_values,
    relations_of,
    value_named,
    value_of,
)
from os_prefilter.request.view import Request
from os_prefilter.vocabulary import (
    I686,
    ROWS,
    enabling_values,
    row_named,
    table,
)
from os_prefilter.vocabulary.image_properties import (
    KEPT_BY_NOVA,
    LEGACY_NAMES,
    LISTS,
)
from os_prefilter.vocabulary.machine_types import families_without
from os_prefilter.vocabulary.model import DependsOn, Row
from os_prefilter.vocabulary.options import Options

# hw:cpu_model is not meant for hw:tpm_model.
_CUTOFF = 0.85
OF_HOSTS = frozenset(
    ("architecture", "cpu_thread_policy", "hypervisor_type", "vm_mode")
)
"""Rows about the host itself: naming their trait needs no property as well.
"""


def nearest_property(name: str) -> str:
    """Return "Did you mean" an image property of Nova, or nothing.

    The one that is nearest to an unknown name.
    """
    return nearest_name(name, known_properties())


def nearest_name(name: str, known: Iterable[str]) -> str:
    """Return "Did you mean" the known name nearest to a name, or nothing."""
    close = get_close_matches(name.lower(), sorted(known), n=1, cutoff=_CUTOFF)
    return f". Did you mean {close[0]}?" if close else ""


@cache
def known_properties() -> frozenset[str]:
    """Return the image properties with a meaning: to Nova, or to a row.

    Also to a row of another package.
    """
    rows = (row.image_property for row in table() if row.image_property)
    return (
        KEPT_BY_NOVA
        | LISTS
        | LEGACY_NAMES.keys()
        | {"vmware_adaptertype", *rows}
    )


def remarks_in_nova(
    request: Request, options: Options, enabled: Collection[str] = ()
) -> Iterator[Note]:
    """Yield a note on each part of a request without effect in Nova.

    :param enabled: the names of the request filters that run
    :raises NamedDevice: for a switched device of a new server that a trait
        alone asks for, if Nova builds the guests and a filter of the device is
        enabled
    :raises NeverStarts: likewise for a value without another that it needs,
        such as a model of a TPM without a version
    """
    yield from _notes_on_named_traits(request, options, enabled)
    yield from _notes_on_incompatible_values(request)
    yield from _notes_on_config_drive(request)
    if not (
        _ignored_names().isdisjoint(request.image_properties)
        and _ignored_names().isdisjoint(request.extra_specs)
    ):
        yield from _notes_on_ignored_values(request, options, enabled)


def _why_ignored_without(depends_on: DependsOn) -> str:
    name = row_named(depends_on.row).image_property
    reason = f"it means nothing without {name}"
    if not depends_on.values:
        return reason
    return f"{reason}={' or '.join(sorted(depends_on.values))}"


IGNORED: Mapping[str, str] = {
    "usb_model": (
        "Nova gives a guest with a USB tablet or disk another one;"
        " hw_input_bus=virtio avoids the tablet"
    ),
    "pointer_model": "Nova gives the guest the tablet of hw_input_bus instead",
    "secure_boot": (
        "Nova reads it under UEFI alone, which only aarch64 has by default;"
        " set hw_firmware_type=uefi"
    ),
    **{
        row.name: _why_ignored_without(row.depends_on)
        for row in ROWS
        if row.depends_on
    },
}
"""Row -> why Nova ignores its value, depending on other rows."""


@cache
def _ignored_names() -> frozenset[str]:
    rows = map(row_named, IGNORED)
    return frozenset(name for row in rows for name in row.request_names)


def _notes_on_ignored_values(
    request: Request, options: Options, enabled: Collection[str]
) -> Iterator[Note]:
    for name, reason in IGNORED.items():
        row = row_named(name)
        # That there be no controller asks for something as well, and so does
        # Secure Boot where the host has it.
        without_trait = {"none", "optional"}
        asked = {
            value
            for value in _values_by_property(request, row)
            if row.values[value].trait or value in without_trait
        }
        if not asked or not _is_ignored(request, row):
            continue
        # A filter that is not enabled must not reject.
        if options.nova_builds_guests and not _filters_of(row).isdisjoint(
            enabled
        ):
            for source, without, advice in without_basis(request, row):
                raise NeverStarts(str(source), without, advice)
        yield Note(
            f"{row.image_property or row.extra_spec}={asked.pop()}",
            reason,
            warn=True,
        )


def without_basis(
    request: Request, row: Row
) -> Iterator[tuple[Source, str, str]]:
    """Yield what a guest of Nova lacks because a request lacks its basis.

    Each with what is missing, and what to set. Nova's drivers silently ignore
    the model of a TPM without a version, for instance.

    Nothing for what an extra spec alone can say: operators set
    ``hw:tpm_secret_security`` for those images that ask for a TPM. Nor for
    stateless firmware: a guest without UEFI has no state to keep.
    """
    depends_on = row.depends_on
    # Nova 34 ignores hw_firmware_stateless without UEFI on purpose
    # (https://bugs.launchpad.net/nova/+bug/2158967).
    if (
        not depends_on
        or not row.image_property
        or row.name == "firmware_stateless"
    ):
        return
    with suppress(RequestRejected):
        if value_of(request, row):
            return
    places = (
        request.place_of(row.image_property),
        f"flavor extra spec {row.extra_spec}",
    )
    needed = str(row_named(depends_on.row).image_property)
    # Of a TPM, 2.0: each model has it.
    advice = f"{needed}={max(enabling_values(depends_on))}"
    without = f"an image without {advice if depends_on.values else needed}"
    for place, raw in zip(places, raw_values(request, row)):
        value = None if raw is None else row.canonical(raw)
        if not value or not row.values[value].trait:
            continue
        source = Source(place, value)
        if request.asks_anew(str(source)):
            yield source, without, advice


def _is_ignored(request: Request, row: Row) -> bool:
    # A contradiction is for the filters to reject.
    with suppress(RequestRejected):
        if row.depends_on:
            return not value_of(request, row)
        if row.name == "secure_boot":
            return not _has_uefi(request)
        values = {
            name: value_named(request, name)
            for name in ("input_bus", "disk_bus", "cdrom_bus")
        }
        found = {
            name: choice.value for name, choice in values.items() if choice
        }
        is_virtio = found.pop("input_bus", "") == "virtio"
        if row.name == "pointer_model":
            return is_virtio
        on_usb = {name for name, value in found.items() if value == "usb"}
        return not is_virtio or bool(
            on_usb - guest_of(request).optional_devices
        )
    return False


def _has_uefi(request: Request) -> bool:
    """Return whether Nova gives a guest UEFI, or may if it is emulated."""
    firmware = value_named(request, "firmware_type")
    if firmware:
        return firmware.value == "uefi"
    # The default of an emulated guest depends on its architecture.
    if guest_of(request).emulated:
        return True
    architecture = value_named(request, "architecture")
    return architecture is not None and architecture.value == "aarch64"


def _notes_on_incompatible_values(request: Request) -> Iterator[Note]:
    """Yield a note on each value that may be incompatible in Nova."""
    rows, names = _uncertain_rows()
    # Most requests name no input bus.
    if names.isdisjoint(request.image_properties):
        return
    for row in rows:
        # A contradiction is for the filters to reject.
        with suppress(RequestRejected):
            found = value_of(request, row)
            if not found:
                continue
            relations = relations_of(
                request, guest_of(request), row, found, by_nova=True
            )
            for pair, other in relations.uncertain:
                present = value_named(request, pair.unless[0][0])
                how = f"instead of {present.value}" if present else "as well"
                reason = (
                    f"with {other} a guest of Nova may not start; set"
                    f" {advice_of(pair)} {how}"
                )
                yield Note(str(found.source), reason, warn=True)


@cache
def _uncertain_rows() -> tuple[tuple[Row, ...], frozenset[str]]:
    """Return rows with uncertain constraints, and the others' properties."""
    rows: list[Row] = []
    names: set[str] = set()
    for row in ROWS:
        pairs = [
            pair
            for constraints in row.constraints.values()
            for pair in constraints.incompatible_in_nova
            if not pair.is_certain
        ]
        if pairs:
            rows.append(row)
            names.update(
                str(row_named(pair.row).image_property) for pair in pairs
            )
    return tuple(rows), frozenset(names)


def _notes_on_config_drive(request: Request) -> Iterator[Note]:
    """Yield a note if a config drive is on a bus that the guest cannot have.

    The guest needs its CD-ROM only for that.
    """
    cdrom = row_named("cdrom_bus")
    guest = guest_of(request)
    # Of an ISO image, the filters reject it. A config drive is no CD-ROM with
    # config_drive_format = vfat in nova.conf.
    if (
        request.image_property("img_config_drive") != "mandatory"
        or cdrom.name not in guest.optional_devices
    ):
        return
    found = value_of(request, cdrom)
    if found and guest.family in families_without(cdrom.name, found.value):
        reason = (
            "the config drive is a CD-ROM by default, and with"
            f" {guest.family_source} no guest has one on that bus"
        )
        yield Note(str(found.source), reason, warn=True)


def _notes_on_named_traits(
    request: Request, options: Options, enabled: Collection[str]
) -> Iterator[Note]:
    """Yield a note on each trait named without its device's property.

    By that property Nova gives the guest the device.

    Nova's scheduler chooses a host by the trait; its drivers read properties
    alone, and the guest starts without it. A server that exists moves on as it
    is, and a rebuild asks anew for what its image names.
    """
    for each, rows in _without_property(request):
        # A filter that is not enabled must not reject.
        instead = _instead_of_trait(
            row for row in rows if not _filters_of(row).isdisjoint(enabled)
        )
        if (
            instead
            and options.nova_builds_guests
            and request.asks_anew(str(each.source))
        ):
            raise NamedDevice(str(each.source), instead)
        names = " or ".join(name for row in rows for name in row.request_names)
        reason = (
            f"Nova only chooses a host by it; it builds the guest by {names},"
            " which does not ask for it"
        )
        yield Note(str(each.source), reason, warn=True)


def _instead_of_trait(rows: Iterable[Row]) -> str:
    """Return the properties that switch the devices on, or "" if none does.

    Each with its value.
    """
    devices = [row for row in rows if row.device]
    return " or ".join(
        f"{name}=true" for row in devices for name in row.request_names
    )


def _filters_of(row: Row) -> set[str]:
    # Nova's query has no option; the filter of the other devices of an image
    # stands for it.
    return {
        "image_metadata" if name == "query" else name
        for name in row.required_by
    }


def _without_property(
    request: Request,
) -> Iterator[tuple[NamedTrait, tuple[Row, ...]]]:
    """Yield each trait required of the host by name alone, with its rows.

    Of these the request lacks the property.
    """
    # A malformed name is for the filters to reject, and for the query.
    with suppress(MalformedRequest):
        for each in named_traits(request):
            rows = (
                _rows_by_trait().get(each.trait, ())
                if each.required and request.is_of_host(each.scope)
                else ()
            )
            if rows and not any(
                trait in _traits_by_property(request, row)
                for row, trait in rows
            ):
                yield each, tuple(row for row, _ in rows)


def _traits_by_property(request: Request, row: Row) -> frozenset[Trait]:
    """Return the traits that the properties of a row require by themselves."""
    values = _values_by_property(request, row)
    depends_on = row.depends_on
    if not values and depends_on and depends_on.default:
        enabling = _values_by_property(
            request, row_named(depends_on.row)
        ) & enabling_values(depends_on)
        values = {depends_on.default} if enabling else values
    return frozenset(
        trait for value in values for trait in row.values[value].traits
    )


def _values_by_property(request: Request, row: Row) -> set[str]:
    return {
        value
        for raw in raw_values(request, row)
        if raw is not None and (value := row.canonical(raw)) is not None
    }


@cache
def _rows_by_trait() -> dict[Trait, tuple[tuple[Row, Trait], ...]]:
    """Return trait -> the rows that set it up, each with its plain trait."""
    names: dict[Trait, tuple[tuple[Row, Trait], ...]] = {}
    for row in ROWS:
        if row.name in OF_HOSTS or not row.request_names:
            continue
        named = [(trait, trait) for trait in row.traits]
        named += [
            (I686[trait], trait) for trait in row.traits if trait in I686
        ]
        for name, trait in named:
            names[name] = (*names.get(name, ()), (row, trait))
    return names
