# SPDX-License-Identifier: Apache-2.0

"""A wrong value of an option stops the service, with one line of advice."""

from __future__ import annotations

from pathlib import Path

import pytest
from oslo_config import cfg

from os_prefilter.common.errors import ConfigurationError
from os_prefilter.service import Service
from os_prefilter.service.option_definitions import OPTIONS

_ADVICE = (
    "Correct ",
    "Remove ",
    "Check ",
    "Give ",
    "Enable ",
    "Use ",
    "Write ",
    "pip install ",
    "expected ",
    "Pass ",
)


# The option, lines of a configuration with a wrong value, and what the error
# says of it.
_WRONG: list[tuple[str, str, str]] = [
    (
        "enabled_filters",
        "enabled_filters = hpett",
        "'hpett' cannot be used: no installed .*nearest name is hpet\\.",
    ),
    (
        "enabled_filters",
        "enabled_filters = hpet,,owner",
        "a name in it is empty",
    ),
    (
        "shadow_filters",
        "shadow_filters = hpett",
        "'hpett' cannot be used: no installed .*nearest name is hpet\\.",
    ),
    (
        "shadow_filters",
        "enabled_filters = hpet\nshadow_filters = owner,hpet",
        "'hpet' is in enabled_filters too. Remove one",
    ),
    (
        "trait_scope",
        "trait_scope = both",
        "trait_scope in FILE is not valid: .*found 'both'",
    ),
    (
        "no_host_reason",
        "no_host_reason = yes",
        "no_host_reason in FILE is not valid: .*found 'yes'",
    ),
    (
        "count_hosts",
        "count_hosts = all",
        "count_hosts in FILE is not valid: .*'all'",
    ),
    (
        "unknown_values",
        "unknown_values = ignore",
        "unknown_values in FILE is not valid: .*found 'ignore'",
    ),
    (
        "reported_traits",
        "reported_traits = CUSTOM_HPT",
        "'CUSTOM_HPT' is no.* include CUSTOM_COMPUTE_TIME_HPET, ",
    ),
    (
        "reported_traits",
        "reported_traits = HW_CPU_*",
        r"'HW_CPU_\*' is not a trait",
    ),
    (
        "config_templates",
        "config_templates = /no/such.yaml",
        "/no/such.yaml: there is no such file",
    ),
    (
        "config_templates",
        "config_templates = $state/x",
        "no such option state in group .*Write \\$\\$ for a \\$",
    ),
    (
        "rules_dirs",
        "enabled_filters = rules\nrules_dirs = /no/such",
        "/no/such: the directory of rules cannot be read",
    ),
    (
        "rules_dirs",
        "enabled_filters = rules\nrules_dirs = /dev/null",
        "/dev/null: the directory .* Not a directory",
    ),
    ("rules_dirs", "enabled_filters = rules\nrules_dirs = a\0b", r"a\\x00b"),
    (
        "rules_dirs",
        "enabled_filters = rules\nrules_dirs = ,/etc",
        "a directory in it is empty",
    ),
    (
        "facts_interval",
        "facts_interval = -1",
        "facts_interval in FILE is not valid: .*greater than or equal to 0",
    ),
    (
        "facts_interval",
        "facts_interval =",
        "it is empty.*remove the line for 60.0",
    ),
    ("facts_interval", "facts_interval = 1801", "less than or equal to 1800"),
    (
        "nova_builds_guests",
        "nova_builds_guests = 3",
        "nova_builds_guests in FILE is not valid: .*'3'",
    ),
    (
        "require_implied_devices",
        "require_implied_devices = x",
        "require_implied_devices in FILE is not valid: .*'x'",
    ),
    (
        "wait_for_reports",
        "wait_for_reports = hpet",
        "wait_for_reports in FILE is not valid: .*'hpet'",
    ),
    (
        "preferred_properties",
        "preferred_properties = hw_time_hpt",
        "'hw_time_hpt' is no.* hw_time_hpet, time_hpet",
    ),
    (
        "tenant_aggregate_required",
        "tenant_aggregate_required = all",
        "tenant_aggregate_required in FILE is not",
    ),
    # Nova requires its trait while it builds the query.
    (
        "preferred_properties",
        "preferred_properties = os_secure_boot",
        "'os_secure_boot' is not a property that",
    ),
    (
        "preferred_weight_multiplier",
        "preferred_weight_multiplier = nan",
        "nan is not a finite number",
    ),
    (
        "live_migration_cpu_weight_multiplier",
        "live_migration_cpu_weight_multiplier = -1",
        "in FILE is not valid: .*greater than or equal to 0",
    ),
    (
        "live_migration_cpu_weight_multiplier",
        "live_migration_cpu_weight_multiplier = nan",
        "nan is not a finite number",
    ),
    ("metrics", "metrics = maybe", "metrics in FILE is not valid: .*'maybe'"),
    (
        "decision_history",
        "decision_history = 1000",
        "decision_history in FILE is not valid: .*'1000'",
    ),
    (
        "owner_trait",
        "owner_trait = owner",
        "owner_trait in FILE is not valid: Value 'owner'",
    ),
    (
        "foreign_owner_traits",
        "foreign_owner_traits = a-b",
        "foreign_owner_traits in FILE is not valid: Value 'a-b'",
    ),
    (
        "foreign_owner_traits",
        "foreign_owner_traits = OWNER_NOVA",
        "it names OWNER_NOVA, the own owner_trait",
    ),
    (
        "owned_resource_classes",
        "owned_resource_classes = CPUS",
        "'CPUS' is not a resource class, nor a pattern",
    ),
]


@pytest.fixture
def nova_conf(tmp_path: Path) -> Path:
    return tmp_path / "nova.conf"


def _started(path: Path, lines: str) -> Service:
    """Start as a service does, on a file with these lines."""
    path.write_text(
        f"[prefilter]\n{lines.replace('FILE', str(path))}\n", encoding="utf-8"
    )
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[str(path)])
    return Service.from_conf(conf)


@pytest.mark.parametrize(
    ("option", "lines", "message"),
    _WRONG,
    ids=[lines.replace("\n", " ") for _, lines, _ in _WRONG],
)
def test_wrong_value_stops_the_service_with_one_line_that_names_option_and_fix(
    option: str, lines: str, message: str, nova_conf: Path
) -> None:
    """The line has the group, the option, the value or file, and advice."""
    expected = message.replace("FILE", str(nova_conf))
    with pytest.raises(ConfigurationError, match=expected) as raised:
        _started(nova_conf, lines)
    text = str(raised.value)
    assert text.isprintable()
    assert option in text
    assert "[prefilter]" in text
    assert "LocationInfo" not in text
    assert any(advice.lower() in text.lower() for advice in _ADVICE), text


def test_every_option_has_a_case_with_a_wrong_value() -> None:
    options_with_a_case = {option for option, _, _ in _WRONG}
    assert options_with_a_case == {option.name for option in OPTIONS}


@pytest.mark.parametrize(
    "line",
    [
        "enabled_filters =",
        "foreign_owner_traits =",
        "rules_dirs =",
        "config_templates =",
        "facts_interval = 0",
        "reported_traits = *",
        "rules_dirs = /no",
        "facts_interval = 1800",
        "decision_history = 1",
    ],
)
def test_edge_value_of_an_option_is_accepted(
    line: str, nova_conf: Path
) -> None:
    assert _started(nova_conf, line).filters == ()


@pytest.mark.parametrize(
    ("lines", "warning"),
    [
        (
            "enabled_filtres = hpet",
            (
                "[prefilter] has no option 'enabled_filtres'; the line is"
                " ignored. Did you mean enabled_filters?"
            ),
        ),
        (
            "Trait_Scope = root",
            (
                "[prefilter] has no option 'Trait_Scope'; the line is ignored."
                " Did you mean trait_scope?"
            ),
        ),
        ("warp = 9", "[prefilter] has no option 'warp'; the line is ignored."),
        (
            "[prefliter]\nenabled_filters = hpet",
            (
                "the section [prefliter] is not one of os-prefilter. Did you"
                " mean prefilter?"
            ),
        ),
        (
            "[Prefilter]\nwarp = 9",
            "[prefilter] has no option 'warp'; the line is ignored.",
        ),
    ],
    ids=["option", "capitals", "unlike any", "section", "capital section"],
)
def test_name_that_no_option_has_is_warned_of_with_the_nearest(
    lines: str, warning: str, nova_conf: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _started(nova_conf, lines)
    assert _warnings(caplog) == [f"{nova_conf}: {warning}"]


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        each.getMessage()
        for each in caplog.records
        if each.levelname == "WARNING"
    ]


def test_known_options_and_other_sections_are_not_warned_of(
    nova_conf: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours = "enabled_filters = noop\nwait_for_reports = no"
    others = "[filter_scheduler]\nwarp = 9\n[placement]\nuser = x"
    _started(nova_conf, f"{ours}\n{others}")
    assert _warnings(caplog) == []


def test_names_in_a_directory_of_configuration_are_read_as_well(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = "[prefilter]\nenabled_filter = hpet\n"
    (tmp_path / "a.conf").write_text(lines, encoding="utf-8")
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[], default_config_dirs=[str(tmp_path)])
    Service.from_conf(conf)
    message = f"{tmp_path}/a.conf: [prefilter] has no option 'enabled_filter'"
    assert message in caplog.text
