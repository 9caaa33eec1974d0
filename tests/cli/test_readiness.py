"""``readiness``: the table for people, all names for machines, and exit codes."""

from pathlib import Path

import pytest
import yaml

from os_prefilter.service.report_scope import configured_scope
from os_prefilter.vocabulary import REPORTED
from os_prefilter_tools.cli.filters_and_hosts import read_configuration
from os_prefilter_tools.cli.main import main
from tests.support.commands import json_of

Capture = pytest.CaptureFixture[str]


def _fleet(path: Path, **hosts: list[str]) -> str:
    file = path / "fleet.yaml"
    body = {
        name: {"resources": {"VCPU": 8, "MEMORY_MB": 4096}, "traits": ["COMPUTE_NODE", *traits]}
        for name, traits in hosts.items()
    }
    file.write_text(yaml.safe_dump({"hosts": body}))
    return str(file)


@pytest.fixture
def fleet(tmp_path: Path) -> str:
    silent = {f"old{number}": ["COMPUTE_IMAGE_TYPE_RAW"] for number in range(5)}
    return _fleet(tmp_path, new=[REPORTED], **silent)


def _conf(tmp_path: Path, *lines: str) -> str:
    path = tmp_path / "nova.conf"
    path.write_text("\n".join(("[prefilter]", *lines, "")))
    return str(path)


def test_table_lists_three_compute_nodes_and_the_number_of_the_rest(fleet: str, capsys: Capture) -> None:
    assert main(["readiness", "--hosts", fleet, "--filter", "hpet,image_type,compute_status"]) == 0
    out, err = capsys.readouterr()
    assert "old0, old1, old2 and 2 more" in out
    looked_at, _, told = err.partition("\n")
    assert looked_at == f"Hosts: 6 (6 resource providers) of {fleet}."
    assert told == "1 open, 1 closed.\nThese filters need no capability reports: compute_status.\n"


@pytest.mark.parametrize(
    ("names", "argv", "code"),
    [("hpet", [], 0), ("hpet", ["--check"], 2), ("image_type", ["--check"], 0), ("owner", ["--check"], 2)],
)
def test_exit_code_is_2_only_with_check_and_a_closed_gate(names: str, argv: list[str], code: int, fleet: str) -> None:
    assert main(["readiness", "--hosts", fleet, "--filter", names, *argv]) == code


@pytest.mark.parametrize("command", ["candidates", "diagnose"])
def test_candidates_and_diagnose_say_what_a_gated_filter_does_not_ask_for_yet(
    command: str, fleet: str, tmp_path: Path, capsys: Capture
) -> None:
    """Of the filter owner as well, whose gate is another one."""
    conf = _conf(tmp_path, "enabled_filters = hpet,owner", "wait_for_answers = hpet")
    assert main([command, "--property", "hw_time_hpet=yes", "--config-file", conf, "--hosts", fleet]) == 0
    said = "".join(capsys.readouterr())
    assert "CUSTOM_COMPUTE_TIME_HPET is not required yet: 5 compute nodes (among them old0, old1, old2)" in said
    assert "not every compute service reports OWNER_NOVA yet: not required yet" in said


def test_fleet_without_compute_nodes_is_reported_with_exit_code_2(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text("hosts: {a: {resources: {VCPU: 1}}}")
    assert main(["readiness", "--hosts", str(file), "--filter", "hpet", "--check"]) == 2
    assert "There is no compute node: no host has the trait COMPUTE_NODE.\n" in capsys.readouterr().err


def test_compute_nodes_that_reported_for_other_options_are_named(tmp_path: Path, capsys: Capture) -> None:
    conf = _conf(tmp_path, "enabled_filters = hpet")
    own = configured_scope(read_configuration(conf)).marker
    fleet = _fleet(tmp_path, same=[own], other=[f"{REPORTED}_00000000"], full=[REPORTED], silent=[])
    assert main(["readiness", "--hosts", fleet, "--config-file", conf]) == 0
    out, err = capsys.readouterr()
    assert "other, silent" in out
    assert "Reported for other options of [prefilter], or by an earlier release: other. Give the schedulers" in err
    assert main(["readiness", "--hosts", fleet, "--filter", "hpet"]) == 0
    assert "Give --config-file with the schedulers' section." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (f"{REPORTED}_00000000", "have not reported by this section [prefilter] (hosts have by another section"),
        ("CUSTOM_PREFILTER_REPORTED_1", "(hosts have by another section, or by an earlier release); 'os-pref"),
        (REPORTED, "1 compute node (silent) has not reported; 'os-prefilter readiness' shows more"),
        ("CUSTOM_OTHER", "2 compute nodes (other, silent) have not reported; 'os-prefilter readiness' shows more"),
    ],
)
def test_explain_says_that_hosts_reported_for_other_options(
    other: str, says: str, tmp_path: Path, capsys: Capture
) -> None:
    """To an operator whose hosts all have reported, that they have not is no explanation."""
    conf = _conf(tmp_path, "enabled_filters = hpet", "wait_for_answers = hpet")
    own = configured_scope(read_configuration(conf)).marker
    fleet = _fleet(tmp_path, same=[own], other=[other], silent=[])
    assert main(["explain", "--hosts", fleet, "--config-file", conf, "--property", "hw_time_hpet=yes"]) == 0
    assert says in " ".join(capsys.readouterr().out.split()).replace(" | ", " ")


def test_a_filter_of_the_file_is_ready_where_hosts_reported_for_all_of_its_filters(
    tmp_path: Path, capsys: Capture
) -> None:
    conf = _conf(tmp_path, "enabled_filters = image_metadata, hpet", "reported_traits = *")
    fleet = _fleet(tmp_path, host=[configured_scope(read_configuration(conf)).marker])
    (line,) = json_of(capsys, "readiness", "--hosts", fleet, "--config-file", conf, "--filter", "hpet")
    assert line["State"] == "open"
