"""Compares two checkouts on generated requests: ``python tests/exhaustive/old_and_new.py OLD NEW --count 100000``.

Each checkout answers the same requests in a process of its own: what the filters require, the query, the request spec
afterwards, the late check and the guest settings of several hosts, on this library's objects and on Nova's. The first
answers that differ are printed; the exit code is 1 then.
"""

import argparse
import json
import logging
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

_TRAITS = ("HW_CPU_X86_AVX", "CUSTOM_COMPUTE_TIME_HPET", "OWNER_NOVA", "OWNER_CYBORG", "COMPUTE_NET_VIF_MODEL_IGB")
_ODD = ("zz", "", None, True, 0, 1.5, "YES", " q35", "A" * 300, "a\nb")
_CLASSES = ("VCPU", "MEMORY_MB", "VGPU", "FPGA", "CUSTOM_IRON", "PCPU", "MEM_ENCRYPTION_CONTEXT", "CUSTOM_PCI_X")
_SHOWN = 5
_REFUSALS = ("Conflict", "ImpossibleCombination", "UnknownValue", "MalformedRequest", "Contradicting")
_GROUPS = ("pci-0", "device_profile_0", "port")


def requests(number: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield requests as JSON has them; half of them ask for what makes sense together."""
    from os_prefilter.vocabulary import table  # noqa: PLC0415 - only one of the two checkouts is asked

    chance = random.Random(seed)  # noqa: S311 - the same each time
    rows = [row for row in table() if row.image_property or row.extra_spec]
    traits = sorted({str(trait) for row in table() for trait in row.traits} | set(_TRAITS))
    for _ in range(number):
        odd = 0.25 if chance.random() < 0.5 else 0.02
        properties: dict[str, Any] = {"os_distro": "debian"} if chance.random() < 0.2 else {}
        extra_specs: dict[str, Any] = {}
        for row in chance.sample(rows, chance.choice((0, 1, 1, 2, 3, 5, 10))):
            value = chance.choice(_ODD) if chance.random() < odd else chance.choice([*row.values])
            names = [name for name in (row.image_property, *row.legacy_names) if name]
            if names and (not row.extra_spec or chance.random() < 0.6):
                properties[chance.choice(names)] = value
            if row.extra_spec and (not names or chance.random() < 0.5):
                again = str(value) if chance.random() < 0.7 else chance.choice([*row.values])
                extra_specs[row.extra_spec] = again
        for trait in chance.sample(traits, chance.choice((0, 0, 0, 1, 2))):
            if chance.random() < 0.5:
                properties[f"trait:{trait}"] = "required"
            else:
                suffix = chance.choice(("", "", "1", "_gpu"))
                extra_specs[f"trait{suffix}:{trait}"] = chance.choice(("required", "forbidden", "preferred"))
        for name in chance.sample(_CLASSES, chance.choice((0, 0, 0, 1, 2))):
            extra_specs[f"resources{chance.choice(('', '1', '_gpu'))}:{name}"] = chance.choice("0112")
        if chance.random() < 0.1:
            extra_specs[chance.choice(("group_policy", "deploy-config:raid", "hw:maxphysaddr_bits"))] = "none"
        yield {
            "properties": properties if chance.random() < 0.95 else None,
            "extra_specs": extra_specs,
            "disk_format": chance.choice((None, "qcow2", "vmdk", "iso", "odd")),
            "is_bfv": chance.random() < 0.2,
            "groups": chance.sample(_GROUPS, chance.choice((0, 0, 0, 1, 2))),
            "root_required": chance.sample(traits, chance.choice((0, 0, 0, 0, 1))),
            "exists": chance.random() < 0.2,
        }


class _Answers:
    """The answers of the checkout that is imported."""

    def __init__(self) -> None:
        from nova import objects  # noqa: PLC0415 - the process that compares needs no Nova

        import os_prefilter as ours  # noqa: PLC0415
        from tests.support.hosts import few_libvirt_hosts, other_hosts  # noqa: PLC0415

        objects.register_all()
        self._ours, self._nova = ours, objects
        reject = type(ours.Options().unknown_values)("reject")
        every: dict[str, Any] = {"reported_traits": ("*",)}
        names = [
            "compute_status",
            "image_type",
            "image_metadata",
            "hpet",
            "packed_virtqueue",
            "sound_model",
            "ephemeral_encryption",
            "accelerators",
            "tpm_secret_security",
            "deploy_config",
            "preferences",
        ]
        emulated = frozenset(("aarch64", "i686", "riscv64"))
        facts = {"owner_is_reported": lambda _context: True}
        options = (
            ours.Options(),
            ours.Options(**every, emulated_architectures=emulated),
            ours.Options(**every, unknown_values=reject, preferred_properties=("hw_vif_model", "time_hpet")),
            ours.Options(reported_traits=("CUSTOM_COMPUTE_*",), foreign_owner_traits=("OWNER_CYBORG", "CUSTOM_OTHER")),
        )
        self._pipelines = [ours.Pipeline.from_names(*names, "owner", options=each, facts=facts) for each in options]
        self._hosts = [*list(few_libvirt_hosts())[::3], *other_hosts()]

    def to(self, number: int, request: Mapping[str, Any]) -> str:
        """Return the answers to one request as a line."""
        ours, specs = self._ours, (self._own(request), self._novas(request))
        pipeline = self._pipelines[number % len(self._pipelines)]
        found: list[object] = []
        for spec in specs:
            found.append(self._try(lambda spec=spec: _decided(pipeline.decide(spec))))
            found.append(self._try(lambda spec=spec: ours.allocation_candidates_query(spec)))
        for host in (self._hosts[(number * 2 + each) % len(self._hosts)] for each in range(2)):
            found.append(self._try(lambda host=host: [str(each) for each in ours.unsupported(specs[0], host)]))
            found.append(self._try(lambda host=host: str(ours.guest_settings(specs[1], host))))
        for spec in specs:
            found.append(self._try(lambda spec=spec: _decided(pipeline.apply(spec))))
            found += [sorted(spec.root_required), sorted(spec.root_forbidden), sorted(spec.flavor.extra_specs.items())]
            groups = spec.requested_resources
            found.append([[sorted(each.required_traits), sorted(each.forbidden_traits)] for each in groups])
            found.append(self._try(lambda spec=spec: ours.allocation_candidates_query(spec)))
        return json.dumps(found, default=str)

    @staticmethod
    def _try(call: Any) -> object:
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - the answer as well
            return f"{type(error).__name__}: {error}; {getattr(error, 'filter', '')}"

    def _own(self, request: Mapping[str, Any]) -> Any:
        ours, properties = self._ours, request["properties"]
        return ours.RequestSpec(
            flavor=ours.Flavor(1, 512, 1, extra_specs=dict(request["extra_specs"])),
            image=None if properties is None else ours.Image(dict(properties), request["disk_format"]),
            is_bfv=request["is_bfv"],
            requested_resources=[ours.RequestGroup(suffix, {"FPGA": 1}) for suffix in request["groups"]],
            pci_request_ids=frozenset(("pci",)),
            request_level_params=ours.RequestLevelParams(set(request["root_required"]), set()),
            requested_destination=ours.Destination() if request["exists"] else None,
        )

    def _novas(self, request: Mapping[str, Any]) -> Any:
        objects, properties = self._nova, request["properties"] or {}
        image = objects.ImageMeta.from_dict({"disk_format": request["disk_format"], "properties": {}})
        for name, value in properties.items():
            try:
                some = objects.ImageMeta.from_dict({"disk_format": None, "properties": {name: value}}).properties
            except Exception:  # noqa: BLE001, S112 - Nova's API refuses it
                continue
            for field in some.obj_what_changed():
                setattr(image.properties, field, getattr(some, field))
        extra_specs = dict(request["extra_specs"])
        flavor = objects.Flavor(
            vcpus=1, memory_mb=512, root_gb=1, ephemeral_gb=0, swap=0, extra_specs=extra_specs, name="x"
        )
        groups = [objects.RequestGroup(requester_id=each, resources={"FPGA": 1}) for each in request["groups"]]
        destination = objects.Destination(allow_cross_cell_move=True) if request["exists"] else None
        return objects.RequestSpec(
            flavor=flavor,
            image=image,
            is_bfv=request["is_bfv"],
            requested_resources=groups,
            pci_requests=None,
            request_level_params=objects.RequestLevelParams(
                root_required=set(request["root_required"]), root_forbidden=set(), same_subtree=[]
            ),
            requested_destination=destination,
        )


def _decided(decision: Any) -> list[object]:
    return [
        [str(each) for each in decision.requirements],
        [list(each.properties) for each in decision.requirements],
        [str(each) for each in decision.preferences],
        [f"{each} {each.warn} {each.waits}" for each in decision.notes],
    ]


def _answer(path: Path) -> None:
    logging.disable()
    answers = _Answers()
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            _say(answers.to(number, json.loads(line)))


def _say(text: str) -> None:
    print(text)  # noqa: T201 - a command


def _run(checkout: Path, path: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve()), "--answer", str(path)],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": f"{checkout / 'src'}:{checkout}", "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        text=True,
    )


def _differences(request: str, old: str, new: str) -> str:
    pairs = zip(json.loads(old), json.loads(new), strict=True)
    return "\n".join([request, *(f"  old: {one}\n  new: {other}" for one, other in pairs if one != other)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare; return 1 if an answer differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkouts", nargs="*", type=Path)
    parser.add_argument("--count", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--answer", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.answer:
        _answer(given.answer)
        return 0
    lines = [json.dumps(each) for each in requests(given.count, given.seed)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "requests.jsonl"
        path.write_text("\n".join(lines), encoding="utf-8")
        old, new = (_run(each.resolve(), path) for each in given.checkouts)
        answers = list(zip(lines, old.stdout or (), new.stdout or (), strict=True))
    differ = [answer for answer in answers if answer[1] != answer[2]]
    for answer in differ[:_SHOWN]:
        _say(_differences(*answer))
    refused = sum(any(name in answer[1] for name in _REFUSALS) for answer in answers)
    _say(f"{len(answers):,} requests, {refused:,} refused by one of these, {len(differ):,} differ")
    return 1 if differ or old.wait() or new.wait() else 0


if __name__ == "__main__":
    sys.exit(main())
