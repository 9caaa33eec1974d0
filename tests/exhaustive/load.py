"""Schedulers at full speed while their rules are replaced, and the response that each request must get meanwhile.

Images and flavors are shared by all requests of a kind, as a scheduler's threads share what they cache: a request that
changed one of them would change the decisions of all others. Every third request has an image of its own.
"""

import faulthandler
import gc
import itertools
import logging
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from nova import objects
from oslo_config import cfg

from os_prefilter import Decision, Flavor, Image, Pipeline, RequestSpec, allocation_candidates_query
from os_prefilter.conf import GROUP, register_opts
from tests.support.nova_objects import nova_flavor
from tests.support.rule_texts import rule, rules_text, settle

PATIENCE = 60.0
"""Seconds after which a scheduler that does not use new rules, or does not end, is stuck."""
GROWTH = 16.0
"""MiB by which a process may grow in the second half of the time."""
_FEWEST_REQUESTS, _FEWEST_VERSIONS = 500, 5
_MEBIBYTE = 2**20

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


_BROKEN = (b"rules:\n- {name: a\n", b"rules: [{name: a, when: {}, require: [x]}]\n", b"\xff\xfe", b"", b"rules: 7\n")

# So many digits has the number of a request.
_MOST_NUMBERS = 10_000_000


class Operator:
    """Replaces a file of rules again and again, and now and then by one that is broken.

    Files are replaced atomically. Every second one looks old, so that a scheduler finds it by itself; of the others it
    must be signalled, as of a broken one.
    """

    def __init__(self, folder: Path, tell: Callable[[], None]) -> None:
        self.folder = folder
        self.tell = tell
        self.newest = 0
        self.broken = 0

    def publish(self, newest: Callable[[int], None] = lambda _version: None) -> int:
        """Replace the rules by the next version; return its number. ``newest`` gets it first."""
        self.newest += 1
        newest(self.newest)
        self._replace(version_text(self.newest).encode(), old=self.newest % 2 == 0)
        if self.newest % 2:
            self.tell()
        return self.newest

    def spoil(self) -> None:
        """Replace the rules by what is none."""
        self._replace(_BROKEN[self.broken % len(_BROKEN)], old=False)
        self.broken += 1
        self.tell()

    def _replace(self, content: bytes, *, old: bool) -> None:
        descriptor, name = tempfile.mkstemp(dir=self.folder)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        if old:
            settle(Path(name))
        Path(name).replace(self.folder / "rules.yaml")
        if old:
            settle(self.folder / "rules.yaml")


class Scheduler:
    """What the threads of one process share: a pipeline, and what is known of the versions of the rules.

    :param newest: the version that is about to be written: no decision can be of a later one
    :param note: gets the version that is in use when it changes
    """

    def __init__(
        self,
        answers: Answers,
        folder: Path,
        newest: Callable[[], int],
        note: Callable[[int], None] = lambda _seen: None,
    ) -> None:
        asked = itertools.count()

        def compute_version(_context: Any) -> int:
            # Now and then it cannot be asked for: the last known value stays.
            if next(asked) % 7 == 3:
                raise ConnectionError("a database is restarted")
            return 1000

        self.conf, self.pipeline = pipeline_on(folder, minimum_compute_version=compute_version)
        self.answers = answers
        self.newest = newest
        self.note = note
        self.seen = 0
        """The latest version that a decision was of."""
        self.problems: list[str] = []
        self.stopping = threading.Event()

    def reload(self) -> None:
        """Read the configuration again, as a service does on SIGHUP."""
        self.conf.mutate_config_files()

    def work(self, done: MutableSequence[int], index: int) -> None:
        """Answer one request after the other until it is stopped; count them in ``done[index]``.

        Each answer must be one that the rules of a single version give, no older than what was seen before the request
        and no newer than what was written at its end.
        """
        for number in itertools.count(index * 7):
            if self.stopping.is_set() or self.problems:
                return
            try:
                self.answer(number % _MOST_NUMBERS)
            except BaseException as error:  # noqa: BLE001 - reported at the end of the run
                self.problems.append(f"{type(error).__name__}: {error}")
                return
            done[index] += 1

    def answer(self, number: int) -> None:
        """Answer one request, and check the answer."""
        kinds = self.answers.kinds
        lowest = self.seen
        answer = answer_of(self.pipeline, kinds[number % len(kinds)].request(number))
        version = self.answers.version_of(number, answer)
        if version is None:
            return
        assert lowest <= version <= self.newest(), f"version {version} after {lowest}, when {self.newest()} is written"
        if version > self.seen:
            self.seen = version
            self.note(version)


class Stuck(Exception):
    """A scheduler made no progress; the message has the stacks of all threads."""


def stacks_here() -> str:
    """Return the stacks of all threads of this process."""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return file.read()


def memory(*processes: int) -> float:
    """Return the resident memory of processes in MiB, of this one if none is named."""
    gc.collect()
    return sum(psutil.Process(each).memory_info().rss for each in processes or (os.getpid(),)) / _MEBIBYTE


@contextmanager
def logging_counted() -> Iterator[list[str]]:
    """Keep what the library logs out of the test's own records, which would grow; yield the errors.

    Broken rules are errors that are expected.
    """
    log = logging.getLogger("os_prefilter")
    errors: list[str] = []

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


@contextmanager
def switching_often() -> Iterator[None]:
    """Let threads take turns ten times as often as usual: more that can happen in between, and no long waits."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(before / 10)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@dataclass
class Figures:
    """What a run saw."""

    requests: int = 0
    versions: int = 0
    """Of the rules; all of them were seen in use."""
    broken: int = 0
    """Files that were not rules."""
    seconds: float = 0.0
    start: float = 0.0
    """Resident memory in MiB once all is warm: after a tenth of the time."""
    half: float = 0.0
    end: float = 0.0
    problems: list[str] = field(default_factory=list)
    """Wrong answers, and exceptions: there must be none."""

    def __str__(self) -> str:
        return (
            f"{self.requests:,} requests in {self.seconds:.0f} s, {self.requests / self.seconds:,.0f} a second; "
            f"{self.versions:,} versions of the rules and {self.broken:,} broken files; "
            f"memory {self.start:.1f} MiB at the start, {self.half:.1f} at half, {self.end:.1f} at the end; "
            f"{len(self.problems)} problems"
        )


class Load:
    """Runs the operator beside schedulers for some seconds, and measures.

    :param done: the requests that each scheduler has decided
    :param seen: the version that all schedulers have seen, at least
    :param failed: whether one has a problem
    """

    def __init__(
        self,
        operator: Operator,
        done: Sequence[int],
        seen: Callable[[], int],
        failed: Callable[[], bool],
        stacks: Callable[[], str] = stacks_here,
    ) -> None:
        self.operator = operator
        self.newest: Callable[[int], None] = lambda _version: None
        self.processes: tuple[int, ...] = ()
        self._done = done
        self._seen = seen
        self._failed = failed
        self._stacks = stacks

    def run(self, seconds: float) -> Figures:
        """Replace the rules until the time is over, on a slow machine a while longer; return the figures.

        :raises Stuck: a scheduler stands still, or does not use new rules
        """
        figures, start, before = Figures(), time.monotonic(), sum(self._done)
        marks = {"start": seconds / 10, "half": seconds / 2}
        for number in itertools.count(1):
            if number % 5 == 1:
                self.operator.spoil()
            version = self.operator.publish(self.newest)
            self._wait_until(lambda version=version: self._seen() >= version)  # type: ignore[misc]
            passed = time.monotonic() - start
            for name in [name for name, at in marks.items() if passed >= at]:
                del marks[name]
                setattr(figures, name, memory(*self.processes))
            enough = sum(self._done) - before > _FEWEST_REQUESTS and number > _FEWEST_VERSIONS
            if self._failed() or (passed >= seconds and not marks and enough):
                break
        figures.end = memory(*self.processes)
        figures.seconds = time.monotonic() - start
        figures.requests = sum(self._done) - before
        figures.versions, figures.broken = self.operator.newest, self.operator.broken
        return figures

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not (condition() or self._failed()):
            if time.monotonic() > deadline:
                raise Stuck(f"Version {self.operator.newest} is not used after {PATIENCE:.0f} s.\n{self._stacks()}")
            time.sleep(0.005)


def in_threads(folder: Path, answers: Answers, seconds: float, threads: int = 8) -> Figures:
    """Run schedulers in threads that share one pipeline."""
    rules = folder / "rules"
    rules.mkdir()
    operator = Operator(rules, lambda: None)
    operator.publish()
    with logging_counted() as errors, switching_often():
        scheduler = Scheduler(answers, rules, lambda: operator.newest)
        operator.tell = scheduler.reload
        done = [0] * threads
        workers = [
            threading.Thread(target=scheduler.work, args=(done, index), name=f"scheduler-{index}", daemon=True)
            for index in range(threads)
        ]
        for worker in workers:
            worker.start()
        load = Load(operator, done, lambda: scheduler.seen, lambda: bool(scheduler.problems))
        try:
            figures = load.run(seconds)
        finally:
            scheduler.stopping.set()
        for worker in workers:
            worker.join(PATIENCE)
            if worker.is_alive():
                raise Stuck(stacks_here())
    figures.problems = scheduler.problems + errors
    return figures
