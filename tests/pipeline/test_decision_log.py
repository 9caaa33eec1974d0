"""The history of decisions: what a line has, where it goes, and that no request fails because of it."""

import errno
import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from os_prefilter import Flavor, Image, Pipeline, RequestSpec
from os_prefilter.common.errors import FilterFailed, RequestRejected
from os_prefilter.common.trait_names import trait_named
from os_prefilter.filters.loading import LoadedFilter
from os_prefilter.operators.decisions import DecisionFile, decision_files
from os_prefilter.pipeline.decision import Decision
from os_prefilter.pipeline.decision_log import MAX_BYTES, DecisionLog
from os_prefilter.request.requirements import Note, Preference, Requirements, require
from tests.conftest import pipeline_of, spec_of

_SERVER = "0c0a4b6e-6c3b-4d2a-9d0f-0a3f4a1f2b77"
_REQUEST = "req-1b0d6a72-9f0e-4f5e-8a53-3d0f2f0f9f10"
_CONTEXT = SimpleNamespace(request_id=_REQUEST, user_name="alice", user_id="4711")


class _ServerSpec(RequestSpec):
    """A request with the server's UUID, as Nova's has it."""

    instance_uuid = _SERVER


def _spec(**properties: str) -> RequestSpec:
    return _ServerSpec(Flavor(vcpus=1, memory_mb=512), Image(properties))


def _pipeline(folder: object = "", most: int = 10, **options: Any) -> Pipeline:
    options = {"decision_history": most, "decision_history_dir": str(folder), "reported_traits": [], **options}
    return pipeline_of("image_metadata", **options)


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text("ascii").splitlines()]


@contextmanager
def _largest_file(size: int) -> Iterator[None]:
    """Let the kernel refuse to write more into any file of this process, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_line_has_requirements_sources_and_identifiers_and_no_name_of_a_user(tmp_path: Path) -> None:
    _pipeline(tmp_path).apply(_spec(hw_vif_model="e1000e", os_admin_user="alice"), _CONTEXT)
    (line,) = _lines(tmp_path / "decisions-0.jsonl")
    assert line.pop("time").endswith("Z")
    assert line == {
        "decision": 1,
        "worker": os.getpid(),
        "request": _REQUEST,
        "server": _SERVER,
        "result": "passed",
        "reason": None,
        "hosts": None,
        "requirements": [
            {
                "trait": "COMPUTE_NET_VIF_MODEL_E1000E",
                "required": True,
                "scope": "root",
                "filter": "image_metadata",
                "source": "image property hw_vif_model=e1000e",
            }
        ],
        "preferences": [],
        "aggregates": [],
        "notes": [],
        "left_out": 0,
    }


def test_cached_decision_is_recorded_with_the_identifiers_of_its_own_request(tmp_path: Path) -> None:
    """Its requirements are made into text once."""
    described = []

    class Counting(DecisionLog):
        @staticmethod
        def describe(decision: Decision) -> str:
            described.append(decision)
            return DecisionLog.describe(decision)

    pipeline = _pipeline()
    pipeline.history = Counting(10, str(tmp_path))
    for number in range(3):
        pipeline.apply(spec_of({"hw_vif_model": "igb"}), SimpleNamespace(request_id=f"req-{number}"))
    assert len(described) == 1
    lines = _lines(tmp_path / "decisions-0.jsonl")
    assert [line["request"] for line in lines] == ["req-0", "req-1", "req-2"]
    assert [line["requirements"][0]["trait"] for line in lines] == ["COMPUTE_NET_VIF_MODEL_IGB"] * 3


def test_rejected_request_is_recorded_with_its_reason_and_the_error_still_raised(tmp_path: Path) -> None:
    with pytest.raises(RequestRejected) as raised:
        _pipeline(tmp_path, unknown_values="reject").apply(_spec(hw_vif_model="a\nb"), _CONTEXT)
    (line,) = _lines(tmp_path / "decisions-0.jsonl")
    assert (line["result"], line["requirements"], line["server"]) == ("rejected", [], _SERVER)
    assert line["reason"] == str(raised.value)


@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt()])
def test_request_that_fails_is_recorded_with_the_error(error: BaseException, tmp_path: Path) -> None:
    def broken(_request: object) -> Requirements:
        raise error

    pipeline = Pipeline([LoadedFilter("broken", broken)])
    pipeline.history = DecisionLog(1, str(tmp_path))
    with pytest.raises((FilterFailed, KeyboardInterrupt)):
        pipeline.apply(_spec())
    (line,) = _lines(tmp_path / "decisions-0.jsonl")
    assert line["result"] == "failed"
    assert ("'broken' failed with ValueError" in line["reason"]) == isinstance(error, ValueError)


def test_expected_number_of_hosts_is_recorded(tmp_path: Path) -> None:
    DecisionLog(1, str(tmp_path)).record(_spec(), None, "", None, hosts=37)
    (line,) = _lines(tmp_path / "decisions-0.jsonl")
    assert (line["hosts"], line["request"]) == (37, None)


def test_without_a_directory_each_decision_is_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        _pipeline().apply(_spec(hw_vif_model="igb"), _CONTEXT)
    (text,) = (record.getMessage() for record in caplog.records if record.name.endswith("decision_log"))
    assert json.loads(text)["server"] == _SERVER


def test_without_the_option_nothing_is_recorded_and_a_useless_directory_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline_of("image_metadata").apply(_spec(), _CONTEXT)
    assert pipeline_of("image_metadata").history is None
    assert not caplog.records
    assert _pipeline(tmp_path, most=0).history is None
    assert [record.getMessage() for record in caplog.records] == [
        "[prefilter] decision_history_dir is set, but decision_history is 0: no decision is recorded."
    ]
    assert not list(tmp_path.iterdir())


def test_pipelines_for_questions_of_an_operator_record_nothing(tmp_path: Path) -> None:
    pipeline = _pipeline(tmp_path)
    for each in (pipeline.without_waiting(), pipeline.on_root_only()):
        each.apply(_spec(hw_vif_model="igb"))
    assert not list(tmp_path.iterdir())


def test_worker_keeps_its_latest_decisions_at_most_twice_over_restarts(tmp_path: Path) -> None:
    written = 0
    for _ in range(7):
        history = DecisionLog(10, str(tmp_path))
        for _ in range(8):
            history.record(_spec(), SimpleNamespace(request_id=written), "")
            written += 1
            kept = [int(each.request or 0) for file in decision_files(str(tmp_path)) for each in file]
            assert sorted(kept) == list(range(written - len(kept), written))
            assert min(written, 10) <= len(kept) <= 20
        del history
    assert {each.name for each in tmp_path.iterdir()} == {"decisions-0.jsonl", "decisions-0.jsonl.1"}


def test_each_forked_worker_writes_to_a_file_of_its_own_which_a_later_one_continues(tmp_path: Path) -> None:
    """As nova-scheduler does it; also where the parent has recorded something before."""
    script = f"""
import os
from types import SimpleNamespace
from os_prefilter.pipeline.decision_log import DecisionLog
history = DecisionLog(50, {str(tmp_path)!r})
history.record(None, None, "")
ready, go = os.pipe(), os.pipe()
for worker in range(3):
    if not os.fork():
        history.record(None, None, "")
        os.write(ready[1], b"x")
        os.close(go[1])
        os.read(go[0], 1)
        for number in range(20):
            history.record(None, SimpleNamespace(request_id=f"{{worker}}-{{number}}"), "")
        os._exit(0)
for worker in range(3): os.read(ready[0], 1)
os.close(go[1])
for worker in range(3): os.wait()
"""
    for run in (1, 2):
        subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
        files = decision_files(str(tmp_path))
        assert [file.path.name for file in files] == [f"decisions-{slot}.jsonl" for slot in range(4)]
        decisions = [list(file) for file in files]
        assert sorted(map(len, decisions)) == [run, 21 * run, 21 * run, 21 * run]
        assert [len({each.worker for each in of_file}) for of_file in decisions] == [run] * 4
        assert not any(file.damaged for file in files)


def test_files_are_readable_by_the_owner_and_the_group_only(tmp_path: Path) -> None:
    DecisionLog(1, str(tmp_path)).record(_spec(), None, "")
    assert (tmp_path / "decisions-0.jsonl").stat().st_mode & 0o137 == 0


@pytest.mark.parametrize("change", ["unlink", "rename"])
def test_file_that_was_removed_or_moved_is_created_again(change: str, tmp_path: Path) -> None:
    history = DecisionLog(10, str(tmp_path))
    path = tmp_path / "decisions-0.jsonl"
    history.record(_spec(), None, "")
    path.unlink() if change == "unlink" else path.rename(tmp_path / "moved")
    history.record(_spec(), None, "")
    assert len(_lines(path)) == 1


def test_full_disk_fails_no_request_and_is_logged_once_and_once_that_it_is_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The line that was cut in two is left out by the reader; the next one is whole."""
    caplog.set_level(logging.INFO)
    pipeline, path = _pipeline(tmp_path, most=100), tmp_path / "decisions-0.jsonl"
    pipeline.apply(_spec(hw_vif_model="igb"))
    size = path.stat().st_size
    with _largest_file(size + size // 2):
        for _ in range(5):
            assert pipeline.apply(_spec(hw_vif_model="igb")).requirements
    assert path.stat().st_size == size + size // 2
    pipeline.apply(_spec(hw_vif_model="igb"))
    pipeline.apply(_spec(hw_vif_model="igb"))
    file = DecisionFile(path)
    assert len(list(file)) == 3
    assert file.damaged == [2]
    texts = [record.getMessage() for record in caplog.records if record.name.endswith("decision_log")]
    assert len(texts) == 2
    assert texts[0].startswith("Failed to write a decision to the history, and those that follow are lost until")
    assert texts[1] == "The history of decisions is written again; 5 decisions were lost."


def test_directory_that_vanishes_fails_no_request_and_is_used_again_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "history"
    folder.mkdir()
    pipeline = _pipeline(folder)
    caplog.set_level(logging.INFO)
    for present in (True, False, True):
        if present:
            folder.mkdir(exist_ok=True)
        else:
            (folder / "decisions-0.jsonl").unlink()
            folder.rmdir()
        pipeline.apply(_spec(hw_vif_model="igb"))
        assert folder.exists() == present
    assert len(_lines(folder / "decisions-0.jsonl")) == 1
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_something_else_at_the_path_is_no_file_to_write_to_or_wait_for(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, other = tmp_path / "decisions-0.jsonl", tmp_path / "other"
    other.write_text("of another program\n")
    if kind == "link":
        path.symlink_to(other)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    pipeline = _pipeline(tmp_path)
    pipeline.apply(_spec())
    pipeline.apply(_spec())
    assert other.read_text() == "of another program\n"
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_line_is_bounded_and_printable_whatever_a_filter_returns(tmp_path: Path) -> None:
    text = '\x1b[31m\n\u2028é"\\' * 2_000

    def large(_request: object) -> Requirements:
        wish = Preference(trait_named(f"CUSTOM_{'B' * 240}"), text)
        found = Requirements(notes=(Note(text, text, warn=True),) * 110, preferences=(wish,) * 120)
        for number in range(300):
            found += require(f"CUSTOM_{'A' * 240}_{number}", text)
        return found

    pipeline = Pipeline([LoadedFilter("large", large)])
    pipeline.history = DecisionLog(10, str(tmp_path))
    pipeline.apply(_spec())
    pipeline.history.record(SimpleNamespace(instance_uuid=text), SimpleNamespace(request_id=text), "", ValueError(text))
    data = (tmp_path / "decisions-0.jsonl").read_bytes()
    first, second = data.decode("ascii").splitlines()
    assert max(len(first), len(second)) < MAX_BYTES
    assert first.isprintable()
    assert second.isprintable()
    assert json.loads(first)["left_out"] == 200 + 100 + 110
    assert len(json.loads(first)["requirements"]) == 100


def test_passwords_in_urls_are_not_recorded(tmp_path: Path) -> None:
    history = DecisionLog(10, str(tmp_path))
    history.record(_spec(), None, "", ValueError("http://admin:secret@host/ and " + "http://admin:secret@host/ " * 300))
    assert "secret" not in (tmp_path / "decisions-0.jsonl").read_text()


def test_ten_thousand_impossible_requests_leave_a_bounded_history(tmp_path: Path) -> None:
    pipeline = _pipeline(tmp_path, most=100, unknown_values="reject")
    for number in range(10_000):
        with pytest.raises(RequestRejected):
            pipeline.apply(spec_of({"hw_vif_model": f"{number}" * 1000}))
    assert [len(_lines(path)) for path in sorted(tmp_path.iterdir())] == [100, 100]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 200 * 2048


def test_full_disk_at_the_start_does_not_stop_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no small disk here to fill; the kernel's error is that of one."""

    def full(**_options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    assert _pipeline(tmp_path).history


def test_aggregates_of_a_decision_are_recorded_and_read_back(tmp_path: Path) -> None:
    uuid = "33333333-3333-4333-8333-333333333333"
    rows = [{"uuid": uuid, "name": "rack-1", "metadata": {"availability_zone": "north"}}]
    pipeline = Pipeline.from_names("availability_zone", facts={"aggregates": lambda _context: rows})
    pipeline.history = DecisionLog(10, str(tmp_path))
    pipeline.apply(_ServerSpec(Flavor(vcpus=1, memory_mb=512), availability_zone="north"))
    expected = {
        "aggregates": [uuid],
        "required": True,
        "filter": "availability_zone",
        "source": "availability zone 'north': aggregate rack-1",
    }
    (line,) = _lines(tmp_path / "decisions-0.jsonl")
    assert line["aggregates"] == [expected]
    (file,) = decision_files(str(tmp_path))
    assert [each.aggregates for each in file] == [[expected]]


def test_history_of_before_there_were_aggregates_can_be_read(tmp_path: Path) -> None:
    _pipeline(tmp_path).apply(_spec(hw_vif_model="e1000e"))
    path = tmp_path / "decisions-0.jsonl"
    path.write_text(path.read_text().replace('"aggregates": [], ', ""))
    (file,) = decision_files(str(tmp_path))
    assert [each.aggregates for each in file] == [[]]
    assert not file.damaged
