"""Flavors and host aggregates of a real Nova API."""

from uuid import UUID

import pytest

from os_prefilter import Flavor
from os_prefilter.adapters.cloud import connection as clouds
from os_prefilter.adapters.cloud.service import CloudError
from os_prefilter.errors import DocumentError
from os_prefilter.fleet.model import Aggregate
from tests.services.cloud.cloud import Cloud

_SPECS = {"resources:VGPU": "1", "trait:CUSTOM_A": "required", "hw:cpu_policy": "dedicated"}


@pytest.fixture(scope="session")
def flavors(whole_cloud: Cloud) -> Cloud:
    """Return the cloud with some flavors."""
    fields = {"OS-FLV-EXT-DATA:ephemeral": 3, "swap": 64, "vcpus": 2, "ram": 1024, "disk": 20}
    whole_cloud.flavor("gpu ☃", "gpu 1", _SPECS, **fields)
    whole_cloud.flavor("private", "4", None, **{"os-flavor-access:is_public": False})
    whole_cloud.flavor("4", "5")
    for number in range(6, 10):
        whole_cloud.flavor(f"flavor-{number}", str(number))
    return whole_cloud


@pytest.mark.usefixtures("flavors")
class TestFlavors:
    @pytest.mark.parametrize("name", ["gpu ☃", "gpu 1"])
    def test_flavor_is_read_with_all_its_fields_by_name_or_id(self, cloud: Cloud, name: str) -> None:
        expected = Flavor(2, 1024, 20, 3, 64, _SPECS, "gpu ☃")
        assert clouds.flavor_named(cloud.connection(), name) == expected
        assert cloud.written == []

    def test_flavor_id_takes_precedence_over_an_equal_name(self, cloud: Cloud) -> None:
        assert clouds.flavor_named(cloud.connection(), "4").name == "private"

    def test_every_flavor_is_listed_page_by_page(self, cloud: Cloud) -> None:
        """Nova gives three at a time here. Private ones are among them; none comes twice."""
        names = [each.name for each in clouds.flavors(cloud.connection())]
        assert len(names) == len(set(names))
        assert set(names) >= {"gpu ☃", "private", "4", "flavor-6", "flavor-9"}
        assert sum("/flavors/detail" in each for each in cloud.nova.sent) >= 3

    @pytest.mark.parametrize("name", ["flavor-66", ".", "..", "../servers", "x" * 300, "\x00"])
    def test_unknown_flavor_name_is_refused_with_close_names(self, cloud: Cloud, name: str) -> None:
        with pytest.raises(DocumentError, match="there is no flavor") as caught:
            clouds.flavor_named(cloud.connection(), name)
        assert ("Close names: 'flavor-6'" in str(caught.value)) == (name == "flavor-66")
        assert str(caught.value).isprintable()

    def test_hidden_extra_specs_raise_instead_of_reading_as_none(self, cloud: Cloud) -> None:
        """As where Nova's policy hides them."""
        row = {"id": "4", "name": "hidden", "ram": 1, "vcpus": 1, "disk": 1}
        cloud.nova.hook = lambda _method, path: (200, {"flavor": row}) if "/flavors/4" in path else None
        with pytest.raises(CloudError, match="extra specs of the flavor 'hidden' are not shown"):
            clouds.flavor_named(cloud.connection(), "4")


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (200, {"flavors": [{"name": "a", "extra_specs": {"a": 1}}]}, "not that of the service"),
        (200, {"flavors": ["a"]}, "not that of the service"),
        (406, {}, "newer version"),
        (503, {}, "read the log"),
    ],
)
def test_bad_flavor_list_response_raises_a_printable_cloud_error(
    cloud: Cloud, status: int, body: object, message: str
) -> None:
    cloud.nova.hook = lambda _method, path: (status, body) if "/flavors/detail" in path else None
    with pytest.raises(CloudError, match=message) as caught:
        list(clouds.flavors(cloud.connection()))
    assert str(caught.value).isprintable()


def test_host_aggregates_have_their_uuids_and_zones(cloud: Cloud) -> None:
    made = [
        Aggregate(str(UUID(cloud.aggregate("rack ☃", "zone-1"))), "rack ☃", "zone-1"),
        Aggregate(str(UUID(cloud.aggregate("no zone"))), "no zone", ""),
    ]
    assert [each for each in clouds.host_aggregates(cloud.connection()) if each in made] == made
    assert cloud.written == []


def test_host_aggregates_are_refused_without_administrator_roles(cloud: Cloud) -> None:
    with pytest.raises(CloudError, match="status 403.*roles that the documentation lists"):
        clouds.host_aggregates(cloud.connection("reader"))


@pytest.mark.parametrize("rows", [None, [{}], [{"uuid": "x", "name": "a", "availability_zone": None}]])
def test_malformed_host_aggregates_raise_a_cloud_error(cloud: Cloud, rows: object) -> None:
    cloud.nova.hook = lambda _method, path: (200, {"aggregates": rows}) if "os-aggregates" in path else None
    with pytest.raises(CloudError, match="not that of the service"):
        clouds.host_aggregates(cloud.connection())
