"""ephemeral_encryption: encryption, and its format only together with it."""

from collections.abc import Callable

import pytest

from tests.conftest import asked_by, spec_of

_ON = ("COMPUTE_EPHEMERAL_ENCRYPTION", True, "root")


@pytest.mark.parametrize(
    ("properties", "extra_specs", "expected"),
    [
        ({}, {}, []),
        ({"hw_ephemeral_encryption": "true"}, {}, [_ON]),
        ({}, {"hw:ephemeral_encryption": "true"}, [_ON]),
        ({"hw_ephemeral_encryption": "false"}, {}, []),
        ({"hw_ephemeral_encryption_format": "luks"}, {}, []),
        (
            {"hw_ephemeral_encryption": "true", "hw_ephemeral_encryption_format": "luksv2"},
            {},
            [_ON, ("COMPUTE_EPHEMERAL_ENCRYPTION_LUKSV2", True, "root")],
        ),
    ],
)
def test_encryption_format_is_required_only_together_with_encryption(
    properties: dict[str, object], extra_specs: dict[str, str], expected: list[object]
) -> None:
    assert asked_by("ephemeral_encryption", spec_of(properties, extra_specs)) == expected


def test_only_hosts_that_encrypt_remain(hosts: Callable[..., tuple[str, ...]]) -> None:
    before = hosts(spec_of({"hw_ephemeral_encryption": "true"}))
    after = hosts(spec_of({"hw_ephemeral_encryption": "true"}), "ephemeral_encryption")
    assert after
    assert set(after) < set(before)
