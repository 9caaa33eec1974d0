"""What a pipeline may remember of the requests before: nothing that changes an answer, and no more than a bounded part.

Each compares a pipeline that has served others with one that serves this request alone.
"""

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from nova import objects

from os_prefilter import Flavor, Image, Pipeline, RequestSpec
from os_prefilter.conf import GROUP
from tests.conftest import conf_with, pipeline_of, spec_of
from tests.faults.load import FILTERS, Answers, answer_of, logging_counted, pipeline_on, requests
from tests.support.nova_objects import nova_flavor, nova_spec
from tests.support.rule_texts import rule, write_rules

_WITHOUT_RULES = [name for name in FILTERS if name != "rules"]
_MANY = 2_500
_BLOCKS = 0.2
"""Of memory that may stay for each of so many images; what keeps one has several."""

Make = Callable[[dict[str, Any], dict[str, str]], Any]
MAKERS = [pytest.param(spec_of, id="ours"), pytest.param(nova_spec, id="nova")]


def alone(request_spec: Any, **options: Any) -> str:
    """Return the answer of a pipeline that has seen nothing else."""
    return answer_of(pipeline_of(*_WITHOUT_RULES, **options), request_spec)


def test_decision_does_not_depend_on_the_requests_before_it(tmp_path: Path) -> None:
    """Also those whose images differ in a number only; each twice at least."""
    kinds = requests()
    answers = Answers(kinds, tmp_path)
    _conf, pipeline = pipeline_on(tmp_path / "version-1")
    order = [number for number in range(4 * len(kinds)) for _ in range(2)]
    Random(7).shuffle(order)  # noqa: S311 - the same each time
    with logging_counted():
        for number in order:
            assert answers.version_of(number, answer_of(pipeline, kinds[number % len(kinds)].request(number))) in (
                None,
                1,
            )


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("values", [(True, 1, "1", "true", 1.0), ("yes", True), ("e1000e", "E1000E", "VirtualE1000e")])
def test_values_that_python_takes_for_equal_keep_their_own_source(make: Make, values: tuple[Any, ...]) -> None:
    """The source says what the request says; True, 1 and 1.0 are one key of a dictionary."""
    name = "hw_vif_model" if "e1000e" in values else "hw_time_hpet"
    pipeline = pipeline_of(*_WITHOUT_RULES)
    for value in (*values, *reversed(values)):
        properties = {name: value if make is spec_of else str(value)}
        assert answer_of(pipeline, make(properties, {})) == alone(make(properties, {})), value


def test_cached_decision_is_not_used_for_an_image_changed_in_place() -> None:
    pipeline = pipeline_of(*_WITHOUT_RULES)
    properties = {"hw_vif_model": "e1000e"}
    image, flavor = Image(properties, disk_format="qcow2"), Flavor(vcpus=1, memory_mb=512)
    answer_of(pipeline, RequestSpec(flavor, image))
    properties["hw_vif_model"] = "virtio"
    image.disk_format = "raw"
    expected = RequestSpec(flavor, Image({"hw_vif_model": "virtio"}, disk_format="raw"))
    assert answer_of(pipeline, RequestSpec(flavor, image)) == alone(expected)


def test_cached_decision_is_not_used_for_nova_objects_changed_in_place() -> None:
    pipeline = pipeline_of(*_WITHOUT_RULES)
    image = objects.ImageMeta.from_dict({"disk_format": "qcow2", "properties": {"hw_vif_model": "e1000e"}})
    flavor = nova_flavor(extra_specs={"resources:VGPU": "1"})
    answer_of(pipeline, objects.RequestSpec(flavor=flavor, image=image))
    image.properties.hw_vif_model = "virtio"
    flavor.extra_specs["hw:sound_model"] = "virtio"
    expected = nova_spec({"hw_vif_model": "virtio"}, {"resources:VGPU": "1", "hw:sound_model": "virtio"})
    assert answer_of(pipeline, objects.RequestSpec(flavor=flavor, image=image)) == alone(expected)


@pytest.mark.parametrize("make", MAKERS)
def test_changing_a_request_spec_after_its_decision_affects_no_later_request(make: Make) -> None:
    """Schedulers add to what they got; nothing of it may belong to the next request."""
    pipeline = pipeline_of(*_WITHOUT_RULES)
    asked: tuple[dict[str, Any], dict[str, str]] = ({"hw_vif_model": "e1000e"}, {"resources:VGPU": "1"})
    expected = alone(make(*asked))
    for _ in range(3):
        request_spec = make(*asked)
        assert answer_of(pipeline, request_spec) == expected
        params = request_spec.request_level_params
        params.root_required.add("CUSTOM_OF_ANOTHER")
        params.root_forbidden.clear()
        request_spec.flavor.extra_specs["trait:CUSTOM_OF_ANOTHER"] = "required"
        request_spec.flavor.vcpus = 64


def test_pipelines_with_different_options_share_no_cached_decision() -> None:
    """In turns, on one object."""
    options: list[dict[str, Any]] = [
        {"trait_scope": "root"},
        {"trait_scope": "root_and_unsuffixed"},
        {"reported_traits": []},
        {"owner_trait": "CUSTOM_OWNER_OURS"},
    ]
    pipelines = [pipeline_of(*_WITHOUT_RULES, **each) for each in options]
    properties, extra_specs = {"hw_vif_model": "e1000e", "img_hv_type": "kvm"}, {"resources:VGPU": "1"}
    expected = [alone(spec_of(properties, extra_specs), **each) for each in options]
    assert len(set(expected)) == len(options)
    image, flavor = Image(properties), spec_of({}, extra_specs).flavor
    for _ in range(3):
        assert [answer_of(each, RequestSpec(flavor, image)) for each in pipelines] == expected


def test_owner_gate_change_takes_effect_at_the_next_request() -> None:
    open_ = [False]
    conf = conf_with(enabled_filters=["owner"], owner_gate="coverage", facts_interval=0.0)
    pipeline = Pipeline.from_conf(conf, {"owner_coverage": lambda _context: open_[0]})
    image, flavor = Image({}), Flavor(vcpus=1, memory_mb=512)
    for open_[0] in (False, True, False, True, True):
        request_spec = RequestSpec(flavor, image)
        pipeline.apply(request_spec)
        assert ("OWNER_NOVA" in request_spec.root_required) == open_[0]


def test_reloaded_rules_apply_to_a_request_seen_before(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    when = "{image_property: os_distro, is: windows}"
    write_rules(path, rule("a", when, ["CUSTOM_A"]))
    conf = conf_with(enabled_filters=["rules"], rules_dirs=[str(tmp_path)], facts_interval=3600.0)
    pipeline = Pipeline.from_conf(conf)
    image, flavor = Image({"os_distro": "windows"}), Flavor(vcpus=1)
    for trait in ("CUSTOM_A", "CUSTOM_B", "CUSTOM_A"):
        write_rules(path, rule("a", when, [trait]))
        conf.mutate_config_files()
        request_spec = RequestSpec(flavor, image)
        pipeline.apply(request_spec)
        assert request_spec.root_required == {trait}
    assert conf[GROUP].facts_interval == 3600.0


@pytest.mark.parametrize("kind", ["image", "flavor", "both in Nova's objects"])
def test_memory_does_not_grow_with_distinct_images_and_flavors(kind: str) -> None:
    """After as many that filled whatever is kept, as many more need no memory."""
    pipeline = pipeline_of(*_WITHOUT_RULES)
    novas = objects.ImageMeta.from_dict({"properties": {}})

    def ask(number: int) -> None:
        properties: dict[str, object] = {"hw_vif_model": f"model-{number}", "os_version": f"{number}"}
        extra_specs = {"hw:cpu_policy": str(number), f"trait{number}:CUSTOM_A": "required"}
        if kind == "image":
            pipeline.apply(RequestSpec(Flavor(vcpus=1), Image(properties)))
        elif kind == "flavor":
            pipeline.apply(RequestSpec(Flavor(vcpus=1, memory_mb=number, extra_specs=extra_specs)))
        else:
            novas.properties.os_version = novas.properties.img_owner_id = f"{number}"
            pipeline.apply(objects.RequestSpec(flavor=nova_flavor(extra_specs=extra_specs), image=novas))

    blocks = [0]
    with logging_counted():
        for batch in (range(_MANY), range(_MANY, 2 * _MANY)):
            for number in batch:
                ask(number)
            gc.collect()
            blocks.append(sys.getallocatedblocks())
    _, before, after = blocks
    assert after - before < _MANY * _BLOCKS, f"{(after - before) / _MANY:.1f} blocks of memory for each {kind}"
