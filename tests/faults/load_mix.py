"""A mix of requests for schedulers under load, and what each must be answered under each version of the rules.

Images and flavors are shared by all requests of a kind, as a scheduler's threads share what they cache: a request that
changed one of them would change the answers to all others. Every third request has an image of its own.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from nova import objects
from oslo_config import cfg

from os_prefilter import Decision, Flavor, Image, Pipeline, RequestSpec, allocation_candidates_query
from os_prefilter.conf import GROUP, register_opts
from tests.faults.load_watch import logging_counted
from tests.support.nova_objects import nova_flavor
from tests.support.rule_texts import rule, rules_text, settle

FILTERS = [
    "image_metadata",
    "hpet",
    "owner",
    "image_type",
    "compute_status",
    "accelerators",
    "packed_virtqueue",
    "ephemeral_encryption",
    "sound_model",
    "rules",
]

_IMAGES: tuple[dict[str, str], ...] = (
    {},
    {"hw_vif_model": "e1000e", "os_distro": "windows"},
    {"hw_disk_bus": "scsi", "hw_scsi_model": "virtio-scsi", "hw_video_model": "qxl"},
    {"hw_time_hpet": "yes", "hw_machine_type": "q35", "hw_architecture": "x86_64"},
    {"hw_firmware_type": "uefi", "os_secure_boot": "required", "os_distro": "windows"},
    {"trait:HW_CPU_X86_AVX2": "required", "hw_viommu_model": "virtio"},
)
_FLAVORS: tuple[dict[str, str], ...] = (
    {},
    {"resources:VGPU": "1", "tier:class": "gold"},
    {"hw:cpu_policy": "dedicated", "trait:HW_CPU_X86_SVM": "forbidden"},
)

_VERSION = re.compile(r"CUSTOM_V(\d{7})_")
_OWN = "os-0000000"
"""The value that an image of a request's own has for ``os_version``, with its number."""


class Kind(NamedTuple):
    """Requests that differ in the number of their image only."""

    name: str
    request: Callable[[int], Any]
    """(number) -> a request spec."""


def requests() -> list[Kind]:
    """Return all kinds: each image with each flavor, with an image of its own or shared, Nova's objects and ours."""
    kinds = []
    for row, properties in enumerate(_IMAGES):
        for column, extra_specs in enumerate(_FLAVORS):
            name = f"{row}.{column}"
            image = Image(properties, disk_format="qcow2")
            flavor = Flavor(vcpus=1, memory_mb=512, root_gb=1, extra_specs=extra_specs)
            novas = objects.ImageMeta.from_dict({"disk_format": "qcow2", "properties": properties})
            nova = nova_flavor(extra_specs=extra_specs)
            kinds += [
                Kind(f"ours {name}", partial(_shared, RequestSpec, flavor=flavor, image=image)),
                Kind(f"Nova {name}", partial(_shared, objects.RequestSpec, flavor=nova, image=novas)),
                Kind(f"own {name}", partial(_with_own_image, properties, flavor)),
            ]
    return kinds


def _shared(make: Callable[..., Any], _number: int, **parts: Any) -> Any:
    return make(**parts)


def _with_own_image(properties: dict[str, str], flavor: Flavor, number: int) -> RequestSpec:
    # An unknown model becomes a note, with what the tenant wrote in it.
    own = f"os-{number:07}"
    return RequestSpec(flavor, Image({**properties, "os_version": own, "hw_usb_model": own}, disk_format="qcow2"))


def version_text(version: int) -> str:
    """Return the rules of a version: several may apply to one request, and every other version has one more."""
    when = {"A": "{image_property: os_distro, is: windows}", "B": "{extra_spec: 'tier:class', is: gold}"}
    if version % 2:
        when["C"] = "{image_property: hw_machine_type, present: true}"
    return rules_text(*(rule(f"rule-{name}", each, [f"CUSTOM_V{version:07}_{name}"]) for name, each in when.items()))


def pipeline_on(folder: Path, **facts: Callable[[Any], Any]) -> tuple[cfg.ConfigOpts, Pipeline]:
    """Return a scheduler's configuration, with facts that expire at once, and its pipeline."""
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[])
    register_opts(conf)
    options = {"enabled_filters": FILTERS, "reported_traits": ["*"], "rules_dirs": [str(folder)]}
    for name, value in {**options, "facts_interval": 0.01}.items():
        conf.set_override(name, value, GROUP)
    return conf, Pipeline.from_conf(conf, {"minimum_compute_version": lambda _context: 1000, **facts})


def answer_of(pipeline: Pipeline, request_spec: Any) -> str:
    """Apply the filters; return all that a scheduler gets: the requirements, the notes, and the query."""
    decision: Decision = pipeline.apply(request_spec)
    query = allocation_candidates_query(request_spec)
    return "\n".join([*map(str, decision.requirements), *map(str, decision.notes), query])


class Answers:
    """What each kind of request must be answered, from pipelines of their own, in one thread."""

    def __init__(self, kinds: Sequence[Kind], folder: Path) -> None:
        self.kinds = kinds
        self._answers: list[list[str]] = []
        for version in range(2):
            path = folder / f"version-{version}"
            path.mkdir(exist_ok=True)
            (path / "rules.yaml").write_text(version_text(version), encoding="utf-8")
            settle(path / "rules.yaml")
            with logging_counted():
                _conf, pipeline = pipeline_on(path)
                answers = [answer_of(pipeline, kind.request(0)) for kind in kinds]
            self._answers.append([_VERSION.sub("CUSTOM_V_", answer) for answer in answers])

    def version_of(self, number: int, answer: str) -> int | None:
        """Return the version of the rules that gave an answer to request ``number``; None if no rule applies to it.

        :raises AssertionError: no version gives this answer
        """
        kind = number % len(self.kinds)
        versions = set(map(int, _VERSION.findall(answer)))
        assert len(versions) <= 1, f"{self.kinds[kind].name}: rules of versions {sorted(versions)} in one: {answer}"
        found = _VERSION.sub("CUSTOM_V_", answer)
        version = max(versions, default=None)
        for parity in (0, 1) if version is None else (version % 2,):
            if found == self._answers[parity][kind].replace(_OWN, f"os-{number:07}"):
                return version
        expected = self._answers[(version or 0) % 2][kind]
        raise AssertionError(f"{self.kinds[kind].name}, request {number}: {found!r} instead of {expected!r}")

    @property
    def affected(self) -> int:
        """How many kinds of requests rules of each version apply to."""
        return sum("CUSTOM_V_" in even for even in self._answers[0])
