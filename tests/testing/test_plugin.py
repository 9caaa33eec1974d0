"""The plugin of pytest: what its fixtures give, and that it costs others nothing."""

import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

import os_prefilter_tools.pytest_plugin
from os_prefilter import NOTHING, Request, RequestGroup, Requirements, capability_traits, require
from os_prefilter.common.errors import ConfigurationError, DocumentError, MissingFact
from os_prefilter.hosts.drivers.vmware import VmwareFacts
from os_prefilter_tools.operators.candidates import find_candidates

Make = Callable[..., Any]
_FLEET = {"hosts": {"one": {"resources": {"VCPU": 8, "MEMORY_MB": 8192, "DISK_GB": 9}, "traits": ["CUSTOM_QUIET"]}}}


def quiet(request: Request, *, night: bool) -> Requirements:
    return require("CUSTOM_QUIET", "the fact night") if night else NOTHING


def test_prefilter_request_builds_a_request_from_its_arguments(prefilter_request: Make) -> None:
    group = RequestGroup("port", {"VGPU": 1})
    spec = prefilter_request({"a": 1}, {"b": "2"}, disk_format="raw", is_bfv=True, requested_resources=[group])
    assert (spec.image.properties, spec.image.disk_format, spec.flavor.extra_specs) == ({"a": 1}, "raw", {"b": "2"})
    assert (spec.is_bfv, spec.requested_resources) == (True, [group])
    assert prefilter_request(None).image is None


def test_prefilter_pipeline_accepts_filter_names_and_functions(
    prefilter_pipeline: Make, prefilter_request: Make
) -> None:
    pipeline = prefilter_pipeline("hpet", quiet, facts={"night": True})
    decision = pipeline.apply(prefilter_request({"hw_time_hpet": "yes"}))
    assert {item.filter for item in decision.requirements} == {"hpet", "quiet"}
    with pytest.raises(MissingFact):
        prefilter_pipeline(quiet)


def test_prefilter_placement_holds_the_given_fleet(
    prefilter_placement: Make, prefilter_pipeline: Make, prefilter_request: Make, tmp_path: Path
) -> None:
    pipeline = prefilter_pipeline(quiet, facts={"night": True})
    (tmp_path / "fleet.yaml").write_text("hosts: {two: {resources: {VCPU: 8, MEMORY_MB: 8192, DISK_GB: 9}}}")
    for fleet, hosts in ((_FLEET, ("one",)), (tmp_path / "fleet.yaml", ())):
        assert find_candidates(prefilter_request(), pipeline, prefilter_placement(fleet)).candidates.hosts == hosts
    with pytest.raises(DocumentError, match="the fleet of the test"):
        prefilter_placement({"hosts": {}})


def test_prefilter_facts_builds_fake_facts_or_those_of_a_given_class(prefilter_facts: Make) -> None:
    assert capability_traits(prefilter_facts(can={"vif_model": ["igb"]}))["COMPUTE_NET_VIF_MODEL_IGB"]
    assert isinstance(prefilter_facts(VmwareFacts, host="v"), VmwareFacts)


def test_plugin_is_registered_and_exports_only_prefilter_fixtures() -> None:
    (point,) = (each for each in entry_points(group="pytest11") if each.value == "os_prefilter_tools.pytest_plugin")
    assert point.load() is os_prefilter_tools.pytest_plugin
    public = {name for name in vars(os_prefilter_tools.pytest_plugin) if not name.startswith("_")}
    own = {
        name
        for name in public
        if getattr(vars(os_prefilter_tools.pytest_plugin)[name], "__module__", "") == point.value
    }
    assert own == {"prefilter_facts", "prefilter_pipeline", "prefilter_placement", "prefilter_request"}
    assert not {name for name in public if name.startswith("pytest_")}


def test_importing_the_plugin_imports_nothing_of_os_prefilter() -> None:
    code = "import sys, os_prefilter_tools.pytest_plugin; print([name for name in sys.modules if 'prefilter' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['os_prefilter_tools', 'os_prefilter_tools.pytest_plugin']\n"


def test_missing_hypothesis_error_names_the_testing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("os_prefilter_tools.testing")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(ConfigurationError, match="The test kit needs hypothesis, which is not installed: pip install"):
        import_module("os_prefilter_tools.testing")
