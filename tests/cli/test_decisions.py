# SPDX-License-Identifier: Apache-2.0

"""``decisions``: the history in the log of a service, whole or damaged."""

from __future__ import annotations

import gzip
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
from os_prefilter_tools.fleet.server import HostFilter
from os_prefilter_tools.operators.decisions import decisions_in
from os_prefilter_tools.operators.diagnose import result
from tests.conftest import pipeline_of
from tests.support.commands import Cli
from tests.support.zipping import zip_equal

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
def log(cli: Cli, caplog: pytest.LogCaptureFixture) -> str:
    """Return the path of a log with nothing but the decisions on three
    requests, of which the second is rejected.
    """
    caplog.set_level(logging.INFO)
    pipeline = pipeline_of(
        "image_metadata",
        decision_history=True,
        unknown_values="reject",
        reported_traits=[],
    )
    requests = zip_equal(_SERVERS, _MODELS)
    for number, (server, model) in enumerate(requests):
        of_server = type("Spec", (RequestSpec,), {"instance_uuid": server})
        spec = of_server(Flavor(1, 512), Image({"hw_vif_model": model}))
        try:
            pipeline.apply(spec, SimpleNamespace(request_id=f"req-{number}"))
        except RequestRejected:
            assert model == "nosuch"
    lines = [
        f"{each.getMessage()}\n"
        for each in caplog.records
        if each.name == LOGGER
    ]
    return cli.place("decisions.log", "".join(lines))


_ONE = "1 match, the latest 1 shown."
_BOTH = ["--request-id", "req-0", "--rejected"]
_SELECTIONS = {
    "all": ([], [0, 1, 2], "3 match, the latest 3 shown."),
    "rejected": (["--rejected"], [1], _ONE),
    "server": (["--server", _SERVERS[2].upper()], [2], _ONE),
    "request": (["--request-id", "req-0"], [0], _ONE),
    "both": (_BOTH, [], "0 match, the latest 0 shown."),
    "limit": (
        ["--limit", "2"],
        [1, 2],
        "3 match, the latest 2 shown; a higher --limit shows more.",
    ),
}


@pytest.mark.parametrize(
    ("options", "expected", "counts"), _SELECTIONS.values(), ids=_SELECTIONS
)
def test_options_select_records_in_the_order_of_time_and_their_numbers_are_printed(
    options: list[str], expected: list[int], counts: str, log: str, cli: Cli
) -> None:
    lines = Path(log).read_text().splitlines()
    records = [json.loads(lines[number]) for number in expected]
    found = cli.json("decisions", log, *options)
    servers = [each["server"] for each in found]
    assert servers == [_SERVERS[number] for number in expected]
    assert found == records
    # The same file twice has each decision once.
    assert cli.json("decisions", log, log, *options) == records
    _, err = cli.run("decisions", log, *options)
    assert err == f"Decisions: 3 in {log}; {counts}\n"


def test_diagnose_begins_with_what_was_recorded_of_a_server_also_without_its_cloud(
    log: str, cli: Cli
) -> None:
    hosts = [
        {"by": "ComputeFilter", "before": 3, "after": 1},
        {"by": "PciPassthroughFilter", "before": 1, "after": 0},
    ]
    last = _record(
        time="2999-01-01T00:00:00.000Z",
        server=_SERVERS[0],
        result="no_host",
        reason="No host has the PCI device.",
        hosts=hosts,
    )
    Path(log).write_bytes(last + Path(log).read_bytes())
    ask = ["diagnose", "--history", log, "--server", _SERVERS[0].upper()]
    found = cli.json(*ask, code=1)
    results = [each["result"] for each in found["recorded"]]
    out, _ = cli.run(*ask, code=1)
    assert found["stage"] == "no-answer"
    assert results == ["no_host", "passed"]
    assert (
        "Recorded when the server was scheduled, the latest first\n "
        " 2999-01-01T00:00:00.000Z no_host: No host has the PCI device."
        " (ComputeFilter: 1 of 3 hosts; PciPassthroughFilter: 0 of 1 hosts)\n"
        in out
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
    argv: list[str], problem: str, log: str, cli: Cli
) -> None:
    given = [each.replace("LOG", log) for each in argv]
    lines = cli.error("diagnose", *given).splitlines()
    assert problem.replace("LOG", log) in lines


_PCI = "PciPassthroughFilter"
_NONE_LEFT = {"by": _PCI, "before": 1, "after": 0}
_SOME_LEFT = {"by": _PCI, "before": 3, "after": 1}
_NO_MEMORY = {"by": "MEMORY_MB", "before": 3, "after": 0}


def _with_last(log: str, last: dict[str, Any], *runs: HostFilter) -> Any:
    """Return a diagnosis with candidates after what a log has of it."""
    recorded = _record(
        server=_SERVERS[0], result="no_host", reason="No host.", hosts=[last]
    )
    Path(log).write_bytes(recorded)
    message = "2 of 3 hosts meet all requirements."
    diagnosis = result.Diagnosis(result.CANDIDATES, message, host_filters=runs)
    return _with_history(diagnosis, [*decisions_in([log], print)])


@pytest.mark.parametrize(
    "runs",
    [(), (HostFilter(_PCI, 1, (), ("pci_stats",)),)],
    ids=["not run now", "not known now"],
)
def test_host_filter_that_left_no_host_is_the_stage(
    runs: tuple[HostFilter, ...], log: str
) -> None:
    found = _with_last(log, _NONE_LEFT, *runs)
    assert found.stage == result.HOST_FILTERS
    assert found.by == _PCI
    assert found.message.endswith(
        "PciPassthroughFilter left none of 1 host. Now 2 of 3 hosts meet all"
        " requirements."
    )


@pytest.mark.parametrize(
    ("last", "runs"),
    [
        (_NONE_LEFT, (HostFilter(_PCI, 1, (), ()),)),
        (_NO_MEMORY, ()),
        (_SOME_LEFT, ()),
    ],
    ids=["free now", "a resource", "some left"],
)
def test_host_filter_that_leaves_some_now_or_left_some_is_not_the_stage(
    last: dict[str, Any], runs: tuple[HostFilter, ...], log: str
) -> None:
    assert _with_last(log, last, *runs).stage == result.CANDIDATES


_LOGGING = """
[loggers]
keys = root,decisions
[handlers]
keys = decisions
[formatters]
keys = message
[logger_root]
handlers =
[logger_decisions]
qualname = os_prefilter.decisions
level = INFO
handlers = decisions
propagate = 0
[handler_decisions]
class = handlers.WatchedFileHandler
args = ('alone.log',)
formatter = message
[formatter_message]
format = %(message)s
"""
# Two services, in one process.
_SERVICES = f"""
from oslo_config import cfg
from oslo_context.context import RequestContext
from oslo_log import log
from os_prefilter import Flavor, Image, RequestSpec
from os_prefilter.service import Service
for name in ("log_file.conf", "logger.conf"):
    conf = cfg.ConfigOpts()
    log.register_options(conf)
    conf([], default_config_files=[name])
    log.setup(conf, "service")
    pipeline = Service.from_conf(conf)
    for model in {_MODELS}:
        context = RequestContext(request_id="req-" + model, user_id="4711")
        pipeline.apply(RequestSpec(Flavor(1, 512), Image({{"hw_vif_model": model}})), context)
"""
_CONF = """
[DEFAULT]
{}
[prefilter]
enabled_filters = image_metadata
decision_history = true
"""


def test_decisions_are_found_in_the_log_of_a_service(cli: Cli) -> None:
    """By oslo.log with its defaults, and by a handler for this logger
    alone.
    """
    cli.place("logging.conf", _LOGGING)
    cli.place("log_file.conf", _CONF.format("log_file = service.log"))
    cli.place("logger.conf", _CONF.format("log_config_append = logging.conf"))
    subprocess.run(
        [sys.executable, "-c", _SERVICES],
        cwd=cli.folder,
        check=True,
        timeout=60,
    )
    path = cli.folder / "service.log"
    others = b'\xff\n{"message": "of another"}\x00\n'
    path.write_bytes(b"\xff cut\n\n" + path.read_bytes() + others)
    for log in (path, cli.folder / "alone.log"):
        found = cli.json("decisions", str(log))
        requests = [each["request"] for each in found]
        assert requests == [f"req-{model}" for model in _MODELS]
        assert [len(each["requirements"]) for each in found] == [1, 0, 1]


def test_log_can_be_piped_in(
    log: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["/bin/cat", log]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        path = f"/dev/fd/{process.stdout.fileno()}"
        assert len(cli.json("decisions", path)) == 3
    stdin = io.TextIOWrapper(io.BytesIO(Path(log).read_bytes()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert len(cli.json("decisions", "-")) == 3


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
    cut = content[:place]
    path = tmp_path_factory.mktemp("damaged") / "log"
    path.write_bytes(lines[0] + cut)
    warnings: list[str] = []
    found = len(list(decisions_in([str(path)], warnings.append)))
    whole = 1 + cut.count(b"\n")
    _, _, rest = cut.rpartition(b"\n")
    # What ends only without its line break is whole. What ends before the
    # logger's name is no line of the history.
    if rest + b"\n" in lines:
        assert found == whole + 1
    else:
        assert found == whole
        if b"os_prefilter.decisions " in rest[:-1]:
            (warning,) = warnings
            assert warning.startswith(f"{path}:{whole + 1}: ")
    changed = data.draw(st.binary(min_size=1, max_size=2))
    path.write_bytes(lines[0] + cut + changed + content[place + 1 :])
    assert len(list(decisions_in([str(path)], warnings.append))) >= 2


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


_SECOND = "2026-11-03 14:02:11.123 1"
_LONG = "x" * (8 * 128 * 1024 - len(_OTHER))
_OTHER_LINES = {
    "text": f"{_OTHER}Image named {_FORGED}",
    "name in a text": f"{_OTHER}Image INFO os_prefilter.decisions [-] {_FORGED}",
    "second line": f"{_OTHER}Image of two lines\n{_FORGED}",
    "long line": f"{_OTHER}{_LONG}{_PREFIX}{_FORGED}",
    "warning": (
        f"{_SECOND} WARNING os_prefilter.rules.filter [-] INFO"
        f" os_prefilter.decisions [-] {_FORGED}"
    ),
    "child": f"{_SECOND} INFO os_prefilter.decisions.others [-] {_FORGED}",
    "longer name": (
        f"{_SECOND} INFO os_prefilter.decisions-others [-] {_FORGED}"
    ),
    "system log": (
        "Nov  3 14:02:11 host sshd[12]: Invalid user INFO"
        f" os_prefilter.decisions [-] {_FORGED}"
    ),
    "unknown level": (
        f"{_SECOND} FATAL nova.x [ctx] INFO os_prefilter.decisions [-]"
        f" {_FORGED}"
    ),
    "space": f" {_FORGED}",
}


@pytest.mark.parametrize("line", _OTHER_LINES.values(), ids=_OTHER_LINES)
def test_decision_in_the_line_of_another_logger_does_not_count(
    line: str, cli: Cli
) -> None:
    # The name of a user in the prefix hides none, nor does the end of a colour
    # that an older oslo.log writes.
    prefix = _PREFIX.replace("alice", _START)
    own = _record(request="req-0").decode().rstrip()
    text = f"{_OTHER}Started\n{line}\n{prefix}{own}\x1b[00m\n"
    found = cli.json("decisions", cli.place("log", text))
    assert [each["request"] for each in found] == ["req-0"]


@pytest.mark.parametrize(
    ("prefix", "more"),
    [("", " and more"), ("", "{"), (_PREFIX, ': Error: {"a": 1}')],
    ids=["words", "half an object", "another object"],
)
def test_line_counts_only_if_it_parses_as_a_whole(
    prefix: str, more: str, cli: Cli
) -> None:
    log = cli.place("log", f"{prefix}{_FORGED}{more}\n")
    error = cli.error("decisions", log)
    assert "left out 1 damaged decision" in error
    assert "no decision: none can be read." in error


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
    changes: dict[str, Any], cli: Cli
) -> None:
    lines = [_record().decode(), _record(**changes).decode()]
    path = cli.place("log", "".join(f"{_PREFIX}{line}" for line in lines))
    out, err = cli.run("decisions", path, "-f", "json")
    assert len(json.loads(out)) == 1
    assert err.startswith(
        f"{path}:2: left out 1 damaged decision, the first one"
        f" here.\nDecisions: 1 in {path}; 1 match,"
    )


@pytest.mark.parametrize(
    ("form", "more"),
    [("table", []), ("csv", ["--request-id", "req"]), ("json", [])],
    ids=["table", "CSV", "JSON"],
)
def test_control_characters_of_a_tampered_log_do_not_reach_the_terminal(
    form: str, more: list[str], cli: Cli
) -> None:
    bad = "\x1b]0;owned\x07\x9b31m\r\u2028"
    item: dict[str, Any] = dict.fromkeys(
        ("trait", "scope", "filter", "source"), bad
    )
    item["required"] = True
    texts = dict.fromkeys(("time", "server", "result", "reason"), bad)
    full = _record(
        **texts,
        request="req",
        requirements=[item],
        preferences=[item],
        notes=[bad],
    )
    path = cli.place("log", (full + _record(**texts)).decode())
    out, _ = cli.run("decisions", path, "-f", form, *more)
    assert "owned" in out
    assert ("preferred" in out) == bool(more)
    assert all(line.isprintable() for line in out.split("\n"))


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (None, "FILE: there is no such file. Check the path."),
        (
            "",
            (
                "no decision: none can be read. Check that [prefilter]"
                " decision_history is true, and that no line is cut."
            ),
        ),
        (
            '{"a": 1}\n',
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
    content: str | None, error: str, cli: Cli
) -> None:
    path = str(cli.folder / "log")
    if content is not None:
        cli.place("log", content)
    out, err = cli.run("decisions", path, code=1)
    assert out == ""
    assert err.splitlines()[0] == error.replace("FILE", path)


@pytest.mark.parametrize("before", [b"", _record()], ids=["alone", "appended"])
def test_packed_log_is_to_be_unpacked(before: bytes, cli: Cli) -> None:
    path = cli.place("log.2.gz", "")
    Path(path).write_bytes(before + gzip.compress(_record()))
    out, err = cli.run("decisions", path, code=1)
    assert out == ""
    assert err.startswith(f"{path}: a part of it is packed by gzip")
    assert "zcat -f" in err


def test_commands_with_the_configuration_of_a_service_record_nothing(
    cli: Cli, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    text = "[prefilter]\nenabled_filters = hpet\ndecision_history = true\n"
    conf = cli.place("nova.conf", text)
    argv = ["--property", "hw_time_hpet=yes", "--config-file", conf]
    cli.run("explain", *argv)
    assert not [record for record in caplog.records if record.name == LOGGER]
