"""Well-formed values of documents that have a writer, made at random."""

from hypothesis import strategies as st

from os_prefilter import Flavor, Image, RequestSpec
from os_prefilter.common.trait_names import Trait
from os_prefilter.fleet.model import Aggregate, Fleet, Inventory, Provider, aggregate_uuid, provider_uuid
from os_prefilter.request.spec import Destination, RequestGroup, RequestLevelParams
from os_prefilter.rules.conditions import FLAVOR, FORBIDS, NAMED, PROJECT, REQUIRES, ZONE, Condition
from os_prefilter.rules.model import ALWAYS, PORTS, Rule
from os_prefilter.vocabulary import ROWS
from os_prefilter.vocabulary.config_templates import BiosChange, Step, Template, Templates, Variant

_INT = st.integers(1, 2**31 - 1)
_UUIDS = st.uuids().map(str)
_LINES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=8) | st.sampled_from(
    ["null", "010", "1.10", "yes", "2026-01-01", "~", "*a", "&a", "- x", "{}", "=1+1", "a: b", "#"]
)
_STANDARD = st.sampled_from(["COMPUTE_NODE", "HW_CPU_X86_AVX2", "COMPUTE_NET_VIF_MODEL_IGB", "CUSTOM_A", "CUSTOM_B_2"])
_AMOUNTS = st.dictionaries(st.sampled_from(["VCPU", "MEMORY_MB", "VGPU", "CUSTOM_FPGA"]), _INT, max_size=3)


@st.composite
def inventories(draw: st.DrawFn) -> Inventory:
    """Return an inventory as an operator would write it: nothing is above what it is a part of."""
    total, units = draw(_INT), sorted((draw(_INT), draw(_INT)))
    ratio = draw(st.floats(0.001, 1000))
    reserved, used = draw(st.integers(0, total)), draw(st.integers(0, 2**31 - 1))
    return draw(
        st.just(Inventory(total)) | st.just(Inventory(total, reserved, units[0], units[1], draw(_INT), ratio, used))
    )


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    """Return a fleet of hosts with providers below them, whose names and UUIDs are all different."""
    names = iter(draw(st.lists(_LINES, min_size=12, max_size=12, unique=True)))
    uuids = iter(draw(st.lists(_UUIDS, min_size=24, max_size=24, unique=True)))
    labels = draw(st.lists(_LINES, max_size=3, unique=True))
    own = [Aggregate(draw(st.sampled_from([aggregate_uuid(each), next(uuids)])), each) for each in labels]
    zoned = [Aggregate(each.uuid, each.name, draw(st.just("") | _LINES)) for each in own]
    unnamed = [next(uuids)]

    def provider(levels: int) -> Provider:
        name = next(names)
        return Provider(
            name,
            draw(st.sampled_from([provider_uuid(name), next(uuids)])),
            draw(st.dictionaries(st.sampled_from(["VCPU", "MEMORY_MB", "CUSTOM_FPGA"]), inventories(), max_size=3)),
            draw(st.frozensets(_STANDARD, max_size=4)),
            tuple(draw(st.lists(st.sampled_from([*(each.uuid for each in zoned), *unnamed]), max_size=3, unique=True))),
            tuple(provider(levels - 1) for _ in range(draw(st.integers(0, 2)) if levels else 0)),
            draw(st.just("") | st.text(st.characters(exclude_categories=["Cs"]), max_size=9)),
        )

    return Fleet(
        tuple(provider(1) for _ in range(draw(st.integers(1, 4)))),
        draw(st.sampled_from(["", "2026-11-21T18:00:00Z", "2026-11-21T18:00:00+00:00"])),
        {each.uuid: each for each in zoned},
        draw(st.booleans()),
        draw(st.integers(0, 5)),
    )


_NAMES = st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | _LINES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_LINES, inner, max_size=2),
    max_leaves=4,
)
_STEPS = st.builds(
    Step, st.sampled_from(["raid", "deploy", "management"]), _NAMES, st.dictionaries(_LINES, _JSON, max_size=2), _INT
)
_SETTINGS = st.builds(
    BiosChange, _LINES.filter(lambda name: name.strip("*")), st.lists(_LINES, min_size=1, max_size=2).map(tuple)
)
_VARIANTS = st.builds(
    Variant,
    st.lists(_SETTINGS, max_size=2, unique_by=lambda each: each.name).map(tuple),
    st.lists(_STEPS, max_size=2, unique_by=lambda each: each.key).map(tuple),
    st.dictionaries(st.sampled_from(["driver", "vendor"]), _LINES, max_size=2),
    in_use=st.booleans(),
).filter(lambda each: each.bios or each.steps)


@st.composite
def templates_of(draw: st.DrawFn) -> Templates:
    """Return templates that each need a trait which no other needs, so that a node can report it."""
    keys = draw(st.lists(st.tuples(_NAMES, _NAMES), max_size=3, unique=True))
    return Templates(
        Template(
            *key,
            (*draw(st.lists(_STANDARD.map(Trait), max_size=2)), Trait(f"CUSTOM_OF_{number}")),
            tuple(draw(st.lists(_VARIANTS, max_size=2))),
        )
        for number, key in enumerate(keys)
    )


_TEXTS = st.text(max_size=8)
_NO_NAME = st.none() | _TEXTS
_LISTS = st.lists(st.lists(_UUIDS, max_size=2), max_size=2)
_TRAIT_SETS = st.sets(_STANDARD, max_size=3)
_GROUPS = st.builds(
    RequestGroup, _TEXTS, _AMOUNTS, _TRAIT_SETS, _TRAIT_SETS, _LISTS, st.sets(_UUIDS, max_size=2), _NO_NAME
)
FLAVORS = st.builds(Flavor, _INT, _INT, _INT, _INT, _INT, st.dictionaries(_TEXTS, _TEXTS, max_size=3), _NO_NAME)
IMAGES = st.builds(
    Image, st.dictionaries(_TEXTS, _TEXTS | st.booleans() | _INT, max_size=3), _NO_NAME, _NO_NAME, _NO_NAME
)
REQUEST_SPECS = st.builds(
    RequestSpec,
    FLAVORS,
    st.none() | IMAGES,
    st.booleans(),
    st.lists(_GROUPS, max_size=2),
    st.frozensets(_UUIDS, max_size=2),
    st.none()
    | st.builds(
        Destination,
        st.none() | st.lists(_UUIDS, min_size=1, max_size=2),
        st.none() | st.sets(_UUIDS, min_size=1, max_size=2),
        _NO_NAME,
    ),
    st.builds(RequestLevelParams, _TRAIT_SETS, _TRAIT_SETS, st.lists(st.lists(_TEXTS, max_size=2), max_size=2)),
    _NO_NAME,
    _NO_NAME,
    st.dictionaries(_TEXTS, st.lists(_TEXTS, max_size=2), max_size=2),
)


WORDS = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=9) | st.sampled_from(
    [name for row in ROWS for name in (row.image_property, row.extra_spec, *row.legacy_names) if name]
)
RULE_VALUES = (
    WORDS | st.booleans() | st.sampled_from(["yes", "010", "1.10", "2026-01-01", "~", "on", "null", "*a", "&a", "- x"])
)
_TRAIT_LISTS = st.lists(_STANDARD, unique=True, max_size=3)
_CONDITIONS = (
    st.builds(Condition, st.sampled_from(NAMED), WORDS, st.frozensets(RULE_VALUES, max_size=3))
    | st.builds(
        Condition,
        st.sampled_from(NAMED),
        WORDS,
        st.frozensets(RULE_VALUES, min_size=1, max_size=1),
        st.just(True),
    )
    | st.builds(
        Condition,
        st.sampled_from([PROJECT, ZONE, FLAVOR]),
        st.just(""),
        st.frozensets(WORDS, min_size=1, max_size=3),
    )
    | st.builds(
        Condition,
        st.sampled_from([REQUIRES, FORBIDS]),
        st.just(""),
        st.frozensets(_STANDARD, min_size=1, max_size=3),
    )
)
_CLAUSES = st.lists(_CONDITIONS, min_size=1, max_size=3, unique_by=lambda each: each.key).map(tuple)
_ALTERNATIVES = st.lists(_CLAUSES, min_size=1, max_size=3, unique=True).map(tuple)


@st.composite
def rule_lists(draw: st.DrawFn) -> list[Rule]:
    """Return well-formed rules of different names."""
    found = []
    for number in range(draw(st.integers(0, 4))):
        require = draw(_TRAIT_LISTS)
        forbid = [each for each in draw(_TRAIT_LISTS) if each not in require] or ([] if require else ["CUSTOM_C"])
        unless = draw(st.just(()) | _ALTERNATIVES)
        when = draw(_ALTERNATIVES | st.just(ALWAYS) if unless else _ALTERNATIVES)
        scope = draw(st.sampled_from(["root", "unsuffixed", "_gpu", PORTS]))
        traits = tuple(map(Trait, require)), tuple(map(Trait, forbid))
        found.append(Rule(f"rule-{number}", when, *traits, scope, draw(st.just("") | WORDS), unless=unless))
    return found
