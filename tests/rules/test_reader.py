# SPDX-License-Identifier: Apache-2.0

"""Files of rules: what they mean, and all that is wrong with others, each with
its file and line.
"""

from collections.abc import Sequence
from pathlib import Path

from os_prefilter.common.trait_names import Trait
from os_prefilter.rules.conditions import (
    EXTRA_SPEC,
    IMAGE_PROPERTY,
    RuleCondition,
)
from os_prefilter.rules.model import Rule
from os_prefilter.rules.reader import read_rules
from tests.support.rule_texts import rule, rules_text

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
    path = _file(tmp_path, _GOOD)
    read = read_rules([path])
    assert read.problems == ()
    gold: frozenset[str | bool] = frozenset(("gold", True, "1"))
    assert read.rules.rules == (
        Rule("windows", ((RuleCondition(IMAGE_PROPERTY, "os_distro", frozenset(("windows",))),),), (Trait("CUSTOM_A"),),
             (), "root", "the licence"),
        Rule("gold", ((RuleCondition(EXTRA_SPEC, "tier:class", gold), RuleCondition(IMAGE_PROPERTY, "os_type")),),
             (Trait("CUSTOM_B"), Trait("HW_CPU_X86_AVX2")), (Trait("CUSTOM_C"),), "_GPU"),
    )  # fmt: skip
    assert [(each.file, each.line) for each in read.rules.rules] == [
        (str(path), 3),
        (str(path), 8),
    ]
    assert read.rules.traits == {
        "CUSTOM_A",
        "CUSTOM_B",
        "CUSTOM_C",
        "HW_CPU_X86_AVX2",
    }


def _rule(
    when: str,
    require: Sequence[str] = (),
    forbid: Sequence[str] = (),
    more: str = "",
) -> str:
    return rules_text(rule("r", when, require, forbid, more))


def _condition(condition: str) -> str:
    """Return a file with the rule "r" that requires a trait under a
    condition.
    """
    return _rule(condition, ["CUSTOM_A"])


def _asking(text: str) -> str:
    return rules_text(f"name: r, {text}, require: [CUSTOM_A]")


_FIRST = rule("r", _WHEN, ["CUSTOM_A"])
_WRONG = [
    # The document.
    (
        "",
        (
            "FILE:1: the document is empty; expected a mapping of rules,"
            " hint_traits."
        ),
    ),
    (
        "version: 2\nrules: []",
        (
            "FILE:1: the document has the unknown key 'version'; valid keys"
            " are: rules, hint_traits"
        ),
    ),
    (
        "\n\nrule: []",
        "FILE:3: the document has the unknown key 'rule'; did you mean rules?",
    ),
    ("rules: [\n", "FILE:2: broken YAML: "),
    # A rule.
    (
        "rules:\n- 3",
        (
            "FILE:2: a rule: it is '3'; expected a mapping of name, when,"
            " unless, require, forbid, prefer"
        ),
    ),
    (
        _rule(_WHEN),
        (
            "FILE:2: the rule r: it has none of require, forbid, prefer; give"
            " at least one."
        ),
    ),
    (
        rules_text(rule("on", _WHEN, ["CUSTOM_A"])),
        "FILE:2: a rule: name is true; expected 1 to 64 of",
    ),
    (
        _rule(_WHEN, ["CUSTOM_A"], more="scop: root"),
        "the rule r: it has the unknown key 'scop'; did you mean scope?",
    ),
    (
        _rule(_WHEN, ["CUSTOM_A"], more="scope: 'a b'"),
        "the rule r: scope is 'a b'; expected ports, root, unsuff",
    ),
    (
        _rule(_WHEN, ["CUSTOM_A"], more='because: "\\e[0m"'),
        r"because is '\x1b[0m'; expected a text",
    ),
    # A condition.
    (
        _condition("[]"),
        "the rule r: when is empty; expected a condition, or a list of them",
    ),
    (
        _condition("{is: 3}"),
        (
            "the rule r: when has none of image_property, extra_spec, hint;"
            " give one of them."
        ),
    ),
    (
        _condition("{image_property: a, extra_spec: b, is: 3}"),
        "when has image_property and extra_spec; give one of",
    ),
    (
        _condition("{extra_spec: a}"),
        "when has none of is, in, present, contains; give one of them.",
    ),
    (
        _condition("{extra_spec: a, is: b, in: [c]}"),
        "when has is and in; give one of them.",
    ),
    (
        _condition("{extra_spec: a, in: []}"),
        "the rule r: when.in is empty; expected a list of at least",
    ),
    (
        _condition("{extra_spec: a, in: [b, b]}"),
        "the rule r: when.in has 'b' twice.",
    ),
    (
        _condition("{extra_spec: a, is: ''}"),
        "the rule r: when.is is ''; expected a text",
    ),
    (
        _condition("{extra_spec: a, present: false}"),
        "when.present is false; expected true.",
    ),
    (
        _condition("[{extra_spec: a, is: x}, {extra_spec: a, is: y}]"),
        "the rule r has 2 conditions about the flavor",
    ),
    # Traits.
    (
        _rule(_WHEN, more="require: []"),
        "the rule r: require is empty; expected a list of at least one trait.",
    ),
    (
        _rule(_WHEN, ["lower"]),
        "the rule r: require[0] is 'lower'; expected the name of a trait",
    ),
    (_rule(_WHEN, ["CUSTOM_" + "A" * 249]), "expected the name of a trait"),
    (
        _rule(_WHEN, ["HW_CPU_X86_AVX3"]),
        "(close to it: HW_CPU_X86_AVX), or one that begins with CUSTOM_",
    ),
    (
        _rule(_WHEN, ["CUSTOM_A", "CUSTOM_A"]),
        "the rule r: require has 'CUSTOM_A' twice. Keep one.",
    ),
    (
        _rule(_WHEN, more="prefer: [CUSTOM_A], require: [CUSTOM_A]"),
        "both prefers and requires CUSTOM_A. Remove one",
    ),
    (
        _rule(_WHEN, more="prefer: [CUSTOM_A], forbid: [CUSTOM_A]"),
        "both prefers and forbids CUSTOM_A. Remove one",
    ),
    (
        _rule(_WHEN, more="prefer: [CUSTOM_A], scope: _GPU"),
        "has the scope _GPU: only traits of the host itself",
    ),
    # Rules together.
    (
        rules_text(_FIRST, rule("r", _WHEN, ["CUSTOM_B"])),
        (
            "FILE:3: the rule name r is taken by FILE:2. Rename or remove one"
            " of them."
        ),
    ),
    (
        _rule(_WHEN, ["CUSTOM_A"], ["CUSTOM_A"]),
        "FILE:2: the rule r both requires and forbids CUSTOM_A.",
    ),
    (
        rules_text(
            _FIRST,
            rule(
                "s",
                "{image_property: os_distro, in: [a, windows]}",
                (),
                ["CUSTOM_A"],
            ),
        ),
        (
            "FILE:2: the rule r requires CUSTOM_A on root, which the rule s"
            " (FILE:3) forbids for image property os_distro=windows. Change"
            " one of the two."
        ),
    ),
    (
        rules_text(
            rule(
                "r", "{image_property: os_distro, present: true}", ["CUSTOM_A"]
            ),
            rule(
                "s",
                "[{extra_spec: q, is: x}, {image_property: os_distro, is: b}]",
                (),
                ["CUSTOM_A"],
            ),
        ),
        "forbids for image property os_distro=b",
    ),
    # Nova and the vocabulary.
    (
        _condition("{image_property: architecture, is: x}"),
        "FILE:2: the rule r never applies: architecture is an old",
    ),
    (
        _condition("{image_property: hw_pmu, is: 'yes'}"),
        "never applies: hw_pmu is a boolean, and 'yes' is a text.",
    ),
    (
        _condition("{image_property: os_type, is: Windows}"),
        "never applies: Nova spells 'Windows' as 'windows'.",
    ),
    *(
        (
            _condition(f"{{extra_spec: q, contains: {value}}}"),
            (
                "FILE:2: the rule r never applies: no item of a list is"
                f" {value}, because lists are divided at commas"
            ),
        )
        for value in ("'x,y'", "' x'", "','")
    ),
    (
        _asking("unless: {hint: q, contains: 'x '}"),
        (
            "FILE:2: the rule r has a condition that never holds: no item of a"
            " list is 'x ', because"
        ),
    ),
    (
        _condition("{extra_spec: 'hw:sound_model', is: loud}"),
        "a value that is not in the vocabulary: requests with",
    ),
    (
        _rule(
            "{image_property: hw_vif_model, in: [igb, e1000]}",
            (),
            ["COMPUTE_NET_VIF_MODEL_E1000"],
        ),
        (
            "contradicts the vocabulary, which requires"
            " COMPUTE_NET_VIF_MODEL_E1000 for hw_vif_model=e1000. Remove"
        ),
    ),
    # Exceptions, alternatives, and the other kinds of conditions.
    (
        "hint_traits: [lower]",
        "FILE:1: hint_traits[0] is 'lower'; expected the name of a trait",
    ),
    (
        rules_text("name: r, require: [CUSTOM_A]"),
        "FILE:2: the rule r: it has none of when, unless; give at least one.",
    ),
    (
        _asking("unless: [{flavor: a}]"),
        "the rule r: unless is a list; expected a",
    ),
    (
        _asking("when: {any: [{flavor: a}], all: [{flavor: b}]}"),
        "when has any and all; give one",
    ),
    (
        _asking("when: {any: [{flavr: a}]}"),
        "when.any[0] has the unknown key 'flavr';",
    ),
    (
        _asking("when: {project: [], flavor: b}"),
        "when has project and flavor; give one of them.",
    ),
    (
        _asking(
            "when: {all:"
            f" [{', '.join(f'{{any: [{{flavor: a{n}}}, {{flavor: b{n}}}]}}' for n in range(40))}]}}"
        ),
        (
            "the rule r: it has more than 64 alternatives. Divide it into"
            " several rules."
        ),
    ),
    (
        _asking("when: {flavor: a}, unless: {flavor: [a, b]}"),
        (
            "the rule r does not apply to requests with flavor a, because of"
            " its 'unless'. Change one of the two."
        ),
    ),
    (
        rules_text("name: r, when: {requires: CUSTOM_A}, forbid: [CUSTOM_A]"),
        "the rule r forbids CUSTOM_A, and",
    ),
    (
        rules_text(
            "name: r, unless: {image_property: architecture, is: x}, forbid:"
            " [CUSTOM_A]"
        ),
        (
            "the rule r has a condition that never holds: architecture is an"
            " old name of hw_architecture."
        ),
    ),
    (
        "hint_traits: [CUSTOM_A]\n"
        + rules_text(
            "name: r, unless: {image_property: os_distro, is: windows},"
            " forbid: [CUSTOM_A]"
        ),
        (
            "the rule hint trait:CUSTOM_A=required requires CUSTOM_A on root,"
            " which the rule r (FILE:3) forbids for hint"
            " trait:CUSTOM_A=required unless image property os_distro=windows."
            " Change one of the two."
        ),
    ),
]


def test_each_mistake_in_a_rule_file_is_an_error_with_its_place(
    tmp_path: Path,
) -> None:
    for text, problem in _WRONG:
        path = _file(tmp_path, text)
        problems = [str(each) for each in read_rules([path]).errors]
        assert any(
            problem.replace("FILE", str(path)) in each for each in problems
        ), (text, problem, problems)
        assert all(
            each.startswith(f"{path}:") and each.isprintable()
            for each in problems
        ), problems


_DOUBTFUL = [
    (
        rule("r", "{image_property: licence, is: x}", ["CUSTOM_A"]),
        "never applies within Nova, which drops the image",
    ),
    (
        rule("r", "{image_property: hw_vif_modle, is: e1000}", ["CUSTOM_A"]),
        "'hw_vif_modle' before a filter sees it.",
    ),
    (
        rule(
            "r",
            "{image_property: 'trait:CUSTOM_B', is: required}",
            ["CUSTOM_A"],
        ),
        "never applies within Nova",
    ),
    (
        rule("r", "{image_property: hw_vif_model, is: e1000x}", ["CUSTOM_A"]),
        "a value that is not in the vocabulary.",
    ),
]


def test_doubtful_rule_gets_a_warning_and_is_still_used(
    tmp_path: Path,
) -> None:
    for text, problem in _DOUBTFUL:
        path = _file(tmp_path, rules_text(text))
        read = read_rules([path])
        assert read.errors == []
        (warning,) = map(str, read.warnings)
        assert warning.startswith(f"{path}:2: warning: the rule r "), text
        assert problem in warning
        assert len(read.rules.rules) == 1


def test_valid_rules_cause_no_error_and_no_warning(tmp_path: Path) -> None:
    """Of other values, other scopes, and about other things."""
    for others in (
        (
            _FIRST,
            rule(
                "s", "{image_property: os_distro, is: sles}", (), ["CUSTOM_A"]
            ),
        ),
        (_FIRST, rule("s", _WHEN, (), ["CUSTOM_A"], "scope: _GPU")),
        (
            _FIRST,
            rule(
                "s", "{extra_spec: os_distro, is: windows}", (), ["CUSTOM_A"]
            ),
        ),
        (_FIRST, rule("s", _WHEN, ["CUSTOM_A"])),
        (
            rule(
                "r",
                "{image_property: hw_machine_type, is: pc-q35-9.1}",
                ["CUSTOM_A"],
            ),
        ),
        (
            rule(
                "r",
                "{image_property: hw_time_hpet, is: true}",
                ["CUSTOM_COMPUTE_TIME_HPET"],
            ),
        ),
        (rule("r", "{extra_spec: 'hw:sound_model', is: ich9}", ["CUSTOM_A"]),),
    ):
        assert _problems(_file(tmp_path, rules_text(*others))) == []


def test_mistakes_of_all_files_are_reported_together_and_in_order(
    tmp_path: Path,
) -> None:
    a = _file(
        tmp_path,
        rules_text(
            "name: 1 2",
            rule("a", _WHEN, ["x"]),
            rule("b", _WHEN, ["CUSTOM_A"]),
        ),
        "a.yaml",
    )
    b = _file(
        tmp_path,
        rules_text(rule("b", _WHEN, ["CUSTOM_A"]), rule("c", _WHEN, ["y"])),
        "b.yml",
    )
    _file(tmp_path, "{", "c.txt")
    for paths in ((tmp_path,), (a, b)):
        places = [each.partition(": ")[0] for each in _problems(*paths)]
        assert places == [
            f"{a}:2",
            f"{a}:2",
            f"{a}:2",
            f"{a}:3",
            f"{b}:2",
            f"{b}:3",
        ]


def test_unreadable_rule_files_are_reported_with_path_and_reason(
    tmp_path: Path,
) -> None:
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "link.yaml").symlink_to("nowhere")
    assert _problems(tmp_path) == [
        (
            f"{tmp_path}/folder.yaml: this is a directory; give the path of a"
            " file."
        ),
        f"{tmp_path}/link.yaml: there is no such file. Check the path.",
    ]
    (problem,) = _problems(Path("a\0b"))
    assert (
        problem
        == "a\\x00b: the file cannot be read: embedded null byte. Check the"
        " path and its permissions."
    )


def test_each_of_hundreds_of_conflicting_rules_is_one_error(
    tmp_path: Path,
) -> None:
    """And not each with each: that would be 10,000 lines."""
    traits: list[tuple[list[str], list[str]]] = [
        (["CUSTOM_A"], []),
        ([], ["CUSTOM_A"]),
    ]
    rules = [
        rule(f"r{each}", "{extra_spec: q, present: true}", *traits[each % 2])
        for each in range(200)
    ]
    assert len(read_rules([_file(tmp_path, rules_text(*rules))]).errors) == 100
