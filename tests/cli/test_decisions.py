# SPDX-License-Identifier: Apache-2.0

"""``decisions``: the history in the log of a service, complete or damaged, of
ours or of another logger.
"""

import io
import json
import logging
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from os_prefilter import Flavor, Image, RequestSpec
from os_prefilter.common.errors import RequestRejected
from os_prefilter.service.decision_log import LOGGER
from os_prefilter_tools.cli.diagnose import _with_history
from os_prefilter_tools.cli.main import main
from os_prefilter_tools.fleet.server import HostFilter
from os_prefilter_tools.operators.decisions import DecisionFile, decisions_in
from os_prefilter_tools.operators.diagnose import result
from tests.conftest import pipeline_of
from tests.support.commands import Capture, json_of, placed

_SERVERS = [
    f"0c0a4b6e-6c3b-4d2a-9d0f-0a3f4a1f2b7{number}" for number in range(3)
]
_MODELS = ("igb", "nosuch", "e1000e")
_START = '{"time": "'
_PREFIX = (
    "2026-11-03 14:02:11.123 1 INFO os_prefilter.decisions [None req-0 alice"
    " shop - - default default] "
)


@pytest.fixture
def log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Path:
    """Return a log with nothing but the decisions on three requests, of which
    the second is rejected.
    """
    caplog.set_level(logging.INFO)
    pipeline = pipeline_of(
        "image_metadata",
        decision_history=True,
        unknown_values="reject",
        reported_traits=[],
    )
    for number, (server, model) in enumerate(
        zip(_SERVERS, _MODELS, strict=True)
    ):
        spec = type("Spec", (RequestSpec,), {"instance_uuid": server})(
            Flavor(1, 512), Image({"hw_vif_model": model})
        )
        try:
            pipeline.apply(spec, SimpleNamespace(request_id=f"req-{number}"))
        except RequestRejected:
            assert model == "nosuch"
    path = tmp_path / "decisions.log"
    path.write_text(
        "".join(
            f"{each.getMessage()}\n"
            for each in caplog.records
            if each.name == LOGGER
        )
    )
    return path


def _json(capsys: Capture, *argv: object) -> Any:
    return json_of(capsys, "decisions", *map(str, argv))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], [0, 1, 2]),
        (["--rejected"], [1]),
        (["--server", _SERVERS[2].upper()], [2]),
        (["--request-id", "req-0"], [0]),
        (["--request-id", "req-0", "--rejected"], []),
        (["--limit", "2"], [1, 2]),
    ],
    ids=["all", "rejected", "server", "request", "both", "limit"],
)
def test_json_has_the_records_that_the_options_select_in_the_order_of_time(
    options: list[str], expected: list[int], log: Path, capsys: Capture
) -> None:
    found = _json(capsys, log, *options)
    assert [each["server"] for each in found] == [
        _SERVERS[number] for number in expected
    ]
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert found == [lines[number] for number in expected]
    # The same file twice has each decision once.
    assert _json(capsys, log, log, *options) == found


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        ([], "3 match, the latest 3 shown."),
        (["--rejected"], "1 match, the latest 1 shown."),
        (["--server", _SERVERS[2].upper()], "1 match, the latest 1 shown."),
        (["--request-id", "req-0"], "1 match, the latest 1 shown."),
        (
            ["--request-id", "req-0", "--rejected"],
            "0 match, the latest 0 shown.",
        ),
        (
            ["--limit", "2"],
            "3 match, the latest 2 shown; a higher --limit shows more.",
        ),
    ],
    ids=["all", "rejected", "server", "request", "none", "limit"],
)
def test_the_numbers_of_decisions_stand_beside_the_table(
    options: list[str], counts: str, log: Path, capsys: Capture
) -> None:
    assert main(["decisions", str(log), *options]) == 0
    assert capsys.readouterr().err == f"Decisions: 3 in {log}; {counts}\n"


def test_diagnose_begins_with_what_was_recorded_of_a_server_also_without_its_cloud(
    log: Path, capsys: Capture
) -> None:
    hosts = [
        {"by": "ComputeFilter", "before": 3, "after": 1},
        {"by": "PciPassthroughFilter", "before": 1, "after": 0},
    ]
    last = {
        "time": "2999-01-01T00:00:00.000Z",
        "server": _SERVERS[0],
        "result": "no_host",
    }
    log.write_bytes(
        _record(**last, reason="No host has the PCI device.", hosts=hosts)
        + log.read_bytes()
    )
    ask = ["diagnose", "--history", str(log), "--server", _SERVERS[0].upper()]
    found = json_of(capsys, *ask, code=1)
    assert found["stage"] == "no-answer"
    results = [each["result"] for each in found["recorded"]]
    assert results == ["no_host", "passed"]
    assert main(ask) == 1
    out = capsys.readouterr().out
    assert (
        "Recorded when the server was scheduled, the latest first\n "
        f" {last['time']} no_host: No host has the PCI device. (ComputeFilter:"
        " 1 of 3 hosts; PciPassthroughFilter: 0 of 1 hosts)\n" in out
    )


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (
            ["--server", "unknown", "--history", "LOG"],
            "No decision about this server is in the history.",
        ),
        (
            ["--property", "a=b", "--history", "LOG"],
            "--history: it needs the server. Give --server ID.",
        ),
        (
            ["--server", _SERVERS[0], "--history", "LOG.1"],
            "LOG.1: there is no such file. Check the path.",
        ),
    ],
    ids=["another server", "no server", "no file"],
)
def test_a_history_without_the_server_is_an_error_of_diagnose(
    argv: list[str], problem: str, log: Path, capsys: Capture
) -> None:
    given = [each.replace("LOG", str(log)) for each in argv]
    assert main(["diagnose", *given]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert problem.replace("LOG", str(log)) in lines


_LAST = {"by": "PciPassthroughFilter", "before": 1, "after": 0}
_PCI_UNKNOWN = HostFilter("PciPassthroughFilter", 1, (), ("pci_stats",))
_PCI_FREE = HostFilter("PciPassthroughFilter", 1, (), ())


@pytest.mark.parametrize(
    ("last", "runs", "stage"),
    [
        (_LAST, (), result.HOST_FILTERS),
        (_LAST, (_PCI_UNKNOWN,), result.HOST_FILTERS),
        (_LAST, (_PCI_FREE,), result.CANDIDATES),
        ({"by": "MEMORY_MB", "before": 3, "after": 0}, (), result.CANDIDATES),
        (
            {"by": "PciPassthroughFilter", "before": 3, "after": 1},
            (),
            result.CANDIDATES,
        ),
    ],
    ids=[
        "not run now",
        "not known now",
        "free now",
        "a resource",
        "some left",
    ],
)
def test_host_filter_that_left_no_host_is_the_stage_unless_it_leaves_some_now(
    last: dict[str, Any], runs: tuple[HostFilter, ...], stage: str, log: Path
) -> None:
    log.write_bytes(
        _record(
            server=_SERVERS[0],
            result="no_host",
            reason="No host.",
            hosts=[last],
        )
    )
    diagnosis = result.Diagnosis(
        result.CANDIDATES,
        "2 of 3 hosts meet all requirements.",
        host_filters=runs,
    )
    found = _with_history(diagnosis, [*decisions_in([str(log)], print)])
    assert found.stage == stage
    if stage == result.HOST_FILTERS:
        assert found.by == "PciPassthroughFilter"
        assert found.message.endswith(
            "PciPassthroughFilter left none of 1 host. Now 2 of 3 hosts meet"
            " all requirements."
        )


def test_decisions_are_found_in_the_log_of_a_service(
    tmp_path: Path, capsys: Capture
) -> None:
    """By oslo.log with its defaults, and by a handler for this logger
    alone.
    """
    path, alone = tmp_path / "service.log", tmp_path / "alone.log"
    handlers = tmp_path / "logging.conf"
    handlers.write_text(
        "[loggers]\nkeys = root,decisions\n[handlers]\nkeys ="
        " decisions\n[formatters]\nkeys = message\n[logger_root]\nhandlers"
        " =\n[logger_decisions]\nqualname = os_prefilter.decisions\nlevel ="
        " INFO\nhandlers = decisions\npropagate ="
        " 0\n[handler_decisions]\nclass = handlers.WatchedFileHandler\nargs ="
        f" ('{alone}',)\nformatter = message\n[formatter_message]\nformat ="
        " %(message)s\n"
    )
    script = f"""
import sys
from oslo_config import cfg
from oslo_context.context import RequestContext
from oslo_log import log
from os_prefilter import Flavor, Image, RequestSpec
from os_prefilter.service import Service
for number in range(2):
    conf = cfg.ConfigOpts()
    log.register_options(conf)
    conf([], default_config_files=[{str(tmp_path)!r} + "/" + str(number) + ".conf"])
    log.setup(conf, "service")
    pipeline = Service.from_conf(conf)
    for model in {_MODELS}:
        context = RequestContext(request_id="req-" + model, user_id="4711")
        pipeline.apply(RequestSpec(Flavor(1, 512), Image({{"hw_vif_model": model}})), context)
"""
    # Two services, in one process.
    for number, lines in enumerate(
        [f"log_file = {path}\n", f"log_config_append = {handlers}\n"]
    ):
        text = (
            f"[DEFAULT]\n{lines}[prefilter]\nenabled_filters ="
            " image_metadata\ndecision_history = true\n"
        )
        (tmp_path / f"{number}.conf").write_text(text)
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    path.write_bytes(
        b"\xff cut\n\n"
        + path.read_bytes()
        + b'\xff\n{"message": "of another"}\x00\n'
    )
    for log in (path, alone):
        found = _json(capsys, log)
        assert [each["request"] for each in found] == [
            f"req-{model}" for model in _MODELS
        ]
        assert [len(each["requirements"]) for each in found] == [1, 0, 1]


def test_log_can_be_piped_in(
    log: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen(
        ["/bin/cat", str(log)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert len(_json(capsys, f"/dev/fd/{process.stdout.fileno()}")) == 3
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BytesIO(log.read_bytes()))
    )
    assert len(_json(capsys, "-")) == 3


@given(st.data())
def test_damaged_file_gives_its_whole_lines_and_the_numbers_of_the_others(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Cut anywhere after the prefix, or with one byte changed, it never raises
    anything but our own error.
    """
    lines = [
        _PREFIX.encode() + _record(reason=f"reason {number}")
        for number in range(3)
    ]
    content = b"".join(lines)
    place = data.draw(st.integers(0, len(content) - 1))
    path = tmp_path_factory.mktemp("damaged") / "log"
    path.write_bytes(lines[0] + content[:place])
    whole, rest = (
        content[:place].count(b"\n"),
        content[:place].rpartition(b"\n")[2],
    )
    file = DecisionFile(str(path))
    # What ends only without its line break is whole. What ends before the
    # logger's name is no line of the history.
    assert len(list(file)) == 1 + whole + (rest + b"\n" in lines)
    is_ours = (
        b"os_prefilter.decisions " in rest[:-1] and rest + b"\n" not in lines
    )
    assert not is_ours or file.damaged == [whole + 2]
    path.write_bytes(
        lines[0]
        + content[:place]
        + data.draw(st.binary(min_size=1, max_size=2))
        + content[place + 1 :]
    )
    assert 4 - len(list(DecisionFile(str(path)))) <= 2


def _record(**changes: Any) -> bytes:
    fields = {
        "time": "2026-11-03T14:02:11.123Z",
        "worker": 1,
        "request": None,
        "server": None,
        "result": "passed",
        "reason": None,
        "hosts": [],
        "requirements": [],
        "preferences": [],
        "aggregates": [],
        "notes": [],
        "left_out": 0,
    }
    return json.dumps({**fields, **changes}).encode() + b"\n"


_FORGED = _record(reason="forged").decode().strip()
_OTHER = "2026-11-03 14:02:11.123 1 INFO nova.api [req-1] "


@pytest.mark.parametrize(
    "line",
    [
        f"{_OTHER}Image named {_FORGED}",
        f"{_OTHER}Image INFO os_prefilter.decisions [-] {_FORGED}",
        f"{_OTHER}Image of two lines\n{_FORGED}",
        f"{_OTHER}{'x' * (8 * 128 * 1024 - len(_OTHER))}{_PREFIX}{_FORGED}",
        (
            "2026-11-03 14:02:11.123 1 WARNING os_prefilter.rules.filter [-]"
            f" INFO os_prefilter.decisions [-] {_FORGED}"
        ),
        (
            "2026-11-03 14:02:11.123 1 INFO os_prefilter.decisions.others [-]"
            f" {_FORGED}"
        ),
        (
            "2026-11-03 14:02:11.123 1 INFO os_prefilter.decisions-others [-]"
            f" {_FORGED}"
        ),
        (
            "Nov  3 14:02:11 host sshd[12]: Invalid user INFO"
            f" os_prefilter.decisions [-] {_FORGED}"
        ),
        (
            "2026-11-03 14:02:11.123 1 FATAL nova.x [ctx] INFO"
            f" os_prefilter.decisions [-] {_FORGED}"
        ),
        f" {_FORGED}",
    ],
    ids=range(10),
)
def test_decision_in_the_line_of_another_logger_does_not_count(
    line: str, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "log"
    # The name of a user in the prefix hides none, nor does the end of a colour
    # that an older oslo.log writes.
    prefix = _PREFIX.replace("alice", _START)
    path.write_text(
        f"{_OTHER}Started\n{line}\n{prefix}{_record(request='req-0').decode().rstrip()}\x1b[00m\n"
    )
    assert [each["request"] for each in _json(capsys, path)] == ["req-0"]


@pytest.mark.parametrize(
    ("prefix", "more"),
    [("", " and more"), ("", "{"), (_PREFIX, ': Error: {"a": 1}')],
    ids=["words", "half an object", "another object"],
)
def test_line_counts_only_if_it_parses_as_a_whole(
    prefix: str, more: str, tmp_path: Path, capsys: Capture
) -> None:
    log = placed(tmp_path / "log", f"{prefix}{_FORGED}{more}\n")
    assert main(["decisions", log]) == 1
    err = capsys.readouterr().err
    assert "left out 1 damaged decision" in err
    assert "no decision: none can be read." in err


_WRONG_RECORDS: list[dict[str, Any]] = [
    {"time": []},
    {"worker": []},
    {"request": []},
    {"left_out": []},
    {"requirements": ["CUSTOM_A"]},
    {"requirements": [{}]},
    {"preferences": [{"trait": "CUSTOM_A"}]},
    {"notes": [None]},
]


@pytest.mark.parametrize("changes", _WRONG_RECORDS, ids=str)
def test_record_of_another_shape_is_left_out_with_a_warning(
    changes: dict[str, Any], tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "log"
    path.write_bytes(
        _PREFIX.encode() + _record() + _PREFIX.encode() + _record(**changes)
    )
    assert main(["decisions", str(path), "-f", "json"]) == 0
    captured = capsys.readouterr()
    assert len(json.loads(captured.out)) == 1
    assert captured.err.startswith(
        f"{path}:2: left out 1 damaged decision, the first one"
        f" here.\nDecisions: 1 in {path}; 1 match,"
    )


@pytest.mark.parametrize(
    ("form", "more"),
    [("table", []), ("csv", ["--request-id", "req"]), ("json", [])],
)
def test_control_characters_of_a_tampered_log_do_not_reach_the_terminal(
    form: str, more: list[str], tmp_path: Path, capsys: Capture
) -> None:
    bad = "\x1b]0;owned\x07\x9b31m\r\u2028"
    item = dict.fromkeys(("trait", "scope", "filter", "source"), bad) | {
        "required": True
    }
    texts = dict.fromkeys(("time", "server", "result", "reason"), bad)
    long = _record(
        **texts,
        request="req",
        requirements=[item],
        preferences=[item],
        notes=[bad],
    )
    path = tmp_path / "log"
    path.write_bytes(long + _record(**texts))
    assert main(["decisions", str(path), "-f", form, *more]) == 0
    out = capsys.readouterr().out
    assert "owned" in out
    assert ("preferred" in out) == bool(more)
    assert all(line.isprintable() for line in out.split("\n"))


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (None, "FILE: there is no such file. Check the path."),
        (
            b"",
            (
                "no decision: none can be read. Check that [prefilter]"
                " decision_history is true, and that no line is cut."
            ),
        ),
        (
            b'{"a": 1}\n',
            (
                "FILE: there is no decision in this file. Give a log with the"
                " lines of the logger os_prefilter.decisions: in oslo.log's"
                " text format, or a file with nothing but the messages."
            ),
        ),
    ],
    ids=["no file", "empty", "no history"],
)
def test_wrong_input_is_one_line_on_the_standard_error(
    content: bytes | None, error: str, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "log"
    if content is not None:
        path.write_bytes(content)
    assert main(["decisions", str(path)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    first = captured.err.splitlines()[0]
    assert first == error.replace("FILE", str(path))


def test_commands_with_the_configuration_of_a_service_record_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    conf = placed(
        tmp_path / "nova.conf",
        "[prefilter]\nenabled_filters = hpet\ndecision_history = true\n",
    )
    argv = ["--property", "hw_time_hpet=yes", "--config-file", conf]
    assert main(["explain", *argv]) == 0
    assert not [record for record in caplog.records if record.name == LOGGER]
