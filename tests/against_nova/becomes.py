# SPDX-License-Identifier: Apache-2.0

"""How our answer is computed from Nova's, difference by difference. This
module imports nothing of Nova.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, Union
from urllib.parse import parse_qsl, urlencode

from os_prefilter.request.guest_platform import guest_of
from os_prefilter.request.view import Request
from os_prefilter.vocabulary import BY_NAME, DEVICES, rows_required_by
from os_prefilter.vocabulary.machine_types import I686_FAMILIES
from os_prefilter.vocabulary.model import Row

Required = tuple[str, str, bool]
"""(scope, trait, required); or, for a resource of the flavor, ``CLASS:amount``
for the trait; or, for aggregates, the scope ``member_of`` and their UUIDs,
joined by commas.
"""
Answer = Union[frozenset[Required], str]
"""What was added to the request; the query as a string; or how that failed:
REFUSED, FAILED.
"""
REFUSED = "refused"
"""The request is refused with a reason."""
FAILED = "failed with an internal error"


class Nova(Protocol):
    """Nova's own code, to ask what it says of another request."""

    name: str
    """Our filter of the same purpose, or ``query``."""

    def __call__(self, spec: Any) -> Answer:
        """Return what Nova answers."""

    def completed(self, spec: Any) -> Any:
        """Return a copy of the request spec with an empty image and no extra
        specs where those are not set.
        """


# -- reading Nova's objects
# -----------------------------------------------------------------------------


def _image(spec: Any, name: str) -> Any:
    image = spec.image if "image" in spec else None
    return (
        image.properties.get(name)
        if image and name in image.properties.fields
        else None
    )


def _extra_specs(spec: Any) -> dict[str, str]:
    return (
        dict(spec.flavor.extra_specs) if "extra_specs" in spec.flavor else {}
    )


def _said(spec: Any, row: str) -> str:
    """Return what image or flavor say of a row, as far as that is known;
    REFUSED if both do, and disagree.
    """
    in_image = (
        BY_NAME[row].canonical(_image(spec, str(BY_NAME[row].image_property)))
        or ""
    )
    in_flavor = (
        BY_NAME[row].canonical(
            _extra_specs(spec).get(str(BY_NAME[row].extra_spec))
        )
        or ""
    )
    return (
        REFUSED
        if in_image and in_flavor and in_image != in_flavor
        else in_image or in_flavor
    )


def _with_extra_specs(spec: Any, extra_specs: Mapping[str, str]) -> Any:
    clone = spec.obj_clone()
    clone.flavor.extra_specs = dict(extra_specs)
    return clone


def _with_property(spec: Any, name: str) -> Any:
    clone = spec.obj_clone()
    clone.image.properties = type(spec.image.properties)(
        **{name: _image(spec, name)}
    )
    return clone


def _also(answer: Answer, *asked: Required) -> Answer:
    return answer if isinstance(answer, str) else answer | set(asked)


def _on_root(prefix: str, value: str) -> Required:
    return ("root", f"{prefix}_{value.upper().replace('-', '_')}", True)


# -- what becomes of Nova's answer
# -----------------------------------------------------------------------------


def completed(answer: Answer, spec: Any, nova: Nova) -> Answer:
    return nova(nova.completed(spec)) if answer == FAILED else answer


def _required(nova: Nova, spec: Any) -> Answer:
    return completed(nova(spec), spec, nova)


def empty_says_nothing(answer: Answer, spec: Any, nova: Nova) -> Answer:
    said = {name: value for name, value in _extra_specs(spec).items() if value}
    return (
        answer
        if said == _extra_specs(spec)
        else _required(nova, _with_extra_specs(spec, said))
    )


def no_boolean_says_nothing(answer: Answer, spec: Any, nova: Nova) -> Answer:
    if "maybe" not in _extra_specs(spec).values():
        return answer
    said = {
        name: value
        for name, value in _extra_specs(spec).items()
        if value not in ("", "maybe")
    }
    return _required(nova, _with_extra_specs(spec, said))


def stateless_is_ignored(answer: Answer, spec: Any, nova: Nova) -> Answer:
    if (
        answer != REFUSED
        or not _image(spec, "hw_firmware_stateless")
        or _image(spec, "hw_firmware_type") == "uefi"
    ):
        return answer
    clone = spec.obj_clone()
    clone.image.properties.hw_firmware_stateless = False
    return empty_says_nothing(nova(clone), clone, nova)


def _requires(answer: Answer, trait: str) -> Answer:
    """Return the query with one more trait required in the group without a
    suffix.
    """
    parameters = parse_qsl(str(answer), keep_blank_values=True)
    traits = {trait, *dict(parameters).get("required", trait).split(",")}
    # Nova lists the forbidden ones last.
    text = ",".join(
        sorted(traits, key=lambda each: (each.startswith("!"), each))
    )
    return urlencode(
        sorted(
            [
                *(
                    (name, value)
                    for name, value in parameters
                    if name != "required"
                ),
                ("required", text),
            ]
        )
    )


def tpm_model(answer: Answer, spec: Any, _nova: Nova) -> Answer:
    version = _said(spec, "tpm_version")
    if (
        answer == REFUSED
        or not version
        or f"COMPUTE_SECURITY_TPM_{version.replace('.', '_')}"
        not in str(answer)
    ):
        return answer
    model = _said(spec, "tpm_model") or "tpm-tis"
    return _requires(
        answer, f"COMPUTE_SECURITY_{model.upper().replace('-', '_')}"
    )


def maxphysaddr_mode(answer: Answer, spec: Any, _nova: Nova) -> Answer:
    row, mode = BY_NAME["maxphysaddr_mode"], _said(spec, "maxphysaddr_mode")
    if REFUSED in (answer, mode) or _extra_specs(spec).get(
        str(row.extra_spec), ""
    ) not in ("", *row.values):
        return REFUSED
    return _requires(answer, str(row.values[mode].trait)) if mode else answer


def mem_encryption_model(answer: Answer, spec: Any, _nova: Nova) -> Answer:
    if answer == REFUSED or "MEM_ENCRYPTION_CONTEXT" not in str(answer):
        return answer
    model = _said(spec, "mem_encryption_model") or "amd-sev"
    return _requires(answer, f"HW_CPU_X86_{model.upper().replace('-', '_')}")


def no_boolean_is_refused(answer: Answer, spec: Any, _nova: Nova) -> Answer:
    return (
        REFUSED
        if _extra_specs(spec).get("hw:mem_encryption") == "maybe"
        else answer
    )


_MAPPED_BY_NOVA = (
    "hw_cdrom_bus",
    "hw_disk_bus",
    "hw_video_model",
    "hw_vif_model",
    "hw_architecture",
    "hw_emulation_architecture",
    "hw_viommu_model",
)


def each_alone(answer: Answer, spec: Any, nova: Nova) -> Answer:
    answers = [
        nova(_with_property(spec, name))
        for name in _MAPPED_BY_NOVA
        if _image(spec, name)
    ]
    return (
        frozenset().union(
            *(each for each in answers if not isinstance(each, str))
        )
        if answers
        else answer
    )


def viommu(answer: Answer, spec: Any, _nova: Nova) -> Answer:
    in_flavor = _extra_specs(spec).get("hw:viommu_model")
    model = (
        BY_NAME["viommu_model"].canonical(in_flavor)
        if in_flavor
        else _image(spec, "hw_viommu_model")
    )
    return _also(
        answer, *([_on_root("COMPUTE_VIOMMU_MODEL", model)] if model else [])
    )


def sound(answer: Answer, spec: Any, _nova: Nova) -> Answer:
    model = _said(spec, "sound_model")
    unknown = _extra_specs(spec).get("hw:sound_model", "") not in (
        "",
        *BY_NAME["sound_model"].values,
    )
    return (
        REFUSED
        if unknown or model == REFUSED
        else _also(
            answer,
            *([_on_root("COMPUTE_SOUND_MODEL", model)] if model else []),
        )
    )


def usb(answer: Answer, spec: Any, _nova: Nova) -> Answer:
    ports = (
        _said(spec, "usb_redirection")
        if _image(spec, "hw_redirected_usb_ports")
        else ""
    )
    return REFUSED if REFUSED in (_said(spec, "usb_model"), ports) else answer


def i686(answer: Answer, spec: Any, _nova: Nova) -> Answer:
    if isinstance(answer, str):
        return answer
    if _image(spec, "hw_emulation_architecture") == "i686":
        answer = _also(answer, _on_root("COMPUTE_ARCH", "x86_64"))
    if _image(spec, "hw_architecture") != "i686" or isinstance(answer, str):
        return answer
    return answer - {_on_root("HW_ARCH", "i686")} | {
        _on_root("HW_ARCH", "x86_64")
    }


def without_emulated_devices(answer: Answer, spec: Any, _nova: Nova) -> Answer:
    emulated = guest_of(Request(spec)).emulated
    if isinstance(answer, str) or not emulated:
        return answer
    devices = {trait for name in DEVICES for trait in BY_NAME[name].traits}
    return frozenset(item for item in answer if item[1] not in devices)


def impossible(answer: Answer, spec: Any, nova: Nova) -> Answer:
    guest, rows = guest_of(Request(spec)), rows_required_by(nova.name)
    for row in (
        (*rows, *rows_required_by("query"))
        if nova.name == "image_metadata"
        else rows
    ):
        value = _of_row(spec, row)
        incompatible = (
            row.constraints[value].incompatible
            if value in row.constraints
            else ()
        )
        if guest.what_rules_out(row.name, value):
            return REFUSED
        if any(
            _of_row(spec, BY_NAME[name]) in values
            for name, values in incompatible
        ):
            return REFUSED
        is_machine = row.name == "machine_type" and value
        if is_machine and guest.is_i686 and value not in I686_FAMILIES:
            return REFUSED
    return answer


def _of_row(spec: Any, row: Row) -> str:
    """Return the value that the request gives to a row, the default where one
    counts; empty if none.
    """
    in_image, in_flavor = (
        _image(spec, str(row.image_property)),
        _extra_specs(spec).get(str(row.extra_spec)),
    )
    wins = row.precedence.wins
    raws = (in_flavor, in_image) if wins == "flavor" else (in_image, in_flavor)
    known = [row.canonical(each) or "" for each in raws if each]
    # What the winning source says counts, also where it is unknown: Nova does
    # not look at the other one.
    said = next(iter(known if wins else filter(None, known)), "")
    depends_on = row.depends_on
    beside = _of_row(spec, BY_NAME[depends_on.row]) if depends_on else ""
    if depends_on and (
        not beside or (depends_on.values and beside not in depends_on.values)
    ):
        return ""
    return said or (depends_on and depends_on.default) or ""


_ROOT_CLASSES = ("VCPU", "PCPU", "MEMORY_MB", "DISK_GB")
_NOVAS_CLASSES = ("VCPU", "PCPU", "MEMORY_MB", "VGPU", "CUSTOM_PCI_1")


def owner_on_groups(answer: Answer, spec: Any, nova: Nova) -> Answer:
    if "OWNER_NOVA" not in spec.root_required:
        return answer
    clone = spec.obj_clone()
    clone.root_required.discard("OWNER_NOVA")
    return nova(clone)


def trait_of_pci_devices(answer: Answer, spec: Any, _nova: Nova) -> Answer:
    groups = spec.requested_resources if "requested_resources" in spec else []
    requests = (
        spec.pci_requests.requests
        if "pci_requests" in spec and spec.pci_requests
        else []
    )
    own = {
        each.request_id
        for each in requests
        if each.source != each.NEUTRON_PORT
    }
    pci = [
        group.requester_id
        for group in groups
        if group.requester_id.rsplit("-", 1)[0] in own
    ]
    if not isinstance(answer, str):
        answer -= {(suffix, "OWNER_NOVA", True) for suffix in pci}
    return _also(
        answer,
        *((suffix, "COMPUTE_MANAGED_PCI_DEVICE", True) for suffix in pci),
    )


def _novas_trait(resource_class: str) -> str:
    return (
        "COMPUTE_MANAGED_PCI_DEVICE"
        if "PCI" in resource_class
        else "OWNER_NOVA"
    )


def owner_on_flavors_groups(answer: Answer, spec: Any, _nova: Nova) -> Answer:
    specs = _extra_specs(spec)
    for suffix in ("1", "_gpu"):
        owned = [
            each
            for each in sorted(_NOVAS_CLASSES)
            if _amount(specs, suffix, each)
        ]
        means_another = specs.get(f"trait{suffix}:OWNER_CYBORG") == "required"
        if (
            owned
            and not means_another
            and specs.get(f"trait{suffix}:OWNER_NOVA") != "forbidden"
        ):
            answer = _also(answer, (suffix, _novas_trait(owned[0]), True))
    return answer


def not_anothers(answer: Answer, spec: Any, _nova: Nova) -> Answer:
    specs = _extra_specs(spec)
    nested = {
        name
        for name in _classes(specs)
        if name not in _ROOT_CLASSES and _amount(specs, "", name)
    }
    means_another = specs.get("trait:OWNER_CYBORG") == "required"
    owned = (
        set()
        if means_another or specs.get("trait:OWNER_NOVA") == "forbidden"
        else nested & set(_NOVAS_CLASSES)
    )
    host = _asks_for(spec, spec.flavor.memory_mb, "MEMORY_MB") or _asks_for(
        spec, spec.flavor.vcpus, "VCPU", "PCPU"
    )
    if owned and host and _may_have_groups_of_their_own(spec, len(owned)):
        for name in owned:
            suffix = f"_owned_{name}"
            unwanted = {
                (suffix, trait, False)
                for trait in _unsuffixed_traits(specs, "forbidden")
            }
            resource = (suffix, f"{name}:{_amount(specs, '', name)}", True)
            answer = _also(
                answer, (suffix, _novas_trait(name), True), resource, *unwanted
            )
        nested, owned = nested - owned, set()
    if nested and not means_another:
        if "OWNER_CYBORG" in (_image(spec, "traits_required") or ()):
            return REFUSED
        answer = _also(answer, ("unsuffixed", "OWNER_CYBORG", False))
    in_place = (
        set()
        if host
        else {("unsuffixed", _novas_trait(name), True) for name in owned}
    )
    return _also(answer, *in_place)


def _asks_for(spec: Any, of_flavor: int, *names: str) -> bool:
    specs = _extra_specs(spec)
    written = [
        key
        for key in specs
        if key.rpartition(":")[2] in names and key.startswith("resources")
    ]
    if any(specs[key].strip() not in ("-1", "one") for key in written):
        return any(_amount(specs, "", name) for name in names)
    return bool(of_flavor)


def _may_have_groups_of_their_own(spec: Any, number: int) -> bool:
    specs = _extra_specs(spec)
    policy = specs.get("group_policy")
    if policy == "isolate" or (
        policy != "none" and number + len(_flavors_suffixes(spec)) > 1
    ):
        return False
    required = {
        *_unsuffixed_traits(specs, "required"),
        *(_image(spec, "traits_required") or ()),
    }
    return all(
        trait == "OWNER_NOVA" or trait.startswith("HW_CPU_")
        for trait in required
    )


def _unsuffixed_traits(specs: Mapping[str, str], rule: str) -> set[str]:
    return {
        key.removeprefix("trait:")
        for key, value in specs.items()
        if key.startswith("trait:") and value == rule
    }


def not_of_profiles(answer: Answer, spec: Any, _nova: Nova) -> Answer:
    groups = spec.requested_resources if "requested_resources" in spec else []
    profiles = [
        each
        for each in groups
        if each.requester_id.startswith("device_profile_")
    ]
    taking = [
        each
        for each in profiles
        if any(each.resources.values())
        and "OWNER_NOVA" not in each.required_traits
    ]
    return _also(
        answer, *((each.requester_id, "OWNER_NOVA", False) for each in taking)
    )


def _amount(specs: Mapping[str, str], suffix: str, name: str) -> int:
    try:
        return max(0, int(specs.get(f"resources{suffix}:{name}", "0")))
    except ValueError:
        return 0


def _classes(specs: Mapping[str, str]) -> list[str]:
    return [
        key.removeprefix("resources:")
        for key in specs
        if key.startswith("resources:") and "NO_SUCH" not in key
    ]


# -- what becomes of Nova's query
# -----------------------------------------------------------------------------


def as_sent(answer: Answer, spec: Any, _nova: Nova) -> Answer:
    """Add what Nova's ``resources_from_request_spec`` adds."""
    if answer == REFUSED:
        return answer
    parameters = parse_qsl(str(answer), keep_blank_values=True)
    groups = {
        name
        for name, _ in parameters
        if name.startswith("resources") and name != "resources"
    }
    if (
        len(groups) > 1
        and len(_flavors_suffixes(spec)) <= 1
        and "group_policy" not in dict(parameters)
    ):
        parameters.append(("group_policy", "none"))
    destination = (
        spec.requested_destination if "requested_destination" in spec else None
    )
    if destination and destination.aggregates:
        parameters += [
            ("member_of", "in:" + ",".join(sorted(each.split(","))))
            for each in destination.aggregates
        ]
    if destination and destination.forbidden_aggregates:
        parameters.append(
            (
                "member_of",
                "!in:" + ",".join(sorted(destination.forbidden_aggregates)),
            )
        )
    return urlencode(sorted(parameters))


def no_empty_parameter(answer: Answer, _spec: Any, _nova: Nova) -> Answer:
    return (
        answer
        if answer == REFUSED
        else "&".join(
            each for each in str(answer).split("&") if not each.endswith("=")
        )
    )


def _flavors_suffixes(spec: Any) -> set[str]:
    keys = [
        key
        for key in _extra_specs(spec)
        if key.startswith(("resources", "trait")) and ":" in key
    ]
    return {
        key.partition(":")[0].removeprefix("resources").removeprefix("trait")
        for key in keys
    } - {""}


# -- aggregates and networks
# -----------------------------------------------------------------------------


def nothing_required(answer: Answer, _spec: Any, _nova: Nova) -> Answer:
    return frozenset() if answer == FAILED else answer


def as_of_another_project(answer: Answer, spec: Any, nova: Nova) -> Answer:
    if answer != FAILED:
        return answer
    clone = spec.obj_clone()
    clone.project_id = "a project that no aggregate is for"
    return nova(clone)


def without_unnamed_networks(answer: Answer, spec: Any, nova: Nova) -> Answer:
    requested: Any = (
        spec.requested_networks if "requested_networks" in spec else ()
    )
    named = [each for each in requested if each.network_id or each.port_id]
    if len(named) == len(requested):
        return answer
    clone = spec.obj_clone()
    clone.requested_networks = type(requested)(objects=named)
    return nova(clone)
