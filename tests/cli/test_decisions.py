"""``decisions``: the history of a service, from its files or its log, complete or damaged, of ours or of another."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from os_prefilter import Flavor, Image, RequestSpec
from os_prefilter.cli.main import main
from os_prefilter.common.errors import RequestRejected
from os_prefilter.operators.decisions import DecisionFile
from tests.conftest import pipeline_of

Capture = pytest.CaptureFixture[str]

_SERVERS = [f"0c0a4b6e-6c3b-4d2a-9d0f-0a3f4a1f2b7{number}" for number in range(3)]
_MODELS = ("igb", "nosuch", "e1000e")


def _apply_all(**options: Any) -> None:
    """Decide on three requests, of which the second is rejected."""
    pipeline = pipeline_of(
        "image_metadata", decision_history=10, unknown_values="reject", reported_traits=[], **options
    )
    for number, (server, model) in enumerate(zip(_SERVERS, _MODELS, strict=True)):
        spec = type("Spec", (RequestSpec,), {"instance_uuid": server})(Flavor(1, 512), Image({"hw_vif_model": model}))
        try:
            pipeline.apply(spec, SimpleNamespace(request_id=f"req-{number}"))
        except RequestRejected:
            assert model == "nosuch"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a directory with the decisions on three requests."""
    path = tmp_path / "history"
    path.mkdir()
    _apply_all(decision_history_dir=str(path))
    return path


def _json(capsys: Capture, *argv: object) -> Any:
    assert main(["decisions", *map(str, argv), "-f", "json"]) == 0
    return json.loads(capsys.readouterr().out)


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
)
def test_json_has_the_records_that_the_options_select_in_the_order_of_time(
    options: list[str], expected: list[int], folder: Path, capsys: Capture
) -> None:
    found = _json(capsys, folder, *options)
    assert [each["server"] for each in found] == [_SERVERS[number] for number in expected]
    file = folder / "decisions-0.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    # All but the first key, which is the version of the format.
    assert found == [
        {name: value for name, value in lines[number].items() if name != "decision"} for number in expected
    ]
    assert _json(capsys, file, file, *options) == found


def test_listing_has_a_line_for_each_decision(folder: Path, capsys: Capture) -> None:
    assert main(["decisions", str(folder), "-f", "csv", "-c", "Request", "-c", "Result", "-c", "Hosts"]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == '"Request","Result","Hosts"'
    assert lines[0] == '"req-0","1 requirement",""'
    assert lines[1].startswith(
        '"req-1","rejected: image property hw_vif_model has the unknown value \'nosuch\'. Values'
    )


def test_one_request_is_shown_with_a_line_for_each_requirement_or_its_reason(folder: Path, capsys: Capture) -> None:
    columns = ["-c", "Trait", "-c", "Rule", "-c", "On", "-c", "By", "-c", "Because of", "-f", "csv"]
    assert main(["decisions", str(folder), "--request-id", "req-2", *columns]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[1:] == [
        '"COMPUTE_NET_VIF_MODEL_E1000E","required","root","image_metadata","image property hw_vif_model=e1000e"'
    ]
    assert main(["decisions", str(folder), "--request-id", "req-1", *columns]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[1].startswith('"","rejected","","","image property hw_vif_model has the unknown value')


@pytest.mark.parametrize("lines", ["", "use_json = true\n"], ids=["text", "json"])
def test_decisions_are_found_in_the_log_of_a_service(lines: str, tmp_path: Path, capsys: Capture) -> None:
    """By oslo.log with its defaults and with its JSON formatter, between lines of others."""
    conf, path = tmp_path / "service.conf", tmp_path / "service.log"
    conf.write_text(
        f"[DEFAULT]\nlog_file = {path}\n{lines}[prefilter]\nenabled_filters = image_metadata\ndecision_history = 1\n"
    )
    script = f"""
from oslo_config import cfg
from oslo_context.context import RequestContext
from oslo_log import log
from os_prefilter import Flavor, Image, Pipeline, RequestSpec
conf = cfg.ConfigOpts()
log.register_options(conf)
conf([], default_config_files=[{str(conf)!r}])
log.setup(conf, "service")
pipeline = Pipeline.from_conf(conf)
for model in {_MODELS}:
    context = RequestContext(request_id="req-" + model, user_id="4711")
    pipeline.apply(RequestSpec(Flavor(1, 512), Image({{"hw_vif_model": model}})), context)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    path.write_bytes(b'\xff\n{"message": "of another"}\n\n' + path.read_bytes() + b"\x00\n")
    found = _json(capsys, path)
    assert [each["request"] for each in found] == [f"req-{model}" for model in _MODELS]
    assert [len(each["requirements"]) for each in found] == [1, 0, 1]


def test_preference_is_shown_as_explain_shows_it(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "decisions-0.jsonl"
    pipeline = pipeline_of("preferences", decision_history=1, decision_history_dir=str(tmp_path))
    spec = RequestSpec(Flavor(1, 512, extra_specs={"trait:HW_CPU_X86_AVX2": "preferred"}), Image())
    pipeline.apply(spec, SimpleNamespace(request_id="req-0"))
    (found,) = _json(capsys, path)
    source = "flavor extra spec trait:HW_CPU_X86_AVX2=preferred"
    assert found["preferences"] == [{"trait": "HW_CPU_X86_AVX2", "filter": "preferences", "source": source}]
    columns = ["-c", "Trait", "-c", "Rule", "-c", "On", "-c", "By", "-c", "Because of", "-f", "csv"]
    assert main(["decisions", str(path), "--request-id", "req-0", *columns]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        f'"HW_CPU_X86_AVX2","preferred","root","preferences","{source}"'
    ]


def test_file_can_be_piped_in(folder: Path, capsys: Capture) -> None:
    with subprocess.Popen(["/bin/cat", str(folder / "decisions-0.jsonl")], stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert len(_json(capsys, f"/dev/fd/{process.stdout.fileno()}")) == 3


@given(st.data())
def test_damaged_file_gives_its_whole_lines_and_the_numbers_of_the_others(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Cut anywhere, or with one byte changed, it never raises anything but our own error."""
    lines = [_record(reason=f"reason {number}") for number in range(3)]
    content = b"".join(lines)
    place = data.draw(st.integers(0, len(content) - 1))
    path = tmp_path_factory.mktemp("damaged") / "decisions-0.jsonl"
    path.write_bytes(content[:place])
    whole, rest = content[:place].count(b"\n"), content[:place].rpartition(b"\n")[2]
    file = DecisionFile(path)
    # What ends only without its line break is whole.
    is_whole = rest == lines[0].rstrip()
    assert len(list(file)) == whole + (rest + b"\n" in lines)
    assert file.damaged == ([] if not rest or rest + b"\n" in lines or is_whole else [whole + 1])
    path.write_bytes(content[:place] + data.draw(st.binary(min_size=1, max_size=2)) + content[place + 1 :])
    file = DecisionFile(path)
    assert 3 - len(list(file)) <= 2


def _record(**changes: Any) -> bytes:
    fields = {
        "decision": 1,
        "time": "2026-11-03T14:02:11.123Z",
        "worker": 1,
        "request": None,
        "server": None,
        "result": "passed",
        "reason": None,
        "hosts": None,
        "requirements": [],
        "preferences": [],
        "notes": [],
        "left_out": 0,
    }
    return json.dumps({**fields, **changes}).encode() + b"\n"


_WRONG_RECORDS = [
    {"time": 5},
    {"worker": "x"},
    {"request": []},
    {"hosts": "many"},
    {"requirements": [{}]},
    {"requirements": ["CUSTOM_A"]},
    {"preferences": [{"trait": "CUSTOM_A"}]},
    {"notes": [None]},
    {"left_out": None},
]


@pytest.mark.parametrize("changes", _WRONG_RECORDS, ids=str)
def test_record_of_another_shape_is_left_out_with_a_warning(
    changes: dict[str, Any], tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "decisions-0.jsonl"
    path.write_bytes(_record() + _record(**changes))
    assert main(["decisions", str(path), "-f", "json"]) == 0
    captured = capsys.readouterr()
    assert len(json.loads(captured.out)) == 1
    assert captured.err == f"{path}:2: left out 1 damaged decision, the first one here.\n"


@pytest.mark.parametrize("form", ["table", "csv", "value", "json", "yaml"])
@pytest.mark.parametrize("more", [[], ["--request-id", "req"]], ids=["all", "one"])
def test_control_characters_of_a_tampered_file_do_not_reach_the_terminal(
    form: str, more: list[str], tmp_path: Path, capsys: Capture
) -> None:
    bad = "\x1b]0;owned\x07\x9b31m\r\u2028"
    item = dict.fromkeys(("trait", "scope", "filter", "source"), bad) | {"required": True}
    path = tmp_path / "decisions-0.jsonl"
    texts = dict.fromkeys(("time", "server", "result", "reason"), bad)
    path.write_bytes(
        _record(**texts, request="req", requirements=[item], preferences=[item], notes=[bad]) + _record(**texts)
    )
    assert main(["decisions", str(path), "-f", form, *more]) == 0
    out = capsys.readouterr().out
    assert "owned" in out
    assert all(line.isprintable() for line in out.split("\n"))


@pytest.mark.parametrize(
    ("content", "argv", "told"),
    [
        (None, [], "FILE: there is no such file. Check the path."),
        (b"", [], "no decision: none is recorded yet; see that [prefilter] decision_history is above 0."),
        (
            b'{"a": 1}\n',
            [],
            "FILE: there is no decision in this file. Give a file of [prefilter] decision_history_dir, or the log of "
            "a service without that option.",
        ),
        ("{}\n".encode("utf-16"), [], "FILE: byte 0 is not UTF-8; save the file as UTF-8."),
        (
            _record(),
            ["--server", "web\n1"],
            r"--server: 'web\n1' is not a UUID. Give the ID that 'openstack server list' shows.",
        ),
        (_record(), ["--limit", "0"], "--limit: 0 is not a number of decisions. Give 1 or more."),
        (b'{"decision": 1, "time', [], "FILE:1: left out 1 damaged decision, the first one here."),
    ],
)
def test_wrong_input_is_one_line_on_the_standard_error(
    content: bytes | None, argv: list[str], told: str, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "decisions-0.jsonl"
    if content is not None:
        path.write_bytes(content)
    assert main(["decisions", str(path), *argv]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[0] == told.replace("FILE", str(path))


def test_what_lies_beside_the_files_of_the_history_is_not_read(folder: Path, capsys: Capture) -> None:
    expected = _json(capsys, folder)
    for name in ("decisions-0.jsonl.1.gz", ".decisions-0.jsonl.swp", "decisions-0.jsonl.old", "decisions-x.jsonl"):
        (folder / name).write_bytes(b"\x1f\x8b\x08\xff")
    assert _json(capsys, folder) == expected


def test_directory_without_files_is_an_error(tmp_path: Path, capsys: Capture) -> None:
    assert main(["decisions", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        f"{tmp_path}: the directory has no file decisions-*.jsonl*. Give [prefilter] decision_history_dir of the "
        "service.\n"
    )


def test_nothing_that_matches_is_an_empty_listing_and_says_so(folder: Path, capsys: Capture) -> None:
    assert main(["decisions", str(folder), "--request-id", "req-9", "-f", "json"]) == 0
    captured = capsys.readouterr()
    assert (captured.out.strip(), captured.err) == ("[]", "None of 3 decisions is as given.\n")


def test_limit_says_how_many_there_are(folder: Path, capsys: Capture) -> None:
    assert main(["decisions", str(folder), "--limit", "1", "-f", "value"]) == 0
    assert capsys.readouterr().err == "The latest 1 of 3 decisions are shown; a higher --limit shows more.\n"


def test_commands_with_the_configuration_of_a_service_record_nothing(tmp_path: Path) -> None:
    """Not even with a directory that the operator cannot write to."""
    conf = tmp_path / "nova.conf"
    for folder in (tmp_path, tmp_path / "missing"):
        conf.write_text(f"[prefilter]\nenabled_filters = hpet\ndecision_history = 9\ndecision_history_dir = {folder}\n")
        assert main(["explain", "--property", "hw_time_hpet=yes", "--config-file", str(conf)]) == 0
    assert list(tmp_path.iterdir()) == [conf]
