"""Schedulers at full speed while the rules are replaced and facts expire: the law of each is in its test's name.

Some seconds by itself, two minutes with ``tox -e exhaustive``.
"""

import copy
import gc
import json
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from nova import objects

from os_prefilter import Flavor, Image, RequestSpec
from tests.conftest import pipeline_of, times
from tests.exhaustive.load import (
    FILTERS,
    GROWTH,
    Answers,
    Figures,
    Kind,
    answer_of,
    in_threads,
    logging_counted,
    pipeline_on,
    requests,
)
from tests.exhaustive.load_processes import PROCESSES
from tests.support.nova_objects import nova_flavor
from tests.support.processes import ran

ROOT = Path(__file__).parent.parent.parent
SECONDS = float(times(2))
_MANY = 2_500
_BLOCKS = 0.2
"""Of memory that may stay for each of so many images; what keeps one has several."""


@pytest.fixture(scope="module")
def kinds() -> list[Kind]:
    return requests()


def _check(figures: Figures, processes: int) -> None:
    assert figures.problems == []
    assert figures.versions > 3
    assert figures.broken
    assert figures.requests > 8 * 50
    # In seconds this finds only what is gross; in ten minutes, 150 bytes a request.
    assert figures.end - figures.half < GROWTH * processes, str(figures)


def test_threads_sharing_a_pipeline_decide_like_a_single_thread(tmp_path: Path, kinds: list[Kind]) -> None:
    """Each decision is that of one version of the rules, in use at that time; nothing shared changes, none waits."""
    answers = Answers(kinds, tmp_path)
    assert 10 < answers.affected < len(kinds)
    before = [repr(_parts(kind.request(0))) for kind in kinds]
    figures = in_threads(tmp_path, answers, SECONDS)
    _check(figures, 1)
    assert [repr(_parts(kind.request(0))) for kind in kinds] == before


def _parts(request_spec: Any) -> list[Any]:
    """Return what requests of a kind share, as plain values."""
    parts = (request_spec.flavor, request_spec.image)
    return [each.obj_to_primitive() if hasattr(each, "obj_to_primitive") else copy.deepcopy(each) for each in parts]


def test_forked_processes_reloading_on_sighup_decide_like_a_single_thread(tmp_path: Path) -> None:
    """They are forked after the pipeline is made, as those of nova-scheduler."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.exhaustive.load_processes", str(tmp_path), str(SECONDS)]
    done = ran(command, folder=ROOT, seconds=SECONDS * 2 + 300)
    assert done.returncode == 0, done.stderr
    _check(Figures(**json.loads(done.stdout)), PROCESSES)


def test_decision_does_not_depend_on_the_requests_before_it(tmp_path: Path) -> None:
    """Also those whose images differ in a number only; each twice at least."""
    kinds = requests()
    answers = Answers(kinds, tmp_path)
    _conf, pipeline = pipeline_on(tmp_path / "version-1")
    order = [number for number in range(4 * len(kinds)) for _ in range(2)]
    Random(7).shuffle(order)  # noqa: S311 - the same each time
    with logging_counted():
        for number in order:
            assert answers.version_of(number, answer_of(pipeline, kinds[number % len(kinds)].request(number))) in (
                None,
                1,
            )


@pytest.mark.parametrize("kind", ["image", "flavor", "both in Nova's objects"])
def test_memory_does_not_grow_with_distinct_images_and_flavors(kind: str) -> None:
    """After as many that filled whatever is kept, as many more need no memory."""
    pipeline = pipeline_of(*(name for name in FILTERS if name != "rules"))
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
    with logging_counted():
        for batch in (range(_MANY), range(_MANY, 2 * _MANY)):
            for number in batch:
                ask(number)
            gc.collect()
            blocks.append(sys.getallocatedblocks())
    _, before, after = blocks
    assert after - before < _MANY * _BLOCKS, f"{(after - before) / _MANY:.1f} blocks of memory for each {kind}"


class TestLoadChecksDetectFaults:
    """What they are to find is found."""

    def test_decision_mixing_two_rule_versions_is_detected(self, tmp_path: Path, kinds: list[Kind]) -> None:
        answers = Answers(kinds, tmp_path)
        with pytest.raises(AssertionError, match="versions \\[1, 2\\] in one"):
            answers.version_of(0, "CUSTOM_V0000001_A CUSTOM_V0000002_B")

    def test_decision_of_another_request_is_detected(self, tmp_path: Path, kinds: list[Kind]) -> None:
        answers = Answers(kinds, tmp_path)
        with pytest.raises(AssertionError, match="instead of"):
            answers.version_of(1, "limit=1000")
