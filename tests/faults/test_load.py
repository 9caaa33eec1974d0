"""Schedulers at full speed while the rules are replaced and facts expire: the law of each is in its test's name.

Some seconds here, two minutes with ``tox -e exhaustive``; tests/benchmarks/soak.py takes ten minutes for each.
"""

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import times
from tests.faults.load import GROWTH, Answers, Figures, Kind, in_threads, requests
from tests.faults.load_processes import PROCESSES
from tests.support.processes import ran

ROOT = Path(__file__).parent.parent.parent
SECONDS = float(times(2))


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
    command = [sys.executable, "-W", "ignore", "-m", "tests.faults.load_processes", str(tmp_path), str(SECONDS)]
    done = ran(command, folder=ROOT, seconds=SECONDS * 2 + 300)
    assert done.returncode == 0, done.stderr
    _check(Figures(**json.loads(done.stdout)), PROCESSES)


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
