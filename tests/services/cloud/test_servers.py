"""``audit --servers`` on a live cloud: servers of all projects by a real Nova API, their images and hosts."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from os_prefilter.adapters.cloud import connection as clouds
from os_prefilter.adapters.cloud.service import CloudError
from os_prefilter.cli.main import main
from os_prefilter.request.server import Server
from tests.services.cloud.cloud import Cloud

Capture = pytest.CaptureFixture[str]

_MICROVERSION = {"OpenStack-API-Version": "compute 2.98"}


@pytest.fixture(scope="module")
def made(whole_cloud: Cloud) -> dict[str, str]:
    """Make servers, more than one page of them, and no others; return name -> ID."""
    whole_cloud.delete_servers()
    whole_cloud.others.volumes.clear()
    kept = whole_cloud.image("kept", active=True, hw_vif_model="igb")
    gone = whole_cloud.image("gone", active=True, hw_vif_model="e1000e")
    whole_cloud.flavor("audited server", "audited-server", {"trait:HW_CPU_X86_AVX2": "required"}, disk=0)
    servers = {name: whole_cloud.server("audited-server", image) for name, image in (("a", kept), ("b", kept))}
    servers["of an image that is gone"] = whole_cloud.server("audited-server", gone)
    for name in ("a", "b", "c", "d"):
        volume = whole_cloud.others.volume(hw_vif_model="igb")
        servers[f"of volume {name}"] = whole_cloud.server("audited-server", volume=volume)
    servers["of a volume"] = servers["of volume a"]
    whole_cloud.delete_image(gone)
    return servers


def _found(cloud: Cloud, name: str = "admin") -> tuple[dict[str, Server], list[str]]:
    broken: list[str] = []
    return {each.uuid: each for each in clouds.servers(cloud.connection(name), broken.append)}, broken


def _with_rows(cloud: Cloud, change: Callable[[dict[str, Any]], None]) -> None:
    """Change each server in what Nova answers: none of them is built here."""

    def answer(_method: str, path: str) -> tuple[int, object] | None:
        if not path.startswith("/v2.1/servers/detail"):
            return None
        page = cloud.send("GET", cloud.nova, path, **_MICROVERSION)
        for row in page["servers"]:
            change(row)
        return 200, page

    cloud.nova.hook = answer


def test_servers_of_all_pages_have_flavor_image_and_project(cloud: Cloud, made: dict[str, str]) -> None:
    found, broken = _found(cloud)
    assert set(made.values()) <= found.keys()
    assert broken == []
    server = found[made["a"]]
    assert server.request.flavor.extra_specs == {"trait:HW_CPU_X86_AVX2": "required"}
    assert server.request.image
    assert (server.request.image.name, server.request.image.disk_format) == ("kept", "raw")
    assert server.request.image.properties["hw_vif_model"] == "igb"
    # None of them is built.
    assert (server.host, server.request.availability_zone) == ("", None)
    assert server.project
    pages = [each for each in cloud.nova.sent if "/servers/detail" in each]
    assert len(pages) > 1
    assert all("all_tenants=1" in each for each in pages)
    # Once, for both servers.
    kept = server.request.image.id
    assert len([each for each in cloud.glance.sent if each.endswith(f"/images/{kept}")]) == 1
    assert cloud.written == []


def test_image_that_is_gone_and_volume_that_is_not_known_are_named(cloud: Cloud, made: dict[str, str]) -> None:
    found, _ = _found(cloud)
    gone = found[made["of an image that is gone"]]
    assert gone.request.image
    assert gone.request.image.disk_format is None
    assert any("gone from Glance" in each for each in gone.not_judged)
    of_volume = found[made["of a volume"]]
    assert of_volume.request.is_bfv
    assert any("root volume" in each for each in of_volume.not_judged)


def test_audit_of_servers_excludes_their_own_hosts_and_writes_nothing(
    cloud: Cloud, made: dict[str, str], capsys: Capture
) -> None:
    def on_a_host(row: dict[str, Any]) -> None:
        row["OS-EXT-SRV-ATTR:hypervisor_hostname"] = "kvm-new-1"
        row["name"] = "<b>\x1b[1m"

    _with_rows(cloud, on_a_host)
    # No all-clear: the images of some root volumes are not known.
    assert main(["audit", "--servers", "--os-cloud", "admin", "--without", "kvm-new-2", "-f", "json"]) == 1
    out, err = capsys.readouterr()
    rows = {each["id"]: row for row in json.loads(out)["lines"] for each in row["Servers"]}
    row = rows[made["a"]]
    assert row["Host"] == "kvm-new-1"
    assert "kvm-new-1" not in row["Destinations"]
    assert "kvm-new-2" in row["Destinations"]
    assert row["Without"] == row["Now"] - 1
    assert {each["name"] for each in row["Servers"]} == {"<b>\\x1b[1m"}
    assert "Not judged:" in err
    assert cloud.written == []


def test_servers_without_what_must_be_shown_are_left_out_with_the_policy(
    cloud: Cloud, made: dict[str, str], capsys: Capture
) -> None:
    """As for a user whom the policy hides the hosts, or a cell that is down."""
    down = made["a"]

    def hidden(row: dict[str, Any]) -> None:
        del row["OS-EXT-SRV-ATTR:hypervisor_hostname"]
        if row["id"] == down:
            del row["flavor"]

    _with_rows(cloud, hidden)
    found, broken = _found(cloud)
    assert found == {}
    assert any("The policy os_compute_api:os-extended-server-attributes must allow it." in each for each in broken)
    assert f"Nova: only the ID of the server {down} is shown. Its cell does not answer; try again." in broken
    assert main(["audit", "--servers", "--os-cloud", "admin"]) == 1
    assert "the cloud: no entry is a server that can be judged: Nova: " in capsys.readouterr().err


@pytest.mark.parametrize("value", [[1, 2], "abc", 5])
def test_row_that_is_not_novas_is_left_out(cloud: Cloud, made: dict[str, str], value: object) -> None:
    def wrong(row: dict[str, Any]) -> None:
        if row["image"]:
            row["image"]["properties"] = value
        row["os-extended-volumes:volumes_attached"] = value if isinstance(value, int) else []

    _with_rows(cloud, wrong)
    found, broken = _found(cloud)
    assert made["a"] not in found
    assert any(each.startswith("Nova, the image properties of a server") for each in broken)
    of_volume = found[made["of a volume"]]
    assert any("root volume" in each for each in of_volume.not_judged)


@pytest.fixture
def of_volumes(cloud: Cloud, made: dict[str, str]) -> Iterator[dict[str, str]]:
    """Return the IDs and names of the servers that boot from volumes; Nova shows these as those of built ones."""
    ids = sorted(cloud.others.volumes)
    names = {made[f"of volume {name}"]: name for name in "abcd"}

    def attached(row: dict[str, Any]) -> None:
        row["OS-EXT-SRV-ATTR:hypervisor_hostname"] = "kvm-new-1"
        if row["id"] in names:
            row["os-extended-volumes:volumes_attached"] = [{"id": ids["abcd".index(names[row["id"]])]}]

    _with_rows(cloud, attached)
    cloud.others.sent.clear()
    yield names
    cloud.others.hook = lambda _path: None


def test_images_of_root_volumes_are_read_from_lists(cloud: Cloud, of_volumes: dict[str, str]) -> None:
    """Page by page, and none of them alone."""
    found, broken = _found(cloud)
    servers = [found[each] for each in of_volumes]
    assert [each.request.image and each.request.image.properties for each in servers] == [{"hw_vif_model": "igb"}] * 4
    assert [(each.unknown, each.not_judged) for each in servers] == [("", ())] * 4
    asked = [each for each in cloud.others.sent if "volumes" in each]
    assert len(asked) == 2
    assert all("/volumes/detail?all_tenants=1" in each for each in asked)
    assert broken == []


def test_volumes_that_are_not_listed_are_read_a_few_at_a_time(cloud: Cloud, of_volumes: dict[str, str]) -> None:
    """As where the policy refuses the list; a volume that is refused as well is named."""
    gone = sorted(cloud.others.volumes)[3]
    under_way = []

    def answer(path: str) -> tuple[int, object] | None:
        if "/volumes/detail" in path or gone in path:
            return 403, {"forbidden": {"code": 403, "message": "Policy doesn't allow it."}}
        if "/volumes/" in path:
            under_way.append(1)
            time.sleep(0.3)
            most.append(len(under_way))
            under_way.pop()
        return None

    most: list[int] = []
    cloud.others.hook = answer
    found, _ = _found(cloud)
    servers = {name: found[each] for each, name in of_volumes.items()}
    assert [bool(servers[name].request.image) for name in "abcd"] == [True, True, True, False]
    assert servers["d"].unknown.startswith(f"the image of its root volume is not known: Cinder, GET /volumes/{gone}: ")
    assert max(most) > 1
    assert len([each for each in cloud.others.sent if "volumes/" in each]) == 5


@pytest.mark.parametrize(
    "answer", [None, (503, {"message": "down"}), (200, [1]), (200, {"volumes": 5}), (200, b"<html>")]
)
def test_servers_of_volumes_are_not_judged_where_cinder_hangs_or_refuses(
    cloud: Cloud, of_volumes: dict[str, str], answer: Any, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os_prefilter.adapters.cloud.connection.TIMEOUT", 2)
    end = threading.Event()

    def respond(path: str) -> Any:
        if "volumes" not in path:
            return None
        if answer is None:
            end.wait(30)
        return answer or (503, {})

    cloud.others.hook = respond
    argv = ["audit", "--servers", "--os-cloud", "admin", "--enable", "compute_status", "-f", "json"]
    started = time.monotonic()
    assert main(argv) == 1
    end.set()
    assert time.monotonic() - started < 25
    document = json.loads(capsys.readouterr().out)
    rows = {each["id"]: row for row in document["lines"] for each in row["Servers"]}
    for each in of_volumes:
        assert rows[each]["Verdict"] == "not judged"
        assert rows[each]["Why"]["text"].startswith("the image of its root volume is not known: Cinder")
    assert document["summary"]["verdicts"]["not judged"] == len(of_volumes)
    assert rows.keys() - of_volumes.keys()


@pytest.mark.parametrize("user", ["reader", "prefilter"])
def test_user_who_may_not_list_all_servers_reads_what_was_refused(cloud: Cloud, user: str, capsys: Capture) -> None:
    assert main(["audit", "--servers", "--os-cloud", user]) == 1
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert "status 403" in err
    with pytest.raises(CloudError, match=r"Nova, GET /servers/detail: status 403.*roles"):
        _found(cloud, user)
    assert cloud.written == []
