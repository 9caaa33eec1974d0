"""The history of decisions in Nova's scheduler: by its own context and request spec."""

import json
from pathlib import Path
from typing import Any

import pytest
from nova import exception

from os_prefilter.cli.main import main
from tests.support.nova_objects import nova_spec
from tests.support.nova_start import Start, our_entry, user_context

_SERVER = "0c0a4b6e-6c3b-4d2a-9d0f-0a3f4a1f2b77"


def _recorded(folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    capsys.readouterr()
    assert main(["decisions", str(folder), *options, "-f", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_request_of_a_user_is_found_by_its_request_id_and_by_the_server(
    start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start("image_metadata", "decision_history = 100", f"decision_history_dir = {tmp_path}")
    context = user_context()
    our_entry()(context, nova_spec({"hw_vif_model": "igb"}, instance_uuid=_SERVER))
    for option, value in (("--request-id", context.request_id), ("--server", _SERVER)):
        (found,) = _recorded(tmp_path, capsys, option, value)
        assert [item["trait"] for item in found["requirements"]] == ["COMPUTE_NET_VIF_MODEL_IGB"]
        assert (found["request"], found["server"]) == (context.request_id, _SERVER)
    text = (tmp_path / "decisions-0.jsonl").read_text()
    assert context.user_id not in text


def test_request_without_a_server_and_without_a_context_is_recorded(
    start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start("image_metadata", "decision_history = 100", f"decision_history_dir = {tmp_path}")
    our_entry()(None, nova_spec({"hw_vif_model": "igb"}))
    (found,) = _recorded(tmp_path, capsys)
    assert (found["request"], found["server"], found["result"]) == (None, None, "passed")


def test_rejection_that_the_user_sees_has_the_recorded_reason(
    start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start("sound_model", "decision_history = 100", f"decision_history_dir = {tmp_path}")
    spec = nova_spec({"hw_sound_model": "ac97"}, {"hw:sound_model": "ich6"}, instance_uuid=_SERVER)
    with pytest.raises(exception.RequestFilterFailed) as raised:
        our_entry()(user_context(), spec)
    (found,) = _recorded(tmp_path, capsys, "--rejected")
    assert found["reason"]
    assert found["reason"] in str(raised.value)
