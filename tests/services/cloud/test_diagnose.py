"""A diagnosis of a live cloud: of a server that failed, on hosts that are there; nothing is written."""

import json
from typing import Any

import pytest

from os_prefilter.adapters.cloud import connection as clouds
from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.cli.main import main
from tests.services.cloud.cloud import Cloud

Capture = pytest.CaptureFixture[str]

_SERVERS: list[str] = []


@pytest.fixture(scope="module")
def _failed(whole_cloud: Cloud) -> None:
    image = whole_cloud.image("impossible", active=True, hw_architecture="aarch64", hw_time_hpet="yes")
    whole_cloud.flavor("diagnosed", "diagnosed", {})
    _SERVERS.append(whole_cloud.server("diagnosed", image))


def _diagnosed(capsys: Capture, *argv: str, code: int) -> Any:
    assert main(["diagnose", "--os-cloud", "admin", *argv, "-f", "json"]) == code
    return json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("_failed")
def test_diagnose_names_the_conflicting_traits_of_a_failed_server(cloud: Cloud, capsys: Capture) -> None:
    found = _diagnosed(capsys, "--server", _SERVERS[0], code=2)
    assert (found["stage"], found["hosts"], found["candidates"]) == ("no-candidates", 11, [])
    names = {each["number"]: each["names"][0] for each in found["requirements"]}
    (conflict,) = found["conflicts"]
    assert {names[number] for number in conflict["requirements"]} == {"CUSTOM_COMPUTE_TIME_HPET", "HW_ARCH_AARCH64"}
    assert conflict["ever"]
    assert sum(each["count"] for each in found["accounts"]) == 11
    assert any(note.startswith("The fleet was read at ") for note in found["notes"])
    assert cloud.written == []


def test_live_diagnosis_equals_that_of_the_same_hosts_in_a_file(cloud: Cloud, capsys: Capture) -> None:
    for name, code in (("intel-nic", 0), ("nova-vgpu", 0), ("impossible", 2)):
        live = _diagnosed(capsys, "--example", name, code=code)
        assert main(["diagnose", "--example", name, "-f", "json"]) == code
        of_file = json.loads(capsys.readouterr().out)
        for changing in ("taken_at", "notes"):
            live.pop(changing), of_file.pop(changing)
        assert live == of_file
    assert cloud.written == []


def test_trait_unknown_to_placement_is_diagnosed_as_refused(cloud: Cloud, capsys: Capture) -> None:
    found = _diagnosed(capsys, "--extra-spec", "trait:CUSTOM_NOWHERE=required", code=2)
    assert found["stage"] == "refused"
    assert "CUSTOM_NOWHERE" in found["message"]
    assert [each["state"] for each in found["requirements"] if each["names"] == ["CUSTOM_NOWHERE"]] == ["unknown"]
    assert cloud.written == []


def test_hanging_placement_is_diagnosed_as_no_answer(
    cloud: Cloud, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of the SDK's own question for the versions of Placement, which comes first.
    monkeypatch.setattr(clouds, "TIMEOUT", 0.5)
    monkeypatch.setattr(clouds, "PlacementClient", lambda adapter: PlacementClient(adapter, timeout=0.5))
    before, cloud.placement.before = cloud.placement.before, cloud.placement.hang
    try:
        found = _diagnosed(capsys, "--property", "hw_vif_model=igb", code=1)
    finally:
        cloud.placement.before = before
    assert found["stage"] == "no-answer"
    assert "Placement did not answer" in found["message"]
