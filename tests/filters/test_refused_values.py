"""Values that Nova's own filters refuse are refused here, whatever ``unknown_values`` says."""

import pytest

from os_prefilter.errors import UnknownValue
from tests.conftest import pipeline_of, spec_of


@pytest.mark.parametrize("unknown_values", ["skip", "reject"])
@pytest.mark.parametrize(
    ("name", "properties", "extra_specs"),
    [
        ("tpm_secret_security", {"hw_tpm_version": "2.0"}, {"hw:tpm_secret_security": "vault"}),
        ("tpm_secret_security", {"hw_tpm_version": "2.0"}, {"hw:tpm_secret_security": "USER"}),
        ("sound_model", {}, {"hw:sound_model": "Virtio"}),
        ("image_metadata", {}, {"hw:sound_model": "Virtio"}),
        ("ephemeral_encryption", {"hw_ephemeral_encryption": "true"}, {"hw:ephemeral_encryption_format": "LUKS"}),
    ],
)
def test_unknown_value_is_refused_and_the_error_names_the_valid_ones(
    name: str, properties: dict[str, str], extra_specs: dict[str, str], unknown_values: str
) -> None:
    with pytest.raises(UnknownValue, match="Values that exist: "):
        pipeline_of(name, unknown_values=unknown_values).apply(spec_of(properties, extra_specs))


def test_unknown_value_without_effect_is_not_refused() -> None:
    spec = spec_of({"hw_ephemeral_encryption": "false"}, {"hw:ephemeral_encryption_format": "LUKS"})
    assert pipeline_of("ephemeral_encryption").apply(spec).requirements == ()
