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

"""Schedulers at full speed while their rules are replaced and facts expire: two minutes with ``tox -e exhaustive``.

Images and flavors are shared by all requests of a kind, as a scheduler's threads share what they cache: a request that
changed one of them would change the decisions of all others. Every third request has an image of its own.
"""

import copy
import gc
import itertools
import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from nova import objects
from oslo_config import cfg

from os_prefilter import Flavor, Image, RequestSpec, allocation_candidates_query
from os_prefilter.service import Service
from tests.conftest import conf_with, pipeline_of, times
from tests.support.nova_objects import nova_flavor
from tests.support.rule_texts import rule, rules_text, settle

SECONDS = float(times(2))
_PATIENCE = 60.0
"""Seconds after which a scheduler that does not use new rules, or does not end, is stuck."""
_THREADS, _FEWEST_REQUESTS, _FEWEST_VERSIONS = 8, 500, 5
_MANY = 2_500
_BLOCKS = 0.2
"""Of memory that may stay for each of so many images; what keeps one has several."""

_FILTERS = [
    *("image_metadata", "hpet", "owner", "image_type", "compute_status", "accelerators", "packed_virtqueue"),
    *("ephemeral_encryption", "sound_model", "rules"),
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
_BROKEN = (b"rules:\n- {name: a\n", b"rules: [{name: a, when: {}, require: [x]}]\n", b"\xff\xfe", b"", b"rules: 7\n")
_VERSION = re.compile(r"CUSTOM_V(\d{7})_")

Kind = Callable[[int], Any]
"""(number) -> a request spec; those of a kind differ in the number of their image only."""


def _requests() -> list[Kind]:
    """Return each image with each flavor, with an image of its own or shared, Nova's objects and ours."""
    kinds: list[Kind] = []
    for properties, extra_specs in itertools.product(_IMAGES, _FLAVORS):
        image = Image(properties, disk_format="qcow2")
        flavor = Flavor(vcpus=1, memory_mb=512, root_gb=1, extra_specs=extra_specs)
        novas = objects.ImageMeta.from_dict({"disk_format": "qcow2", "properties": properties})
        nova = nova_flavor(extra_specs=extra_specs)
        kinds += [
            lambda _number, flavor=flavor, image=image: RequestSpec(flavor, image),  # type: ignore[misc]
            lambda _number, flavor=nova, image=novas: objects.RequestSpec(flavor=flavor, image=image),  # type: ignore[misc]
            partial(_with_own_image, properties, flavor),
        ]
    return kinds


def _own(number: int) -> str:
    return f"os-{number % 10_000_000:07}"


def _with_own_image(properties: dict[str, str], flavor: Flavor, number: int) -> RequestSpec:
    # An unknown model becomes a note, with what the tenant wrote in it.
    own = {"os_version": _own(number), "hw_usb_model": _own(number)}
    return RequestSpec(flavor, Image({**properties, **own}, disk_format="qcow2"))


def _version_text(version: int) -> bytes:
    """Return the rules of a version: several may apply to one request, and every other version has one more."""
    when = {"A": "{image_property: os_distro, is: windows}", "B": "{extra_spec: 'tier:class', is: gold}"}
    if version % 2:
        when["C"] = "{image_property: hw_machine_type, present: true}"
    rules = (rule(f"rule-{name}", each, [f"CUSTOM_V{version:07}_{name}"]) for name, each in when.items())
    return rules_text(*rules).encode()


def _pipeline_on(folder: Path, compute_version: Callable[[Any], int]) -> tuple[cfg.ConfigOpts, Service]:
    """Return a scheduler's configuration, with facts that expire at once, and its pipeline."""
    options: dict[str, Any] = {"enabled_filters": _FILTERS, "rules_dirs": [str(folder)], "facts_interval": 0.01}
    conf = conf_with(**options, reported_traits=["*"])
    return conf, Service.from_conf(conf, {"minimum_compute_version": compute_version})


def _answer_of(pipeline: Service, request_spec: Any) -> str:
    """Apply the filters; return all that a scheduler gets: the requirements, the notes, and the query."""
    decision, query = pipeline.apply(request_spec), allocation_candidates_query(request_spec)
    return "\n".join([*map(str, decision.requirements), *map(str, decision.notes), query])


def _answers(folder: Path, version: int, kinds: Sequence[Kind]) -> list[str]:
    """Return what each kind of request must be answered with a version of the rules, by a pipeline of one thread."""
    folder.mkdir()
    (folder / "rules.yaml").write_bytes(_version_text(version))
    settle(folder / "rules.yaml")
    _conf, pipeline = _pipeline_on(folder, lambda _context: 1000)
    return [_VERSION.sub("CUSTOM_V_", _answer_of(pipeline, kind(0))) for kind in kinds]


class _Scheduler:
    """A pipeline that threads share, and the operator who replaces its rules."""

    def __init__(self, folder: Path, kinds: Sequence[Kind]) -> None:
        self._kinds = kinds
        self._answers = [_answers(folder / f"version-{version}", version, kinds) for version in range(2)]
        assert 10 < sum("CUSTOM_V_" in each for each in self._answers[0]) < len(kinds)
        self._rules = folder / "rules"
        self._rules.mkdir()
        asked = itertools.count()

        def compute_version(_context: Any) -> int:
            # Now and then it cannot be asked for: the last known value stays.
            if next(asked) % 7 == 3:
                raise ConnectionError("a database is restarted")
            return 1000

        self._conf, self._pipeline = _pipeline_on(self._rules, compute_version)
        self.newest = 0
        """The version that is about to be written: no decision can be of a later one."""
        self.seen = 0
        """The latest version that a decision was of."""
        self.done = [0] * _THREADS
        self.problems: list[str] = []
        self.stopping = threading.Event()

    def publish(self) -> None:
        """Replace the rules by the next version; every fifth time by what is none before."""
        if self.newest % 5 == 0:
            self._replace(_BROKEN[self.newest // 5 % len(_BROKEN)], old=False)
        self.newest += 1
        self._replace(_version_text(self.newest), old=self.newest % 2 == 0)

    def _replace(self, content: bytes, *, old: bool) -> None:
        """Replace the file atomically: one that looks old is found by itself, of another the scheduler is told."""
        new, path = self._rules / "new", self._rules / "rules.yaml"
        new.write_bytes(content)
        if old:
            settle(new)
        new.replace(path)
        if old:
            settle(path)
        else:
            # As a service does on SIGHUP.
            self._conf.mutate_config_files()

    def work(self, index: int) -> None:
        for number in itertools.count(index * 7):
            if self.stopping.is_set() or self.problems:
                return
            try:
                self._answer(number)
            except BaseException as error:  # noqa: BLE001 - the test reads it
                self.problems.append(f"request {number}: {type(error).__name__}: {error}")
            self.done[index] += 1

    def _answer(self, number: int) -> None:
        """Answer a request as a single version of the rules does, one in use between its begin and its end."""
        kind, lowest = number % len(self._kinds), self.seen
        answer = _answer_of(self._pipeline, self._kinds[kind](number))
        versions = set(map(int, _VERSION.findall(answer)))
        assert len(versions) <= 1, f"rules of versions {sorted(versions)} in one: {answer}"
        version = max(versions, default=0)
        of_versions = [self._answers[version % 2]] if version else self._answers
        expected = [each[kind].replace(_own(0), _own(number)) for each in of_versions]
        assert _VERSION.sub("CUSTOM_V_", answer) in expected
        if version:
            assert lowest <= version <= self.newest, f"version {version} after {lowest}, {self.newest} is written"
            self.seen = max(self.seen, version)


@contextmanager
def _errors_logged() -> Iterator[list[str]]:
    """Yield the errors that are logged, but for those of broken rules; pytest keeps no records, which would grow."""
    log, errors = logging.getLogger("os_prefilter"), list[str]()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.ERROR and "Failed to reload the request rules" not in record.getMessage():
                errors.append(record.getMessage())

    handler = Handler()
    propagate, log.propagate = log.propagate, False
    log.addHandler(handler)
    try:
        yield errors
    finally:
        log.removeHandler(handler)
        log.propagate = propagate


@pytest.fixture
def _turns_are_short() -> Iterator[None]:
    """Let threads take turns ten times as often: more that can happen in between, and no long waits."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(before / 10)
    yield
    sys.setswitchinterval(before)


def _parts(request_spec: Any) -> list[Any]:
    parts = (request_spec.flavor, request_spec.image)
    return [each.obj_to_primitive() if hasattr(each, "obj_to_primitive") else copy.deepcopy(each) for each in parts]


@pytest.mark.usefixtures("_turns_are_short")
def test_threads_sharing_a_pipeline_decide_like_a_single_thread(tmp_path: Path) -> None:
    """Each decision is that of one version of the rules, in use at that time; nothing shared changes, none waits."""
    kinds = _requests()
    before = [repr(_parts(kind(0))) for kind in kinds]
    with _errors_logged() as errors:
        scheduler = _Scheduler(tmp_path, kinds)
        scheduler.publish()
        threads = [threading.Thread(target=scheduler.work, args=(each,), daemon=True) for each in range(_THREADS)]
        for thread in threads:
            thread.start()
        start = time.monotonic()
        try:
            while not scheduler.problems:
                scheduler.publish()
                begun = time.monotonic()
                while scheduler.seen < scheduler.newest and not scheduler.problems:
                    assert time.monotonic() < begun + _PATIENCE, f"version {scheduler.newest} is not used"
                    time.sleep(0.005)
                enough = sum(scheduler.done) > _FEWEST_REQUESTS and scheduler.newest > _FEWEST_VERSIONS
                if time.monotonic() - start >= SECONDS and enough:
                    break
        finally:
            scheduler.stopping.set()
        for thread in threads:
            thread.join(_PATIENCE)
            assert not thread.is_alive()
    assert (scheduler.problems + errors, [repr(_parts(kind(0))) for kind in kinds]) == ([], before)


@pytest.mark.parametrize("kind", ["image", "flavor", "both in Nova's objects"])
def test_memory_does_not_grow_with_distinct_images_and_flavors(kind: str) -> None:
    """After as many that filled whatever is kept, as many more need no memory."""
    pipeline = pipeline_of(*(name for name in _FILTERS if name != "rules"))
    novas = objects.ImageMeta.from_dict({"properties": {}})

    def ask(number: int) -> None:
        properties: dict[str, object] = {"hw_vif_model": f"model-{number}", "os_version": f"{number}"}
        extra_specs = {"hw:cpu_policy": str(number), f"trait{number}:CUSTOM_A": "required"}
        if kind == "image":
            pipeline.apply(RequestSpec(Flavor(vcpus=1), Image(properties)))
        elif kind == "flavor":
            pipeline.apply(RequestSpec(Flavor(vcpus=1, memory_mb=number, extra_specs=extra_specs)))
        else:
            novas.properties.os_version = novas.properties.img_owner_id = f"{number}"
            pipeline.apply(objects.RequestSpec(flavor=nova_flavor(extra_specs=extra_specs), image=novas))

    blocks = [0]
    with _errors_logged():
        for batch in (range(_MANY), range(_MANY, 2 * _MANY)):
            for number in batch:
                ask(number)
            gc.collect()
            blocks.append(sys.getallocatedblocks())
    _, before, after = blocks
    assert after - before < _MANY * _BLOCKS, f"{(after - before) / _MANY:.1f} blocks of memory for each {kind}"
