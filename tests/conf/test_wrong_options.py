"""What a wrong value of each option does is what its help says: one line that names it, and what to do next."""

from pathlib import Path
from typing import NamedTuple

import pytest
from oslo_config import cfg

from os_prefilter import Pipeline
from os_prefilter.common.errors import ConfigurationError
from os_prefilter.conf import OPTIONS

_ADVICE = ("Correct ", "Remove ", "Check ", "Give ", "Enable ", "Use ", "Write ", "pip install ", "expected ", "Pass ")


class Wrong(NamedTuple):
    """Lines of a configuration with a value that is wrong, and what the error says of it."""

    option: str
    lines: str
    told: str


_WRONG = [
    Wrong("enabled_filters", "enabled_filters = hpett", "names 'hpett', which no installed .* Did you mean hpet\\?"),
    Wrong(
        "enabled_filters", "enabled_filters = warp", "names 'warp', which no installed .* Known filters: accelerators, "
    ),
    Wrong("enabled_filters", "enabled_filters = hpet,,owner", "a name in it is empty"),
    Wrong("enabled_filters", "enabled_filters = hpet,hpet", "'hpet' is named twice"),
    Wrong("trait_scope", "trait_scope = both", "trait_scope in FILE is not valid: .*found 'both'"),
    Wrong("trait_scope", "trait_scope =", "trait_scope in FILE is not valid: .*found ''"),
    Wrong("no_host_reason", "no_host_reason = yes", "no_host_reason in FILE is not valid: .*found 'yes'"),
    Wrong("unknown_values", "unknown_values = ignore", "unknown_values in FILE is not valid: .*found 'ignore'"),
    Wrong(
        "reported_traits",
        "reported_traits = CUSTOM_HPT",
        "'CUSTOM_HPT' matches no trait that is required only if.* Close to it: .*CUSTOM_COMPUTE_TIME_HPET",
    ),
    Wrong("reported_traits", "reported_traits = HW_CPU_*", r"'HW_CPU_\*' matches no trait"),
    Wrong(
        "emulated_architectures",
        "emulated_architectures = arm64",
        "'arm64' is not an architecture. Those that exist: aarch64, ",
    ),
    Wrong("emulated_architectures", "emulated_architectures = aarch64,,s390x", "'' is not an architecture"),
    Wrong("emulated_architectures", "emulated_architectures = *", r"'\*' is not an architecture"),
    Wrong("config_templates", "config_templates = /no/such.yaml", "/no/such.yaml: there is no such file"),
    Wrong("config_templates", "config_templates = /etc", "this is a directory; give the path of a file"),
    Wrong("config_templates", "config_templates = $state/x", "no such option state in group .*Write \\$\\$ for a \\$"),
    Wrong(
        "rules_dirs",
        "enabled_filters = rules\nrules_dirs = /no/such",
        "/no/such: the directory of rules cannot be read",
    ),
    Wrong("rules_dirs", "enabled_filters = rules\nrules_dirs = ,/etc", "a directory in it is empty"),
    Wrong("facts_interval", "facts_interval = -1", "facts_interval in FILE is not valid: .*greater than or equal to 0"),
    Wrong("facts_interval", "facts_interval = soon", "facts_interval in FILE is not valid: .*'soon'"),
    Wrong("facts_interval", "facts_interval = nan", "nan is not a number of seconds"),
    Wrong("facts_interval", "facts_interval = inf", "inf is not a number of seconds"),
    Wrong("facts_interval", "facts_interval =", "it is empty.*remove the line for 60.0"),
    Wrong("wait_for_answers", "wait_for_answers = hpett", "'hpett' is not an installed filter. .*Installed.*hpet, "),
    Wrong("wait_for_answers", "wait_for_answers = *,hpett", "'hpett' is not an installed filter"),
    Wrong("wait_for_answers", "wait_for_answers = hp\n  et", r"'hp\\net' is not an installed filter"),
    Wrong("wait_for_answers", "wait_for_answers = ,hpet", "'' is not an installed filter"),
    Wrong(
        "wait_for_answers", "enabled_filters = owner\nwait_for_answers = owner\nowner_gate = always", "has its own gate"
    ),
    Wrong(
        "wait_for_answers",
        "enabled_filters = hpet\nwait_for_answers = *",
        "fact 'answers', which the embedding service does not provide",
    ),
    Wrong(
        "preferred_properties",
        "preferred_properties = hw_time_hpt",
        "'hw_time_hpt' is not a property that a request filter requires a trait for. .*hw_time_hpet, .* time_hpet, ",
    ),
    Wrong("tenant_aggregate_required", "tenant_aggregate_required = all", "tenant_aggregate_required in FILE is not"),
    Wrong("preferred_properties", "preferred_properties = hw_time_hpet,,sound_model", "'' is not a property"),
    # Nova requires its trait while it builds the query.
    Wrong("preferred_properties", "preferred_properties = os_secure_boot", "'os_secure_boot' is not a property that"),
    Wrong(
        "preferred_weight_multiplier",
        "preferred_weight_multiplier = much",
        "preferred_weight_multiplier in FILE is not valid: .*'much'",
    ),
    Wrong("preferred_weight_multiplier", "preferred_weight_multiplier = nan", "nan is not a number to multiply with"),
    Wrong("metrics", "metrics = maybe", "metrics in FILE is not valid: .*'maybe'"),
    Wrong("decision_history", "decision_history = 1000", "decision_history in FILE is not valid: .*'1000'"),
    Wrong("owner_trait", "owner_trait = owner", "'owner' is not a trait name"),
    Wrong("owner_trait", "owner_trait =", "'' is not a trait name"),
    Wrong("foreign_owner_traits", "foreign_owner_traits = a-b", "'a-b' is not a trait name"),
    Wrong("foreign_owner_traits", "foreign_owner_traits = OWNER_NOVA", "it names OWNER_NOVA, the own owner_trait"),
    Wrong("owned_resource_classes", "owned_resource_classes = CPUS", "'CPUS' is not a resource class, nor a pattern"),
    Wrong("owner_gate", "owner_gate = never", "owner_gate in FILE is not valid: .*found 'never'"),
    Wrong("owner_gate", "owner_gate = coverage\nowned_resource_classes = VGPU", "coverage looks at compute nodes"),
    Wrong("owner_gate", "enabled_filters = owner\nowner_gate = coverage", "coverage from the fact owner_coverage"),
    Wrong("owner_gate", "enabled_filters = owner", "owner_gate = compute_version .*minimum_compute_version"),
    Wrong(
        "owner_compute_version", "owner_compute_version = 0", "owner_compute_version in FILE is not valid: .*equal to 1"
    ),
    Wrong(
        "owner_compute_version", "owner_compute_version = new", "owner_compute_version in FILE is not valid: .*'new'"
    ),
    Wrong("owner_compute_version", "owner_compute_version =", "it is empty.*remove the line for 73"),
]


@pytest.fixture
def nova_conf(tmp_path: Path) -> Path:
    return tmp_path / "nova.conf"


def _started(path: Path, lines: str) -> Pipeline:
    """Start as a service does, on a file with these lines."""
    path.write_text(f"[prefilter]\n{lines.replace('FILE', str(path))}\n", encoding="utf-8")
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[str(path)])
    return Pipeline.from_conf(conf)


@pytest.mark.parametrize("wrong", _WRONG, ids=lambda wrong: wrong.lines.replace("\n", "; "))
def test_wrong_value_stops_the_service_with_one_line_that_names_option_and_fix(wrong: Wrong, nova_conf: Path) -> None:
    """One error class, one line: the group, the option, the value or the file, and what to do next."""
    with pytest.raises(ConfigurationError, match=wrong.told.replace("FILE", str(nova_conf))) as raised:
        _started(nova_conf, wrong.lines)
    text = str(raised.value)
    assert text.isprintable()
    assert wrong.option in text
    assert "[prefilter]" in text
    assert "LocationInfo" not in text
    assert any(advice.lower() in text.lower() for advice in _ADVICE), text


def test_every_option_has_a_case_with_a_wrong_value() -> None:
    assert {wrong.option for wrong in _WRONG} == {option.name for option in OPTIONS}


@pytest.mark.parametrize(
    "lines",
    [
        "enabled_filters =",
        "foreign_owner_traits =",
        "rules_dirs =",
        "config_templates =",
        "facts_interval = 0",
        "reported_traits = *",
        "emulated_architectures =",
        "emulated_architectures = aarch64, i686",
        "rules_dirs = /no/such",
        "wait_for_answers = hpet",
        "decision_history = 1",
    ],
)
def test_edge_value_of_an_option_is_accepted(lines: str, nova_conf: Path) -> None:
    assert _started(nova_conf, lines).filters == ()


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            "enabled_filtres = hpet",
            "[prefilter] has no option 'enabled_filtres'; the line is ignored. Did you mean enabled_filters?",
        ),
        (
            "Trait_Scope = root",
            "[prefilter] has no option 'Trait_Scope'; the line is ignored. Did you mean trait_scope?",
        ),
        ("warp = 9", "[prefilter] has no option 'warp'; the line is ignored."),
        (
            "[prefliter]\nenabled_filters = hpet",
            "the section [prefliter] is not one of os-prefilter. Did you mean prefilter?",
        ),
        ("[Prefilter]\nwarp = 9", "[prefilter] has no option 'warp'; the line is ignored."),
        ("enabled_filters = hpet\ntrait_scope = root\n[filter_scheduler]\nwarp = 9\n[placement]\nuser = x", ""),
    ],
)
def test_name_that_no_option_has_is_warned_of_with_the_nearest(
    lines: str, told: str, nova_conf: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _started(nova_conf, lines)
    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert warnings == [f"{nova_conf}: {told}"] * bool(told)


def test_names_in_a_directory_of_configuration_are_read_as_well(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.conf").write_text("[prefilter]\nenabled_filter = hpet\n", encoding="utf-8")
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[], default_config_dirs=[str(tmp_path)])
    Pipeline.from_conf(conf)
    assert f"{tmp_path}/a.conf: [prefilter] has no option 'enabled_filter'" in caplog.text
