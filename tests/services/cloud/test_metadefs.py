# SPDX-License-Identifier: Apache-2.0

"""``offer publish``: what a real Glance shows of the offer afterwards."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from glance.policies import metadef

from os_prefilter_tools.adapters.cloud.metadefs import (
    plan_metadefs,
    write_metadefs,
)
from os_prefilter_tools.cli.main import main
from os_prefilter_tools.operators.offer.metadefs import MARK, namespaces
from os_prefilter_tools.operators.offer.offered_values import (
    Offer,
    Property,
    Status,
    Value,
)
from tests.conftest import times
from tests.services.cloud.cloud import Cloud
from tests.services.recorder import LOST
from tests.support.pages import DOCS, files_of

Capture = pytest.CaptureFixture[str]

IMAGES, FLAVORS = "OSPrefilter::Image", "OSPrefilter::Flavor"
_PAGE = DOCS / "audit.rst"
_PATH = "/v2/metadefs/namespaces"
_KVM = (
    "COMPUTE_NODE, HW_ARCH_X86_64, COMPUTE_NET_VIF_MODEL_IGB,"
    " COMPUTE_NET_VIF_MODEL_VIRTIO"
)
_RICH = (
    "COMPUTE_NODE, COMPUTE_NET_VIF_MODEL_E1000E, CUSTOM_COMPUTE_TIME_HPET,"
    " COMPUTE_SOUND_MODEL_AC97"
)
BOTH = f"hosts: {{kvm-1: {{traits: [{_KVM}]}}, kvm-2: {{traits: [{_RICH}]}}}}"
ONE = f"hosts: {{kvm-1: {{traits: [{_KVM}]}}}}"
NONE = "hosts: {kvm-1: {traits: [COMPUTE_NET_VIF_MODEL_IGB]}}"
_FILTERS = ["--filter", "image_metadata", "--filter", "hpet"]
_MANUAL = {
    "namespace": "Site::Image",
    "display_name": "By hand",
    "description": "Of the operator",
    "visibility": "public",
    "resource_type_associations": [{"name": "OS::Glance::Image"}],
    "properties": {
        "hw_vif_model": {"title": "NIC", "type": "string", "enum": ["e1000"]}
    },
}


class Site:
    """The Glance of the cloud, and the fleet that the commands read."""

    def __init__(self, cloud: Cloud, folder: Path, capsys: Capture) -> None:
        self.cloud = cloud
        self.hosts = folder / "fleet.yaml"
        self._capsys = capsys

    def publish(
        self, fleet: str, *argv: str, user: str = "admin", code: int = 0
    ) -> tuple[list[Any], str]:
        """Run the command; return the rows of its plan, and what it says
        beside them.
        """
        self.hosts.write_text(fleet, encoding="utf-8")
        hosts = ["--hosts", str(self.hosts), "--os-cloud", user]
        assert (
            main(["offer", "publish", *_FILTERS, *hosts, *argv, "-f", "json"])
            == code
        )
        out, err = self._capsys.readouterr()
        return json.loads(out) if out else [], err

    def namespace(self, name: str) -> Any:
        """Return a namespace, as Glance shows it; None if there is none."""
        response = self.cloud.admin.session.get(
            f"{self.cloud.glance.real}{_PATH}/{name}", raise_exc=False
        )
        return response.json() if response.status_code == 200 else None

    def values(self, name: str) -> dict[str, list[str]]:
        """Return property -> the values from which a user may choose."""
        properties = (self.namespace(name) or {}).get("properties", {})
        return {key: each.get("enum", []) for key, each in properties.items()}

    def shown_for(self, resource_type: str) -> set[str]:
        """Return the namespaces that Horizon shows for a resource type."""
        rows = self.cloud.send(
            "GET", self.cloud.glance, f"{_PATH}?resource_types={resource_type}"
        )["namespaces"]
        return {each["namespace"] for each in rows}

    def create(self, namespace: dict[str, Any]) -> None:
        self.cloud.send("POST", self.cloud.glance, _PATH, namespace)

    def delete(self, name: str) -> None:
        self.cloud.send("DELETE", self.cloud.glance, f"{_PATH}/{name}")

    def set_protected(self, name: str, *, value: bool) -> None:
        fields = ("namespace", "display_name", "description", "visibility")
        body = {field: self.namespace(name)[field] for field in fields}
        self.cloud.send(
            "PUT",
            self.cloud.glance,
            f"{_PATH}/{name}",
            {**body, "protected": value},
        )


@pytest.fixture
def site(cloud: Cloud, tmp_path: Path, capsys: Capture) -> Iterator[Site]:
    made = Site(cloud, tmp_path, capsys)
    yield made
    for name in (IMAGES, FLAVORS, _MANUAL["namespace"]):
        found = made.namespace(str(name))
        if found and found["protected"]:
            made.set_protected(str(name), value=False)
        if found:
            made.delete(str(name))


def test_users_choose_among_the_values_that_the_hosts_serve(
    site: Site,
) -> None:
    rows, said = site.publish(BOTH)
    assert {row["Change"] for row in rows} == {"create", "add"}
    assert len(rows) > 20
    assert (
        f"{len(rows)} changes planned; nothing was written without --apply."
        in said
    )
    assert site.namespace(IMAGES) is None
    assert site.cloud.written == []
    site.publish(BOTH, "--apply")
    assert site.values(IMAGES)["hw_vif_model"] == ["e1000e", "igb", "virtio"]
    assert site.values(IMAGES)["hw_time_hpet"] == ["true", "false"]
    assert site.values(FLAVORS)["hw:sound_model"] == ["ac97"]
    assert IMAGES in site.shown_for("OS::Glance::Image")
    assert FLAVORS not in site.shown_for("OS::Glance::Image")
    assert site.shown_for("OS::Nova::Flavor") == {FLAVORS}
    assert "kvm-" not in json.dumps(
        [site.namespace(IMAGES), site.namespace(FLAVORS)]
    )
    site.cloud.forget()
    rows, said = site.publish(BOTH, "--apply")
    assert (rows, said.splitlines()[1:]) == ([], ["Nothing is left to do."])
    assert site.cloud.written == []


def test_withdrawn_values_and_properties_disappear_and_others_stay(
    site: Site,
) -> None:
    """After a host has left; a namespace of the operator is not even read."""
    site.create(_MANUAL)
    manual = site.namespace("Site::Image")
    site.publish(BOTH, "--apply")
    rows, _ = site.publish(ONE, "--apply")
    changes = {
        (row["Change"], row["Namespace"], row["Property"]): (
            row["Before"],
            row["After"],
        )
        for row in rows
    }
    assert changes["replace", IMAGES, "hw_vif_model"] == (
        ["e1000e", "igb", "virtio"],
        ["igb", "virtio"],
    )
    assert changes["remove", IMAGES, "hw_sound_model"] == (["ac97"], [])
    assert changes["replace", IMAGES, "hw_time_hpet"] == (
        ["true", "false"],
        ["false"],
    )
    assert site.values(IMAGES)["hw_vif_model"] == ["igb", "virtio"]
    assert "hw_sound_model" not in site.values(IMAGES)
    assert "hw:sound_model" not in site.values(FLAVORS)
    assert site.namespace("Site::Image") == manual
    assert not [each for each in site.cloud.glance.sent if "Site" in each]
    site.publish(BOTH, "--apply")
    assert site.values(FLAVORS)["hw:sound_model"] == ["ac97"]


_PROPERTIES = ("hw_a", "hw:b", "deploy-config:c d", "x?y#z", "os_%3A&")


def _random_offer(draw: random.Random) -> Offer:
    properties = []
    for name in draw.sample(_PROPERTIES, draw.randrange(len(_PROPERTIES) + 1)):
        values = [
            Value(each, draw.choice(list(Status)), draw.choice(["", "why"]))
            for each in draw.sample("abc", 2)
        ]
        which = draw.choice([(name, ""), ("", name), (name, name)])
        properties.append(
            Property(
                which[0], "", which[1], tuple(values), draw.random() < 0.2
            )
        )
    return Offer(tuple(properties), 1)


def _tamper(site: Site, name: str, draw: random.Random) -> None:
    """Change a namespace as an operator may by hand."""
    found = site.namespace(name)
    if not found:
        return
    path = f"{_PATH}/{name}"
    send = partial(site.cloud.send, service=site.cloud.glance)
    resource_type = next(
        each["name"] for each in found["resource_type_associations"]
    )
    send("DELETE", path=f"{path}/resource_types/{resource_type}")
    if draw.random() < 0.5:
        send(
            "POST",
            path=f"{path}/resource_types",
            body={"name": resource_type, "prefix": "hw_"},
        )
    if draw.random() < 0.5:
        send("DELETE", path=f"{path}/properties")
    send("PUT", path=path, body={"namespace": name, "owner": found["owner"]})


def test_after_publishing_glance_has_exactly_the_offer_whatever_it_had_before(
    site: Site,
) -> None:
    """A law, for random offers, one after the other, and changes by hand
    between them.
    """
    draw = random.Random(39)  # noqa: S311 - no secret
    connection = site.cloud.connection()
    seen = set()
    for _ in range(max(12, times(12))):
        wanted = namespaces(_random_offer(draw))
        changes = plan_metadefs(connection, wanted, MARK)
        seen |= {each.what for each in changes}
        write_metadefs(connection, changes)
        for each in wanted:
            found = site.namespace(each["namespace"])
            assert bool(found) == bool(each["properties"])
            if found:
                # Glance adds the name to a definition.
                shown = {
                    key: {**value, "name": key}
                    for key, value in found["properties"].items()
                }
                assert shown == {
                    key: {**value, "name": key}
                    for key, value in each["properties"].items()
                }
                fields = (
                    "display_name",
                    "description",
                    "visibility",
                    "protected",
                    "tags",
                )
                assert {field: found[field] for field in fields} == {
                    field: each[field] for field in fields
                }
                (association,) = found["resource_type_associations"]
                assert (
                    association["name"]
                    == each["resource_type_associations"][0]["name"]
                )
                assert "prefix" not in association
        assert plan_metadefs(connection, wanted, MARK) == []
        if draw.random() < 0.5:
            _tamper(site, IMAGES, draw)
            _tamper(site, FLAVORS, draw)
    assert seen == {
        "delete",
        "remove",
        "replace",
        "update",
        "dissociate",
        "associate",
        "add",
        "create",
    }


def test_fleet_without_enabled_hosts_withdraws_nothing(site: Site) -> None:
    """More likely it was not read as it should be."""
    site.publish(BOTH, "--apply")
    site.cloud.forget()
    rows, said = site.publish(NONE, "--apply", code=2)
    assert rows == []
    assert said.endswith("Nothing was changed.\n")
    assert site.cloud.glance.sent == []


@pytest.mark.parametrize("is_protected", [True, False])
def test_foreign_or_protected_namespace_is_refused_before_anything_is_written(
    site: Site, *, is_protected: bool
) -> None:
    if is_protected:
        site.publish(ONE, "--apply")
        site.set_protected(FLAVORS, value=True)
        message = (
            f"'{FLAVORS}': it is protected. Nothing was written. Remove the"
            " protection: 'openstack image metadef"
        )
    else:
        site.create({**_MANUAL, "namespace": FLAVORS})
        message = (
            f"'{FLAVORS}': it was not made by this command: it lacks the tag"
            " 'os-prefilter'."
        )
    before = site.namespace(IMAGES), site.namespace(FLAVORS)
    site.cloud.forget()
    rows, said = site.publish(BOTH, "--apply", code=1)
    assert rows == []
    assert message in said
    assert site.cloud.written == []
    assert (site.namespace(IMAGES), site.namespace(FLAVORS)) == before


@pytest.mark.parametrize(
    ("user", "status", "advice"),
    [
        ("reader", 403, "Use a user with the roles"),
        ("read-only", 401, "the access rules of the application credential"),
    ],
)
def test_user_without_the_rights_reads_that_glance_refuses(
    site: Site, user: str, status: int, advice: str
) -> None:
    """By Glance's own policy, and by the access rules of docs/fleet.rst, which
    allow GET alone.
    """
    _, said = site.publish(BOTH, "--apply", user=user, code=1)
    assert said.startswith(
        "Metadata definitions: wrote 0 of 2 changes, then failed to create"
        f" {IMAGES}: Glance, POST /metadefs/namespaces: status {status}"
    )
    assert advice in said
    assert site.namespace(IMAGES) is None


def test_another_run_meanwhile_is_a_conflict_and_the_next_run_goes_on_from_there(
    site: Site,
) -> None:
    """Glance answers 409 where it has created what this one creates, and 404
    where it has removed what this removes.
    """
    site.cloud.glance.before = lambda method, path: (
        site.create({**_MANUAL, "namespace": IMAGES, "tags": [{"name": MARK}]})
        if (method, path) == ("POST", _PATH) and site.namespace(IMAGES) is None
        else None
    )
    assert "wrote 0 of 2 changes" in (
        said := site.publish(BOTH, "--apply", code=1)[1]
    )
    assert "status 409" in said
    rows, _ = site.publish(BOTH, "--apply")
    assert {row["Change"] for row in rows if row["Namespace"] == IMAGES} == {
        "update",
        "replace",
        "add",
    }
    gone: list[str] = []

    def remove_before(method: str, path: str) -> None:
        if method == "DELETE" and not gone:
            gone.append(path)
            site.cloud.send("DELETE", site.cloud.glance, path)

    site.cloud.glance.before = remove_before
    assert "status 404" in site.publish(ONE, "--apply", code=1)[1]
    site.publish(ONE, "--apply")
    assert site.publish(ONE)[0] == []


@pytest.mark.parametrize("status", [503, 0])
def test_glance_that_fails_in_the_middle_is_reported_and_the_next_run_completes(
    site: Site, status: int
) -> None:
    """The error says how many changes are written; the next plan has exactly
    the others. 0: without a response.
    """
    site.publish(BOTH, "--apply")
    planned, _ = site.publish(ONE)
    site.cloud.forget()

    def fail(method: str, _path: str) -> tuple[int, object] | None:
        if method == "GET" or len(site.cloud.glance.written) <= 2:
            return None
        return (status, {"message": "down"}) if status else LOST

    site.cloud.glance.before = fail
    _, said = site.publish(ONE, "--apply", code=1)
    assert f"wrote 2 of {len(planned)} changes" in said
    assert "it writes what is missing" in said
    site.cloud.forget()
    rest, _ = site.publish(ONE, "--apply")
    assert rest == planned[2:]
    assert site.publish(ONE)[0] == []


def test_response_that_is_not_glances_is_an_error_before_anything_is_written(
    site: Site,
) -> None:
    wrong: list[object] = [
        b"<html>",
        {"properties": [1]},
        {"properties": {"a": 1}},
    ]
    wrong.append({"resource_type_associations": ["b"]})
    site.cloud.glance.before = lambda _method, path: (
        (200, wrong[0]) if path.startswith(_PATH) else None
    )
    while wrong:
        assert (
            "the response is not that of the service"
            in site.publish(ONE, "--apply", code=1)[1]
        )
        wrong.pop(0)
    assert site.cloud.written == []


def test_page_shows_what_the_command_prints(site: Site) -> None:
    """In the openstack client."""
    (site.cloud.folder / "cloud.yaml").write_text(
        files_of(_PAGE)["cloud.yaml"], encoding="utf-8"
    )
    assert site.cloud.check_examples(_PAGE) == 1
    assert site.values(IMAGES)["hw_vif_model"] == ["e1000e", "virtio"]


def test_page_names_the_policy_rules_of_each_request_that_writes() -> None:
    """As Glance documents them; a new namespace also has a tag."""
    named = set(
        re.findall(
            r"``((?:add|modify|delete|remove)_metadef_\w+)``",
            _PAGE.read_text(encoding="utf-8"),
        )
    )
    written = re.compile(
        _PATH + r"(/{namespace_name}(/(resource_types|properties)(/{\w+})?)?)?"
    )
    rules = {
        rule.name
        for rule in metadef.list_rules()
        for operation in getattr(rule, "operations", ())
        if operation["method"] != "GET"
        and written.fullmatch(operation["path"])
    }
    assert len(rules) == 8
    assert named == rules | {"add_metadef_tag"}
