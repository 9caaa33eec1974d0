# SPDX-License-Identifier: Apache-2.0

"""Files of rules: what they mean, and all that is wrong with others, each with
its file and line.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from os_prefilter.common.trait_names import Trait
from os_prefilter.rules.conditions import (
    EXTRA_SPEC,
    IMAGE_PROPERTY,
    RuleCondition,
)
from os_prefilter.rules.model import Rule
from os_prefilter.rules.reader import read_rules
from tests.support.rule_texts import rule, rules_text
from tests.support.tables import cases

_WHEN = "{image_property: os_distro, is: windows}"
_GOOD = """\
# A comment.
rules:
  - name: windows
    when: {image_property: os_distro, is: windows}
    require: [CUSTOM_A]
    because: the licence

  - name: gold
    when:
      - extra_spec: tier:class
        in: [gold, true, 1]
      - {image_property: os_type, present: yes}
    require: [CUSTOM_B, HW_CPU_X86_AVX2]
    forbid:
      - CUSTOM_C
    scope: _GPU
"""


def _problems(*paths: Path) -> list[str]:
    return [str(each) for each in read_rules(paths).problems]


def _file(folder: Path, text: str, name: str = "r.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_rule_file_is_parsed_into_the_rules_it_describes(
    tmp_path: Path,
) -> None:
    read = read_rules([_file(tmp_path, _GOOD)])
    windows = RuleCondition(
        IMAGE_PROPERTY, "os_distro", frozenset(("windows",))
    )
    gold = RuleCondition(
        EXTRA_SPEC, "tier:class", frozenset(("gold", True, "1"))
    )
    system = RuleCondition(IMAGE_PROPERTY, "os_type")
    expected = (
        Rule(
            "windows",
            ((windows,),),
            require=(Trait("CUSTOM_A"),),
            because="the licence",
        ),
        Rule(
            "gold",
            ((gold, system),),
            require=(Trait("CUSTOM_B"), Trait("HW_CPU_X86_AVX2")),
            forbid=(Trait("CUSTOM_C"),),
            scope="_GPU",
        ),
    )
    assert read.rules.rules == expected
    assert read.problems == ()


def test_rules_have_their_file_and_line(tmp_path: Path) -> None:
    path = _file(tmp_path, _GOOD)
    rules = read_rules([path]).rules.rules
    assert [each.file for each in rules] == [str(path), str(path)]
    assert [each.line for each in rules] == [3, 8]


def test_traits_of_rules_are_those_that_they_require_and_forbid(
    tmp_path: Path,
) -> None:
    traits = read_rules([_file(tmp_path, _GOOD)]).rules.traits
    named = "CUSTOM_A CUSTOM_B CUSTOM_C HW_CPU_X86_AVX2"
    assert traits == set(named.split())


def _check_mistake(folder: Path, text: str, problem: str) -> None:
    path = _file(folder, text)
    errors = [str(each) for each in read_rules([path]).errors]
    expected = problem.replace("FILE", str(path))
    assert any(expected in each for each in errors), errors
    for each in errors:
        assert each.startswith(f"{path}:")
        assert each.isprintable()


_WINDOWS_A = (
    "- {name: r, when: {image_property: os_distro, is: windows}, require:"
    " [CUSTOM_A]}"
)
_DOCUMENTS = {
    "empty": (
        "",
        "FILE:1: the document is empty; expected a mapping of rules,"
        " hint_traits.",
    ),
    "unknown key": (
        "version: 2\nrules: []",
        "FILE:1: the document has the unknown key 'version'; valid keys are:"
        " rules, hint_traits",
    ),
    "misspelt key": (
        "\n\nrule: []",
        "FILE:3: the document has the unknown key 'rule'; did you mean rules?",
    ),
    "not YAML": ("rules: [\n", "FILE:2: broken YAML: "),
    "number as a rule": (
        "rules:\n- 3",
        "FILE:2: a rule: it is '3'; expected a mapping of name, when, unless,"
        " require, forbid, prefer",
    ),
    "boolean as a name": (
        f"rules:\n{_WINDOWS_A.replace('name: r', 'name: on')}",
        "FILE:2: a rule: name is true; expected 1 to 64 of",
    ),
    "one name twice": (
        f"rules:\n{_WINDOWS_A}\n{_WINDOWS_A.replace('_A', '_B')}",
        "FILE:3: the rule name r is taken by FILE:2. Rename or remove one of"
        " them.",
    ),
    "hint trait": (
        "hint_traits: [lower]",
        "FILE:1: hint_traits[0] is 'lower'; expected the name of a trait",
    ),
}


@pytest.mark.parametrize(
    ("text", "problem"), _DOCUMENTS.values(), ids=_DOCUMENTS
)
def test_each_mistake_in_a_document_is_an_error_with_its_place(
    tmp_path: Path, text: str, problem: str
) -> None:
    _check_mistake(tmp_path, text, problem)


# What a rule says besides its name, then its problem.
_MISTAKES = cases(r"""
when: {image_property: os_distro, is: windows}
 FILE:2: the rule r: it has none of require, forbid, prefer; give at least one.
when: {image_property: os_distro, is: windows}, require: [CUSTOM_A], scop: root
 the rule r: it has the unknown key 'scop'; did you mean scope?
when: {image_property: os_distro, is: windows}, require: [CUSTOM_A], scope: 'a b'
 the rule r: scope is 'a b'; expected ports, root, unsuff
when: {image_property: os_distro, is: windows}, require: [CUSTOM_A], because: "\e[0m"
 because is '\x1b[0m'; expected a text

# A condition.
when: [], require: [CUSTOM_A]
 the rule r: when is empty; expected a condition, or a list of them
when: {is: 3}, require: [CUSTOM_A]
 the rule r: when has none of image_property, extra_spec, hint; give one of them.
when: {image_property: a, extra_spec: b, is: 3}, require: [CUSTOM_A]
 when has image_property and extra_spec; give one of
when: {extra_spec: a}, require: [CUSTOM_A]
 when has none of is, in, present, contains; give one of them.
when: {extra_spec: a, is: b, in: [c]}, require: [CUSTOM_A]
 when has is and in; give one of them.
when: {extra_spec: a, in: []}, require: [CUSTOM_A]
 the rule r: when.in is empty; expected a list of at least
when: {extra_spec: a, in: [b, b]}, require: [CUSTOM_A]
 the rule r: when.in has 'b' twice.
when: {extra_spec: a, is: ''}, require: [CUSTOM_A]
 the rule r: when.is is ''; expected a text
when: {extra_spec: a, present: false}, require: [CUSTOM_A]
 when.present is false; expected true.
when: [{extra_spec: a, is: x}, {extra_spec: a, is: y}], require: [CUSTOM_A]
 the rule r has 2 conditions about the flavor

# Traits.
when: {image_property: os_distro, is: windows}, require: []
 the rule r: require is empty; expected a list of at least one trait.
when: {image_property: os_distro, is: windows}, require: [lower]
 the rule r: require[0] is 'lower'; expected the name of a trait
when: {image_property: os_distro, is: windows}, require: [HW_CPU_X86_AVX3]
 (close to it: HW_CPU_X86_AVX), or one that begins with CUSTOM_
when: {image_property: os_distro, is: windows}, require: [CUSTOM_A, CUSTOM_A]
 the rule r: require has 'CUSTOM_A' twice. Keep one.
when: {image_property: os_distro, is: windows}, prefer: [CUSTOM_A], require: [CUSTOM_A]
 both prefers and requires CUSTOM_A. Remove one
when: {image_property: os_distro, is: windows}, prefer: [CUSTOM_A], forbid: [CUSTOM_A]
 both prefers and forbids CUSTOM_A. Remove one
when: {image_property: os_distro, is: windows}, prefer: [CUSTOM_A], scope: _GPU
 has the scope _GPU: only traits of the host itself
when: {image_property: os_distro, is: windows}, require: [CUSTOM_A], forbid: [CUSTOM_A]
 FILE:2: the rule r both requires and forbids CUSTOM_A.

# Nova and the vocabulary.
when: {image_property: architecture, is: x}, require: [CUSTOM_A]
 FILE:2: the rule r never applies: architecture is an old
when: {image_property: hw_pmu, is: 'yes'}, require: [CUSTOM_A]
 never applies: hw_pmu is a boolean, and 'yes' is a text.
when: {image_property: os_type, is: Windows}, require: [CUSTOM_A]
 never applies: Nova spells 'Windows' as 'windows'.
when: {extra_spec: q, contains: 'x,y'}, require: [CUSTOM_A]
 FILE:2: the rule r never applies: no item of a list is 'x,y', because lists are divided at commas
when: {extra_spec: q, contains: ' x'}, require: [CUSTOM_A]
 FILE:2: the rule r never applies: no item of a list is ' x', because lists are divided at commas
when: {extra_spec: q, contains: ','}, require: [CUSTOM_A]
 FILE:2: the rule r never applies: no item of a list is ',', because lists are divided at commas
unless: {hint: q, contains: 'x '}, require: [CUSTOM_A]
 FILE:2: the rule r has a condition that never holds: no item of a list is 'x ', because
when: {extra_spec: 'hw:sound_model', is: loud}, require: [CUSTOM_A]
 a value that is not in the vocabulary: requests with
when: {image_property: hw_vif_model, in: [igb, e1000]}, forbid: [COMPUTE_NET_VIF_MODEL_E1000]
 contradicts the vocabulary, which requires COMPUTE_NET_VIF_MODEL_E1000 for hw_vif_model=e1000. Remove

# Exceptions, alternatives, and conditions about other things.
require: [CUSTOM_A]
 FILE:2: the rule r: it has none of when, unless; give at least one.
unless: [{flavor: a}], require: [CUSTOM_A]
 the rule r: unless is a list; expected a
when: {any: [{flavor: a}], all: [{flavor: b}]}, require: [CUSTOM_A]
 when has any and all; give one
when: {any: [{flavr: a}]}, require: [CUSTOM_A]
 when.any[0] has the unknown key 'flavr';
when: {project: [], flavor: b}, require: [CUSTOM_A]
 when has project and flavor; give one of them.
when: {flavor: a}, unless: {flavor: [a, b]}, require: [CUSTOM_A]
 the rule r does not apply to requests with flavor a, because of its 'unless'. Change one of the two.
when: {requires: CUSTOM_A}, forbid: [CUSTOM_A]
 the rule r forbids CUSTOM_A, and
unless: {image_property: architecture, is: x}, forbid: [CUSTOM_A]
 the rule r has a condition that never holds: architecture is an old name of hw_architecture.
""")


@pytest.mark.parametrize(("body", "problem"), _MISTAKES)
def test_each_mistake_in_a_rule_is_an_error_with_its_place(
    tmp_path: Path, body: str, problem: str
) -> None:
    _check_mistake(tmp_path, rules_text(f"name: r, {body}"), problem)


def test_trait_that_is_too_long_is_an_error(tmp_path: Path) -> None:
    text = rules_text(rule("r", _WHEN, ["CUSTOM_" + "A" * 249]))
    _check_mistake(tmp_path, text, "expected the name of a trait")


def test_rule_with_too_many_alternatives_is_an_error(tmp_path: Path) -> None:
    pairs = [
        f"{{any: [{{flavor: a{n}}}, {{flavor: b{n}}}]}}" for n in range(40)
    ]
    text = rule("r", f"{{all: [{', '.join(pairs)}]}}", ["CUSTOM_A"])
    _check_mistake(
        tmp_path,
        rules_text(text),
        "the rule r: it has more than 64 alternatives. Divide it into several"
        " rules.",
    )


_CONTRADICTIONS = {
    "one value": (
        """\
rules:
- {name: r, when: {image_property: os_distro, is: windows}, require: [CUSTOM_A]}
- {name: s, when: {image_property: os_distro, in: [a, windows]}, forbid: [CUSTOM_A]}
""",
        "FILE:2: the rule r requires CUSTOM_A on root, which the rule s"
        " (FILE:3) forbids for image property os_distro=windows. Change one of"
        " the two.",
    ),
    "any value": (
        """\
rules:
- {name: r, when: {image_property: os_distro, present: true}, require: [CUSTOM_A]}
- {name: s, when: [{extra_spec: q, is: x}, {image_property: os_distro, is: b}], forbid: [CUSTOM_A]}
""",
        "forbids for image property os_distro=b",
    ),
    "hint": (
        """\
hint_traits: [CUSTOM_A]
rules:
- {name: r, unless: {image_property: os_distro, is: windows}, forbid: [CUSTOM_A]}
""",
        "the rule hint trait:CUSTOM_A=required requires CUSTOM_A on root,"
        " which the rule r (FILE:3) forbids for hint trait:CUSTOM_A=required"
        " unless image property os_distro=windows. Change one of the two.",
    ),
}


@pytest.mark.parametrize(
    ("text", "problem"), _CONTRADICTIONS.values(), ids=_CONTRADICTIONS
)
def test_rules_that_contradict_each_other_are_an_error_with_its_place(
    tmp_path: Path, text: str, problem: str
) -> None:
    _check_mistake(tmp_path, text, problem)


_DOUBTFUL = cases("""
{image_property: licence, is: x}
 never applies within Nova, which drops the image
{image_property: hw_vif_modle, is: e1000}
 'hw_vif_modle' before a filter sees it.
{image_property: 'trait:CUSTOM_B', is: required}
 never applies within Nova
{image_property: hw_vif_model, is: e1000x}
 a value that is not in the vocabulary.
""")


@pytest.mark.parametrize(("when", "problem"), _DOUBTFUL)
def test_doubtful_rule_gets_a_warning_and_is_still_used(
    tmp_path: Path, when: str, problem: str
) -> None:
    path = _file(tmp_path, rules_text(rule("r", when, ["CUSTOM_A"])))
    read = read_rules([path])
    assert read.errors == []
    (warning,) = map(str, read.warnings)
    assert warning.startswith(f"{path}:2: warning: the rule r ")
    assert problem in warning
    assert len(read.rules.rules) == 1


_VALID = cases("""
when: {image_property: os_distro, is: sles}, forbid: [CUSTOM_A]
when: {image_property: os_distro, is: windows}, forbid: [CUSTOM_A], scope: _GPU
when: {extra_spec: os_distro, is: windows}, forbid: [CUSTOM_A]
when: {image_property: os_distro, is: windows}, require: [CUSTOM_A]
when: {image_property: hw_machine_type, is: pc-q35-9.1}, require: [CUSTOM_A]
when: {image_property: hw_time_hpet, is: true}, require: [CUSTOM_COMPUTE_TIME_HPET]
when: {extra_spec: 'hw:sound_model', is: ich9}, require: [CUSTOM_A]
""")


@pytest.mark.parametrize("body", _VALID)
def test_valid_rules_cause_no_error_and_no_warning(
    tmp_path: Path, body: str
) -> None:
    """A rule about another value, scope or thing than the first one."""
    first = rule("r", _WHEN, ["CUSTOM_A"])
    text = rules_text(first, f"name: s, {body}")
    assert _problems(_file(tmp_path, text)) == []


def test_mistakes_of_all_files_are_reported_together_and_in_order(
    tmp_path: Path,
) -> None:
    taken = rule("b", _WHEN, ["CUSTOM_A"])
    first = rules_text("name: 1 2", rule("a", _WHEN, ["x"]), taken)
    a = _file(tmp_path, first, "a.yaml")
    second = rules_text(taken, rule("c", _WHEN, ["y"]))
    b = _file(tmp_path, second, "b.yml")
    _file(tmp_path, "{", "c.txt")
    expected = [f"{a}:2", f"{a}:2", f"{a}:2", f"{a}:3", f"{b}:2", f"{b}:3"]
    for paths in ((tmp_path,), (a, b)):
        places = [each.partition(": ")[0] for each in _problems(*paths)]
        assert places == expected


def test_unreadable_rule_files_are_reported_with_path_and_reason(
    tmp_path: Path,
) -> None:
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "link.yaml").symlink_to("nowhere")
    folder, link = _problems(tmp_path)
    assert folder == (
        f"{tmp_path}/folder.yaml: this is a directory; give the path of a"
        " file."
    )
    assert link == (
        f"{tmp_path}/link.yaml: there is no such file. Check the path."
    )


def test_path_of_a_rule_file_is_escaped() -> None:
    assert _problems(Path("a\0b")) == [
        "a\\x00b: the file cannot be read: embedded null byte. Check the path"
        " and its permissions."
    ]


def test_each_of_hundreds_of_conflicting_rules_is_one_error(
    tmp_path: Path,
) -> None:
    """And not each with each: that would be 10,000 lines."""
    effects = ("require: [CUSTOM_A]", "forbid: [CUSTOM_A]")
    rules = [
        f"name: r{n}, when: {{extra_spec: q, present: true}}, {effects[n % 2]}"
        for n in range(200)
    ]
    assert len(read_rules([_file(tmp_path, rules_text(*rules))]).errors) == 100
