"""The help of each option: what, which values, the default, since when, and what a wrong value does."""

import ast
import re
from importlib.metadata import version
from pathlib import Path

import pytest
from oslo_config import cfg
from packaging.version import Version

import os_prefilter
from os_prefilter.conf import GROUP, OPTIONS, list_opts, options_from
from os_prefilter.conf.options import Options
from tests.conftest import conf_with

_SRC = Path(os_prefilter.__file__).parent
_IMPORTS_GROUP = re.compile(r"^from os_prefilter\.conf(\.definitions)? import .*\bGROUP\b", re.MULTILINE)


def facts_of(option: cfg.Opt) -> dict[str, str]:
    """Return the list at the end of an option's help: each item by its first word, on one line."""
    listed = (option.help or "").partition("\n\n")[2]
    items = [" ".join(item.split()) for item in re.split(r"^- ", listed, flags=re.MULTILINE) if item]
    return {item.partition(" ")[0].rstrip(":"): item for item in items}


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_help_says_values_default_release_and_what_a_wrong_value_does(option: cfg.Opt) -> None:
    """``test_wrong_options.py`` proves the last."""
    facts = facts_of(option)
    choices = getattr(option.type, "choices", None)
    # With a meaning beside each choice, which every output of the generator shows.
    assert all(choices.values()) if choices else len(facts["Values"]) > len("Values: .")
    if option.default in ([], ""):
        assert facts["Default"].startswith("Default: empty; ")
    elif isinstance(option.default, list):
        assert facts["Default"] == f"Default: ``{','.join(option.default)}``."
    else:
        assert re.match(rf"Default: (``)?{re.escape(str(option.default))}\b", facts["Default"], re.IGNORECASE)
    since = facts["Since"].removeprefix("Since ").removesuffix(".")
    assert Version(since) <= Version(version("os-prefilter"))
    assert facts["A"].startswith("A wrong value stops the service at its start")


def _reads_of(tree: ast.AST) -> set[str]:
    """Return the options that code reads or sets: of ``conf[GROUP]``, or of a variable that has it."""
    found = set()
    called = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Subscript(slice=ast.Name(id="GROUP")), attr=name):
                found.add(name)
            case ast.Attribute(value=ast.Name(id="group"), attr=name) if node not in called:
                # argparse has groups, too, with methods.
                found.add(name)
            case ast.Call(func=ast.Attribute(attr="set_override"), args=[ast.Constant(value=str(name)), *_]):
                found.add(name)
    return found


def test_code_reads_exactly_the_listed_options() -> None:
    read: set[str] = set()
    for path in _SRC.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if _IMPORTS_GROUP.search(text):
            read |= _reads_of(ast.parse(text))
    ((group, options),) = list_opts()
    assert group == GROUP
    # Those of oslo.log, which the agent overrides.
    assert read - {"log_file", "debug"} == {option.dest for option in options}


def test_no_other_file_defines_an_option_of_the_group() -> None:
    """Those of Nova's and Placement's groups, which are read where these are not, are the only others."""
    defining = {
        path.relative_to(_SRC).as_posix()
        for path in _SRC.rglob("*.py")
        if re.search(r"\bcfg\.\w*Opt\(", path.read_text(encoding="utf-8"))
    }
    assert defining == {"conf/definitions.py", "adapters/nova_conf.py", "adapters/placement/service_conf.py"}


def test_config_option_defaults_equal_the_defaults_of_options() -> None:
    assert options_from(conf_with()) == Options()
