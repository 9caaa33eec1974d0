# SPDX-License-Identifier: Apache-2.0

"""``os-prefilter-status upgrade check``: a real Placement behind a real
port.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import os_traits
import pytest
from nova.conf import scheduler
from oslo_config import cfg
from oslo_upgradecheck import upgradecheck
from placement import microversion

from os_prefilter.adapters.nova_conf import available_filters, load_conf
from os_prefilter.service.traits_to_report import traits_to_create
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.cli.main import main as os_prefilter_main
from os_prefilter_tools.cli.status import main
from os_prefilter_tools.fleet.reader import load_fleet
from os_prefilter_tools.operators.readiness import configured_filters
from tests.services.cloud.others import others
from tests.support.pages import DOCS, blocks, files_of
from tests.support.placements import (
    HOST,
    Answer,
    Served,
    lone_host,
    nova_conf,
    put_traits,
    served,
)
from tests.support.rule_texts import rule, write_rules

Capture = pytest.CaptureFixture[str]
Check = Callable[..., dict[str, tuple[int, str]]]

SUCCESS, WARNING, FAILURE = 0, 1, 2
NAMES = [
    "Configuration",
    "Entry point",
    "Placement API",
    "Traits in Placement",
    "Reports",
    "Versions",
]
LINES = (
    "[filter_scheduler]\n"
    "available_filters = nova.scheduler.filters.all_filters\n"
    "available_filters = os_prefilter.nova.activate\n"
)
NO_DETAILS: Any = None
NOT_CHECKED = (WARNING, "Not checked: correct the failures above first.")


@pytest.fixture(autouse=True)
def _own_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgradecheck, "CONF", None)
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def server() -> Iterator[Served]:
    with (
        EmbeddedPlacement(lone_host()) as placement,
        served(placement) as state,
    ):
        yield state


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    return tmp_path / "nova.conf"


@pytest.fixture
def check(conf: Path, capsys: Capture) -> Check:
    """Return a function: write a nova.conf, and return the code and the
    details of each check.
    """

    def check(text: str, *arguments: str) -> dict[str, tuple[int, str]]:
        conf.write_text(text)
        capsys.readouterr()
        code = main(
            [
                "--config-file",
                str(conf),
                *arguments,
                "upgrade",
                "check",
                "--json",
            ]
        )
        # os-prefilter, which may have run before, lets it buffer.
        sys.stdout.flush()
        out, err = capsys.readouterr()
        assert err == ""
        document = json.loads(out)
        assert [each["check"] for each in document["checks"]] == NAMES
        assert code == max(each["result"] for each in document["checks"])
        return {
            each["check"]: (each["result"], each["details"])
            for each in document["checks"]
        }

    return check


def _enabled(server: Served, names: str, *lines: str) -> str:
    options = "\n".join((f"enabled_filters = {names}", *lines))
    return f"{nova_conf(server.url)}{LINES}[prefilter]\n{options}\n"


def _start_scheduler(placement: EmbeddedPlacement, conf: Path) -> None:
    """Create the traits that a scheduler with this file creates at start."""
    configured = configured_filters(load_conf(str(conf)))
    placement.know(traits_to_create(*configured))


def test_check_warns_until_the_hosts_have_reported_and_then_succeeds(
    server: Served, check: Check, conf: Path
) -> None:
    text = _enabled(server, "hpet")
    before = check(text)
    code, details = before["Traits in Placement"]
    assert code == WARNING
    assert "Not created in Placement: CUSTOM_" in details
    assert "(hpet)" in details
    assert "nova-scheduler creates those of the vocabulary" in details
    code, details = before["Reports"]
    assert code == WARNING
    assert details.startswith(
        f"hpet waits for 1 compute node ({HOST}) without a report."
    )
    assert {each.partition(" ")[0] for each in server.sent} == {"GET"}
    _start_scheduler(server.placement, conf)
    argv = [
        "capabilities",
        "report",
        "--driver",
        "fake",
        "--config-file",
        str(conf),
        "--provider",
        HOST,
    ]
    assert os_prefilter_main(argv) == 0
    after = check(text)
    assert {code for code, _ in after.values()} == {SUCCESS}
    assert after["Configuration"] == (
        SUCCESS,
        "Request filters enabled: hpet.",
    )
    assert after["Placement API"] == (SUCCESS, "Microversions up to 1.39.")


@pytest.mark.parametrize(
    ("names", "line", "says"),
    [
        (
            "hpet",
            "wait_for_reports = false",
            f"hpet may exclude 1 compute node ({HOST}) without a report.",
        ),
        ("owner", "", "owner waits for 1 compute node"),
        (
            "owner",
            "wait_for_reports = false",
            "owner may exclude 1 compute node",
        ),
    ],
)
def test_coverage_says_which_filters_wait_and_which_may_exclude_hosts(
    names: str, line: str, says: str, server: Served, check: Check
) -> None:
    found = check(_enabled(server, names, line))
    code, details = found["Reports"]
    assert code == WARNING
    assert max(code for code, _ in found.values()) == WARNING
    assert details.startswith(says)


def test_filters_in_shadow_are_checked_as_well(
    server: Served, check: Check
) -> None:
    text = _enabled(
        server,
        "compute_status",
        "shadow_filters = hpet",
        "decision_history = true",
    )
    found = check(text)
    assert found["Configuration"] == (
        SUCCESS,
        "Request filters enabled: compute_status. In shadow: hpet.",
    )
    code, details = found["Traits in Placement"]
    assert code == WARNING
    assert "(hpet)" in details
    code, details = found["Reports"]
    assert code == WARNING
    assert details.startswith(
        f"hpet (in shadow) waits for 1 compute node ({HOST}) without a report."
    )


def test_shadow_without_metrics_and_history_is_a_warning(
    server: Served, check: Check
) -> None:
    found = check(_enabled(server, "", "shadow_filters = compute_status"))
    code, details = found["Configuration"]
    assert code == WARNING
    assert details.startswith(
        "[prefilter] shadow_filters has no effect: set decision_history"
    )
    # Filters in shadow alone are some.
    assert "no filter runs" not in details


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ("hpett", "shadow_filters: the request filter 'hpett' cannot be used"),
        ("hpet", "shadow_filters: 'hpet' is in enabled_filters too"),
    ],
)
def test_wrong_name_in_shadow_is_a_failure(
    names: str, says: str, server: Served, check: Check
) -> None:
    found = check(_enabled(server, "hpet", f"shadow_filters = {names}"))
    code, details = found["Configuration"]
    assert code == FAILURE
    assert says in details


def test_entry_point_is_missing_for_shadow_filters_too(
    server: Served, check: Check
) -> None:
    text = _enabled(server, "", "shadow_filters = compute_status")
    found = check(text.replace(LINES, ""))
    assert found["Entry point"][0] == FAILURE


def test_missing_trait_is_no_failure_of_a_filter_in_shadow(
    server: Served, check: Check
) -> None:
    """Nothing requires it, so that Placement refuses no request."""
    options = ("owner_trait = CUSTOM_OF_NONE", "wait_for_reports = false")
    enabled = check(_enabled(server, "owner", *options))
    assert enabled["Traits in Placement"][0] == FAILURE
    in_shadow = check(_enabled(server, "", "shadow_filters = owner", *options))
    assert in_shadow["Traits in Placement"][0] == WARNING


def test_custom_traits_of_rules_are_left_to_the_scheduler_and_a_cloud_without_compute_nodes_is_named(
    server: Served, check: Check, tmp_path: Path
) -> None:
    """It creates them; a standard trait it cannot create."""
    folder = tmp_path / "rules"
    folder.mkdir()
    write_rules(
        folder / "x.yaml",
        rule(
            "x", "{image_property: os_type, is: windows}", ["CUSTOM_OF_A_RULE"]
        ),
    )
    put_traits(server.placement, lambda traits: traits.discard("COMPUTE_NODE"))
    found = check(
        _enabled(server, "rules,image_type", f"rules_dirs = {folder}")
    )
    assert found["Traits in Placement"] == (SUCCESS, NO_DETAILS)
    says = (
        "There is no compute node: no provider in Placement has the trait"
        " COMPUTE_NODE."
    )
    assert found["Reports"] == (WARNING, says)


def test_standard_trait_that_placement_lacks_gives_a_warning_that_names_it(
    check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Placement with an older os-traits."""
    newer = {"COMPUTE_SOUND_MODEL_VIRTIO", "COMPUTE_NET_VIF_MODEL_IGB"}
    old = [trait for trait in os_traits.get_traits() if trait not in newer]
    monkeypatch.setattr(os_traits, "get_traits", lambda *_: old)
    with (
        EmbeddedPlacement(lone_host()) as placement,
        served(placement) as server,
    ):
        found = check(
            _enabled(server, "image_metadata,sound_model,image_type")
        )
    code, details = found["Traits in Placement"]
    assert code == WARNING
    names = (
        "COMPUTE_NET_VIF_MODEL_IGB, COMPUTE_SOUND_MODEL_VIRTIO"
        " (image_metadata, sound_model)"
    )
    assert details.startswith(f"Placement does not know {names}.")
    assert "a newer os-traits in Placement's" in details


def test_placement_that_is_too_old_fails_with_both_microversions(
    server: Served, check: Check
) -> None:
    assert microversion.VERSIONS.pop() == "1.39"
    try:
        found = check(_enabled(server, "hpet"))
    finally:
        microversion.VERSIONS.append("1.39")
    message = (
        "Placement has microversions up to 1.38, and 1.39 is needed. Upgrade"
        " Placement."
    )
    assert found["Placement API"] == (FAILURE, message)
    assert found["Traits in Placement"] == NOT_CHECKED
    assert found["Reports"] == NOT_CHECKED


_STATIC = "[placement]\nauth_type = admin_token\ntoken = t\nendpoint = "


@pytest.mark.parametrize(
    "document",
    [{}, {"versions": []}, {"versions": [{"max_version": "2.x"}]}],
    ids=["empty", "no version", "no number"],
)
def test_url_of_another_service_is_no_placement(
    document: dict[str, Any], server: Served, check: Check
) -> None:
    def answer(_method: str, url: str) -> Answer | None:
        return (200, document) if url == "/" else None

    server.answer = answer
    code, details = check(_enabled(server, "hpet"))["Placement API"]
    assert code == FAILURE
    assert details.startswith(
        "Placement did not respond to GET /: the response is not that of a"
        " Placement"
    )


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            f"{_STATIC}http://127.0.0.1:1\n",
            "Placement did not respond to GET /: ",
        ),
        ("", "it has no section [placement]"),
    ],
)
def test_unusable_placement_fails_and_the_other_checks_still_run(
    section: str, message: str, check: Check
) -> None:
    found = check(f"{section}{LINES}[prefilter]\nenabled_filters = hpet\n")
    assert found["Placement API"][0] == FAILURE
    assert message in found["Placement API"][1]
    assert found["Traits in Placement"] == NOT_CHECKED
    assert found["Reports"] == NOT_CHECKED
    assert found["Configuration"][0] == SUCCESS
    assert found["Entry point"][0] == SUCCESS


_LOGIN = """username = nova
password = hunter2
project_name = p
user_domain_id = d
project_domain_id = d
"""


def test_silent_login_shows_no_password(conf: Path, capsys: Capture) -> None:
    """keystoneauth1 would log the URL of a Keystone that does not respond."""
    silent = (
        "auth_type = password\nauth_url = http://nova:hunter2@127.0.0.1:9/v3\n"
    )
    conf.write_text(f"{LINES}[placement]\n{silent}{_LOGIN}")
    assert main(["--config-file", str(conf), "upgrade", "check"]) == FAILURE
    out, err = capsys.readouterr()
    assert err == f"Configuration of nova-scheduler: {conf}.\n"
    assert "hunter2" not in out


def test_refused_login_names_the_section_and_shows_no_password(
    check: Check,
) -> None:
    with others() as keystone:
        answer = keystone.answer

        def refuse(method: str, path: str) -> tuple[int, object]:
            if method != "POST":
                return answer(method, path)
            return 401, {"error": {"code": 401, "message": "no"}}

        keystone.answer = refuse  # type: ignore[method-assign]
        section = (
            "[placement]\nauth_type = password\nauth_url ="
            f" {keystone.url}/v3\n{_LOGIN}"
        )
        found = check(f"{section}{LINES}[prefilter]\nenabled_filters = hpet\n")
    code, details = found["Placement API"]
    assert code == FAILURE
    assert details.endswith(
        "The login was refused: correct the user and the password in the"
        " section [placement]."
    )
    assert "hunter2" not in details


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (
            "enabled_filters = hpett",
            FAILURE,
            "[prefilter] enabled_filters: the request filter 'hpett' cannot",
        ),
        (
            "enabled_filters = hpet\nconfig_templates = /none.yaml",
            FAILURE,
            "[prefilter] config_templates: /none.yaml",
        ),
        ("", WARNING, "[prefilter] enabled_filters is empty: no filter runs."),
        (
            "enabled_filters = rules",
            WARNING,
            "The filter 'rules' is inactive: set [prefilter] rules_dirs.",
        ),
    ],
)
def test_configuration_problem_is_reported_as_the_scheduler_would(
    options: str, code: int, message: str, server: Served, check: Check
) -> None:
    found = check(f"{nova_conf(server.url)}{LINES}[prefilter]\n{options}\n")
    assert found["Configuration"][0] == code
    assert message in found["Configuration"][1]
    assert (found["Reports"] == NOT_CHECKED) == (code == FAILURE)


_NOVAS = "nova.scheduler.filters.all_filters"
_OURS = "os_prefilter.nova.activate"
_COMPUTE = "nova.scheduler.filters.compute_filter.ComputeFilter"


def _with_entry_points(server: Served, *values: str, more: str = "") -> str:
    lines = "".join(f"available_filters = {value}\n" for value in values)
    return (
        f"{nova_conf(server.url)}[filter_scheduler]\n{lines}[prefilter]\n"
        f"enabled_filters = hpet\n{more}\n"
    )


@pytest.mark.parametrize(
    "values",
    [(_NOVAS, _OURS), (_COMPUTE, _OURS)],
    ids=["all of Nova's filters", "one of Nova's filters"],
)
def test_entry_point_after_novas_own_filters_is_a_success(
    values: tuple[str, ...], server: Served, check: Check
) -> None:
    text = _with_entry_points(server, *values)
    code, details = check(text)["Entry point"]
    assert code == SUCCESS
    assert "Write both lines" not in (details or "")


@pytest.mark.parametrize(
    ("switch", "enabled", "said"),
    [
        (
            "image_metadata_prefilter = true",
            "image_metadata",
            "[scheduler] image_metadata_prefilter: image_metadata runs in"
            " place of Nova's filter.",
        ),
        (
            "query_placement_for_image_type_support = true",
            "image_metadata",
            "[scheduler] query_placement_for_image_type_support: Nova's filter"
            " runs, as image_type is not enabled.",
        ),
        ("image_metadata_prefilter = false", "image_metadata", None),
    ],
    ids=["ours is enabled", "ours is not", "off"],
)
def test_entry_point_check_says_which_filter_runs_where_nova_has_a_switch(
    switch: str, enabled: str, said: str | None, server: Served, check: Check
) -> None:
    text = f"{_enabled(server, enabled)}[scheduler]\n{switch}\n"
    code, details = check(text)["Entry point"]
    assert code == SUCCESS
    assert details == said


def test_entry_point_check_names_a_switch_that_is_no_boolean(
    server: Served, check: Check
) -> None:
    text = f"{_enabled(server, 'hpet')}[scheduler]\nimage_metadata_prefilter = x\n"
    code, details = check(text)["Entry point"]
    assert code == FAILURE
    assert "image_metadata_prefilter" in details


def test_entry_point_before_novas_own_filters_is_a_warning(
    server: Served, check: Check
) -> None:
    text = _with_entry_points(server, _OURS, _NOVAS)
    code, details = check(text)["Entry point"]
    assert code == WARNING
    assert "has lines after" in details
    assert "Write both lines" not in details


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ((), f"has no line with {_OURS}"),
        ((_NOVAS,), f"has no line with {_OURS}"),
        ((_NOVAS, "os_prefilter.nova.activat"), f"has no line with {_OURS}"),
        (
            (_OURS,),
            (
                "lacks Nova's own host filters, so that nova-scheduler does"
                " not start"
            ),
        ),
    ],
    ids=["no line", "Nova's alone", "misspelt", "ours alone"],
)
def test_entry_point_check_says_which_lines_to_write(
    values: tuple[str, ...], problem: str, server: Served, check: Check
) -> None:
    text = _with_entry_points(server, *values)
    code, details = check(text)["Entry point"]
    assert code == FAILURE
    assert problem in details
    assert (
        f"Write both lines: 'available_filters = {_NOVAS}' and"
        f" 'available_filters = {_OURS}'."
    ) in details


def test_missing_entry_point_is_a_warning_while_no_filter_is_enabled(
    server: Served, check: Check
) -> None:
    code, _ = check(nova_conf(server.url))["Entry point"]
    assert code == WARNING


@pytest.mark.parametrize(
    ("more", "lines", "expected"),
    [
        ("", (_NOVAS, _OURS), SUCCESS),
        ("", (_OURS, _NOVAS), WARNING),
        ("", (_NOVAS, _OURS, "acme.filters"), WARNING),
        ("count_hosts = false", (_OURS, _NOVAS), SUCCESS),
    ],
)
def test_swapped_lines_are_a_warning_where_hosts_are_counted(
    more: str,
    lines: tuple[str, ...],
    expected: int,
    server: Served,
    check: Check,
) -> None:
    """Nova keeps the later of two classes with one name: its own instead of
    those that count.
    """
    text = _with_entry_points(server, *lines, more=more)
    code, details = check(text)["Entry point"]
    assert code == expected
    assert (f"{_OURS} the last one" in (details or "")) == (
        expected == WARNING
    )


@pytest.mark.parametrize(
    "argv",
    [
        ["upgrade", "check", "--config-file", "{conf}"],
        ["upgrade", "check", "--json", "--config-file={conf}"],
        ["upgrade", "--config-file", "{conf}", "check"],
        ["--config-file", "{conf}", "upgrade", "check"],
        [
            "upgrade",
            "check",
            "--config-dir",
            "{folder}",
            "--config-file",
            "{conf}",
        ],
    ],
    ids=" ".join,
)
def test_configuration_is_named_before_or_after_the_verb(
    argv: list[str],
    server: Served,
    conf: Path,
    tmp_path: Path,
    capsys: Capture,
) -> None:
    conf.write_text(
        f"{nova_conf(server.url)}[prefilter]\nenabled_filters = hpet\n{LINES}"
    )
    folder = tmp_path / "nova.conf.d"
    folder.mkdir()
    main([each.format(conf=conf, folder=folder) for each in argv])
    sys.stdout.flush()
    out, err = capsys.readouterr()
    assert "Request filters enabled: hpet." in out
    assert str(conf) in err or "--json" in argv


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["upgrade", "check", "--config-file", ""],
            "--config-file: the value is empty",
        ),
        (
            ["--config-file=", "upgrade", "check"],
            "--config-file: the value is empty",
        ),
        (
            ["upgrade", "check", "--config-dir="],
            "--config-dir: the value is empty",
        ),
        (
            ["upgrade", "check", "--config-file"],
            "--config-file: it needs a value",
        ),
        (
            ["upgrade", "check", "--config-dir", "--json"],
            "--config-dir: it needs a value",
        ),
    ],
)
def test_configuration_without_a_name_is_a_failure(
    argv: list[str], message: str, capsys: Capture
) -> None:
    assert main(argv) == FAILURE
    assert (
        capsys.readouterr().err
        == f"{message}. Give a path, or leave the option out.\n"
    )


def test_default_of_available_filters_is_novas() -> None:
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[], default_config_dirs=[])
    (novas,) = [
        each
        for each in scheduler.filter_scheduler_opts
        if each.name == "available_filters"
    ]
    assert available_filters(conf, "nova.conf") == novas.default


def test_config_dir_adds_lines_as_nova_reads_them(
    server: Served, check: Check, tmp_path: Path
) -> None:
    folder = tmp_path / "nova.conf.d"
    folder.mkdir()
    (folder / "os-prefilter.conf").write_text(
        f"{LINES}[prefilter]\nenabled_filters = hpet\n"
    )
    found = check(nova_conf(server.url), "--config-dir", str(folder))
    assert found["Entry point"][0] == SUCCESS
    assert found["Configuration"] == (
        SUCCESS,
        "Request filters enabled: hpet.",
    )


def test_default_files_are_those_of_nova_scheduler(
    server: Served,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    folder = tmp_path / ".nova"
    (folder / "nova-scheduler.conf.d").mkdir(parents=True)
    (folder / "nova.conf").write_text(nova_conf(server.url))
    (folder / "nova-scheduler.conf").write_text(
        "[prefilter]\nenabled_filters = hpet\n"
    )
    (folder / "nova-scheduler.conf.d" / "lines.conf").write_text(LINES)
    monkeypatch.setenv("HOME", str(tmp_path))
    main(["upgrade", "check", "--json"])
    checks = json.loads(capsys.readouterr().out)["checks"]
    results = [each["result"] for each in checks[:3]]
    assert results == [SUCCESS, SUCCESS, SUCCESS]


def test_help_says_what_the_check_is_for(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    sys.stdout.flush()
    assert ended.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "what to correct before nova-scheduler is restarted" in text


def test_missing_nova_conf_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("oslo_config.cfg._search_dirs", lambda *_: None)
    assert main(["upgrade", "check"]) == FAILURE
    error = (
        "The configuration cannot be read: /etc/nova: there is no nova.conf."
        " Correct it, or give --config-file.\n"
    )
    assert capsys.readouterr() == ("", error)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.conf", "Failed to find some config files"),
        ("broken.conf", "broken.conf"),
        ("binary.conf", "nova.conf: 'utf-8' codec can't decode"),
        # Its reader would wait for ever.
        ("pipe.conf", "pipe.conf: this is a named pipe"),
    ],
)
def test_unreadable_configuration_gives_one_line_and_exit_code_2(
    name: str, message: str, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "broken.conf").write_text("[placement]\npassword hunter2\n")
    (tmp_path / "binary.conf").write_bytes(b"[a]\nb = \xff\n")
    os.mkfifo(tmp_path / "pipe.conf")
    assert (
        main(["--config-file", str(tmp_path / name), "upgrade", "check"])
        == FAILURE
    )
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("The configuration cannot be read: ")
    assert message in err
    assert name in err
    assert len(err.splitlines()) == 1
    assert "hunter2" not in err


def test_nova_of_another_release_is_a_warning(
    server: Served, check: Check, install: Callable[[str, str], None]
) -> None:
    install("nova", "99.0.0")
    code, details = check(_enabled(server, "noop"))["Versions"]
    assert code == WARNING
    assert ", not with Nova 99.0.0. The filters run all the same" in details


def test_page_shows_what_the_command_prints(
    conf: Path,
    tmp_path: Path,
    capsys: Capture,
    install: Callable[[str, str], None],
) -> None:
    """With the fleet and the configuration of the page; nova.conf has a
    Placement in any case.
    """
    install("os-traits", "3.9.0")
    install("nova", "34.0.0")
    files = files_of(DOCS / "nova.rst")
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(files["fleet.yaml"])
    (shown,) = [
        text
        for _, _, text in blocks(DOCS / "commands.rst")
        if text.startswith("$ os-prefilter-status upgrade check\n")
    ]
    with (
        EmbeddedPlacement(load_fleet(fleet)) as placement,
        served(placement) as server,
    ):
        conf.write_text(nova_conf(server.url) + files["nova.conf"])
        _start_scheduler(placement, conf)
        code = main(["--config-file", str(conf), "upgrade", "check"])
    out, err = capsys.readouterr()
    first = err.replace(str(conf), "/etc/nova/nova.conf")
    command = "$ os-prefilter-status upgrade check\n"
    assert f"{command}{first}{out}$ echo $?\n{code}\n" == shown
