# SPDX-License-Identifier: Apache-2.0

"""Test that the documentation is true: its examples run, and what it names
exists.
"""

from __future__ import annotations

import configparser
import doctest
import io
import logging
import pkgutil
import re
import shlex
import sys
import textwrap
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path, PurePath
from subprocess import PIPE, STDOUT
from subprocess import run as run_program

import pytest

import os_prefilter
from os_prefilter import errors
from os_prefilter.common.errors import PrefilterError
from os_prefilter.hosts.capabilities import REPORTERS
from os_prefilter.service.decision_log import LOGGER
from os_prefilter.service.loading import NAMESPACE
from os_prefilter.vocabulary.image_properties import KEPT_BY_NOVA, LEGACY_NAMES
from os_prefilter_agent.cli.capabilities import ReportCapabilities
from os_prefilter_tools.cli.main import Program, main
from tests.support.pages import (
    DOCS,
    DROP_IN,
    INCLUDE,
    PAGES,
    ROOT,
    Command,
    blocks,
    commands_of,
    files_of,
    installed_by_us,
    prints,
)
from tests.support.project import our_commands, project_table

pytest_plugins = ["pytester"]


def run(
    command: Command, pytester: pytest.Pytester | None = None
) -> tuple[str, int]:
    """Run a command; return what it printed, both streams in one as a terminal
    shows them, and its exit code.
    """
    program, *arguments = shlex.split(command.text.replace("\\\n", " "))
    if pytester:
        # In this process, which has imported already what takes seconds.
        result = pytester.runpytest_inprocess(*arguments[2:])
        return result.stdout.str(), int(result.ret)
    if program == "python":
        words = [sys.executable, *arguments]
        done = run_program(
            words,
            stdout=PIPE,
            stderr=STDOUT,
            text=True,
            check=False,
            timeout=300,
        )
        return done.stdout, done.returncode
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        try:
            code = main(arguments)
        except SystemExit as exit_:
            code = exit_.code if isinstance(exit_.code, int) else 1
    return printed.getvalue(), code


@pytest.fixture
def in_page_folder(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[None]:
    """Run in a folder that holds the files which the page shows, with a
    terminal of 80 columns.
    """
    page = (
        request.node.callspec.params.get("page")
        or request.node.callspec.params["command"].page
    )
    for name, text in files_of(page).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "argv", ["os-prefilter"])
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    # The command puts its own handlers there at each run.
    root.handlers[:] = handlers
    root.setLevel(level)


def _examples(page: Path) -> list[doctest.Example]:
    text = page.read_text(encoding="utf-8")
    # In Markdown a fence ends the example; in doctest only an empty line does.
    text = re.sub(r"^ *```.*$", "", text, flags=re.MULTILINE)
    return doctest.DocTestParser().get_examples(text)


_WITH_EXAMPLES = [
    page for page in (*PAGES, ROOT / "README.md") if _examples(page)
]


@pytest.mark.usefixtures("in_page_folder")
@pytest.mark.parametrize("page", _WITH_EXAMPLES, ids=lambda page: page.stem)
def test_python_examples_run(page: Path) -> None:
    """Every ``>>>`` example gives what the page says, each page in one go from
    top to bottom.
    """
    test = doctest.DocTest(
        _examples(page),
        {"__name__": "__main__"},
        page.name,
        str(page),
        0,
        None,
    )
    report: list[str] = []
    runner = doctest.DocTestRunner(
        optionflags=doctest.ELLIPSIS | doctest.REPORT_NDIFF
    )
    result = runner.run(test, out=report.append, clear_globs=False)
    assert result.attempted
    assert not result.failed, "".join(report)


_COMMANDS = [command for page in PAGES for command in commands_of(page)]


@pytest.mark.parametrize(
    "command",
    _COMMANDS,
    ids=lambda command: f"{command.page.stem}: {command.text}",
)
def test_commands_print_what_the_page_shows(
    command: Command, request: pytest.FixtureRequest
) -> None:
    """Every ``$ os-prefilter`` and ``$ python`` prints what the page says
    (``...``: anything), and exits so.
    """
    # It has a folder of its own, and at its end Python forgets what was
    # imported meanwhile: only where it is needed.
    pytester = (
        request.getfixturevalue("pytester")
        if " -m pytest " in command.text
        else None
    )
    request.getfixturevalue("in_page_folder")
    printed, code = run(command, pytester)
    assert str(code) in (command.exit_code or "012")
    assert prints(command.output, printed), printed


def test_installed_filter_has_a_section_in_filters_rst_and_reporter_a_place_on_one_page() -> (
    None
):
    """A section has an example of its own, and the list of fields;
    docs/CONTRIBUTING.rst tells of it.
    """
    text = (DOCS / "filters.rst").read_text(encoding="utf-8")
    for name in installed_by_us(NAMESPACE):
        section = re.search(
            rf"^\.\. _filter-{name}:\n\n{name}\n-+\n(.*?)(?=^\.\. _|\Z)",
            text,
            re.MULTILINE | re.DOTALL,
        )
        wanted = (
            f'"{name}"',
            ":Reads:",
            ":Requires:",
            ":Ignores:",
            ":Nova:",
            ":Options:",
        )
        assert [
            each for each in wanted if not section or each not in section[1]
        ] == [], name
    every = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [
        name
        for name in installed_by_us(REPORTERS)
        if every.count(f".. _reporter-{name}:\n") != 1
    ] == []


def test_systemd_unit_uses_valid_options_of_capabilities_report() -> None:
    """Its options exist, and go together; so do those that agent.env names. It
    is restarted whatever ended it.
    """
    folder, unit = DOCS / "packaging", configparser.RawConfigParser()
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(
        (folder / "os-prefilter-agent.service")
        .read_text(encoding="utf-8")
        .replace("\\\n", "")
    )
    # systemd takes an end by SIGHUP for a clean one, and would leave it at
    # that with on-failure.
    assert (
        unit["Service"]["Restart"],
        unit["Unit"]["StartLimitIntervalSec"],
    ) == ("always", "0")
    assert unit["Service"]["ExecReload"] == "/bin/kill -HUP $MAINPID"
    _, *words, more = shlex.split(unit["Service"]["ExecStart"])
    assert words[:2] == ["capabilities", "report"]
    environment = (folder / "agent.env").read_text(encoding="utf-8")
    assert environment.splitlines()[-1] == f"{more.removeprefix('$')}="
    named = re.findall(r"^# (--\S+) ", environment, re.MULTILINE)
    parser = ReportCapabilities(Program("0"), None).get_parser("report")
    variables = dict(
        word.split("=", 1) for word in unit["Service"]["Environment"].split()
    )
    words = [
        variables.get(word.removeprefix("${").removesuffix("}"), word)
        for word in words
    ]
    assert all(
        f"\n#{name}={value}\n" in environment
        for name, value in variables.items()
    )
    arguments = parser.parse_args(
        [*words[2:], *(word for option in named for word in (option, "34"))]
    )
    assert arguments.watch
    # It reads what nova-compute reads.
    assert not {"--config-file", "--config-dir"}.intersection(words)
    assert (arguments.log_config, arguments.nova_release) == (
        "/etc/os-prefilter/agent.conf",
        34,
    )


def test_packages_have_the_version_of_the_project() -> None:
    version, folder = project_table()["version"], DOCS / "packaging"
    # A release candidate, as both package managers sort it before its release.
    native = version.replace("rc", "~rc")
    assert (
        (folder / "debian" / "changelog")
        .read_text(encoding="utf-8")
        .startswith(f"os-prefilter ({native}-")
    )
    specification = (folder / "os-prefilter.spec").read_text(encoding="utf-8")
    assert re.findall(
        r"^(?:Version:|%global pypi_version) +(\S+)$",
        specification,
        re.MULTILINE,
    ) == [version, native]


@pytest.mark.parametrize("page", ["upgrade.rst", "nova.rst"])
def test_commands_for_a_cloud_use_valid_options(page: str) -> None:
    """They are about a cloud, so they do not run here; their options exist,
    and go together.
    """
    text = (DOCS / page).read_text(encoding="utf-8").replace("\\\n", "")
    command = (
        r"^ +(?:/\S+/)?os-prefilter (.*?)(?: [>|].*)?$|``(capabilities report"
        r" --.*?)``"
    )
    lines = [
        " ".join(" ".join(found).split())
        for found in re.findall(command, text, re.MULTILINE)
    ]
    commands = our_commands()
    assert lines
    for words in lines:
        name = next(
            each
            for each in sorted(commands, reverse=True)
            if words.startswith(each)
        )
        commands[name].load()(Program("0"), None).get_parser(name).parse_args(
            shlex.split(words.removeprefix(name))
        )


def test_every_page_recommends_the_section_of_one_file() -> None:
    lines = [
        line
        for line in DROP_IN.read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    section = lines[lines.index("[prefilter]") :]
    assert "\n".join(f"    {line}" for line in lines) in (
        ROOT / "README.md"
    ).read_text(encoding="utf-8")
    commands = files_of(DOCS / "commands.rst")["nova.conf"].splitlines()
    assert commands[commands.index("[prefilter]") :] == section
    for page in ("nova", "deployment-tools"):
        text = (DOCS / f"{page}.rst").read_text(encoding="utf-8")
        assert any(
            ":start-at: [filter_scheduler]" in options
            for _, options in INCLUDE.findall(text)
        ), page


def test_first_lines_of_nova_conf_are_the_same_on_each_page() -> None:
    """In README, on the page for Nova, and in DevStack's local.conf."""
    lines = DROP_IN.read_text(encoding="utf-8").splitlines()
    activation = [line for line in lines if line.startswith("available_")]
    first = "\n".join(
        [
            "[filter_scheduler]",
            *activation,
            "[prefilter]",
            "enabled_filters = image_metadata\n",
        ]
    )
    shown = [
        text.replace("\n\n[prefilter]", "\n[prefilter]")
        for _, _, text in blocks(DOCS / "nova.rst")
    ]
    assert first in shown
    assert f"[[post-config|$NOVA_CONF]]\n{first}" in "".join(shown)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert textwrap.indent(first, "    ") in readme


@pytest.mark.parametrize(
    ("phase", "installs"),
    [("pre-install", ""), ("install", "-e /opt/stack/os-prefilter\n")],
)
def test_plugin_of_devstack_installs_the_clone(
    phase: str, installs: str
) -> None:
    plugin = DOCS / "examples" / "devstack" / "plugin.sh"
    script = 'DEST=/opt/stack; pip_install() { printf "%s\\n" "$*"; }; source "$0" stack "$1"'
    done = run_program(
        ["/bin/bash", "-euc", script, str(plugin), phase],
        stdout=PIPE,
        text=True,
        check=True,
    )
    assert done.stdout == installs


def test_each_error_class_and_each_public_name_has_its_entry() -> None:
    """In errors.rst a line that says what to do, and in reference.rst."""
    explained = (DOCS / "errors.rst").read_text(encoding="utf-8")
    classes = {
        name
        for name, it in vars(errors).items()
        if isinstance(it, type) and issubclass(it, PrefilterError)
    }
    assert {
        name
        for name in classes
        if f":class:`~os_prefilter.common.errors.{name}`" not in explained
    } == set()
    text = (DOCS / "reference.rst").read_text(encoding="utf-8")
    listed = re.findall(
        r"^\.\. auto(?:class|function|data):: os_prefilter\.(?:\w+\.)*(\w+)$",
        text,
        re.MULTILINE,
    )
    assert set(os_prefilter.__all__) - set(listed) == set()


_DOTTED = re.compile(r"\bos_prefilter(?:_agent|_tools)?(?:\.[A-Za-z_]\w*)+")
_PATH = re.compile(
    r"(?<!formerly )(?<!`)(``?)((?:[\w.-]+/)*[\w-]+\.py)\1(?!`)"
)
_SOURCE = ROOT / "src"
_FOLDERS = (
    ROOT,
    DOCS,
    _SOURCE,
    _SOURCE / "os_prefilter",
    _SOURCE / "os_prefilter_agent",
    _SOURCE / "os_prefilter_tools",
)
# Code of other projects.
_ELSEWHERE = re.compile(
    r"(ansible|conductor|db|glance|ironic|ironicclient|kolla|nova|placement|plugins/action)/|common/states\.py"
)


_GROUPS = project_table()["entry-points"].keys()


@cache
def _exists(dotted: str) -> bool:
    """Whether a dotted name is a group of entry points, a logger, a module, or
    something in a module.
    """
    if dotted in {*_GROUPS, LOGGER}:
        return True
    try:
        pkgutil.resolve_name(dotted)
    except (AttributeError, ImportError):
        parent, _, name = dotted.rpartition(".")
        return _exists(parent) and name in getattr(
            pkgutil.resolve_name(parent), "__annotations__", {}
        )
    return True


def test_every_module_that_a_text_names_exists() -> None:
    """In pages, decisions, notes and source: a removed or renamed file is
    named only after the word ``formerly``.
    """
    shown = {
        name
        for page in PAGES
        for caption in files_of(page)
        for name in (caption, PurePath(caption).name)
    }
    missing: dict[str, list[str]] = {}
    for text in (
        ROOT / "README.md",
        *PAGES,
        *DOCS.glob("releasenotes/notes/*.yaml"),
        *_SOURCE.rglob("*.py"),
    ):
        content = text.read_text(encoding="utf-8")
        # A comment that names another project's file in full uses its short
        # name afterwards.
        paths = {
            path
            for _, path in _PATH.findall(content)
            if "/" in path or text.suffix != ".py"
        } - shown
        ours = {path for path in paths if not _ELSEWHERE.match(path)}
        found = {
            path
            for path in ours
            if not any((folder / path).exists() for folder in _FOLDERS)
        }
        found |= {
            name for name in _DOTTED.findall(content) if not _exists(name)
        }
        if found:
            missing[text.relative_to(ROOT).as_posix()] = sorted(found)
    assert missing == {}


def test_decisions_are_numbered_without_gaps() -> None:
    records = sorted((DOCS / "adr").glob("0*.rst"))
    numbers = [f"{number:04}" for number in range(1, len(records) + 1)]
    assert [record.name[:4] for record in records] == numbers
    titles = [record.read_text(encoding="utf-8")[:5] for record in records]
    assert titles == [f"{number} " for number in numbers]


_DECISION = re.compile(r"(?:\bADR|docs/adr/)[\s#]*(\d{4})\b")


def test_every_decision_that_a_text_names_exists() -> None:
    records = {record.name[:4] for record in (DOCS / "adr").glob("0*.rst")}
    missing = {
        text.relative_to(ROOT).as_posix(): number
        for text in (
            ROOT / "pyproject.toml",
            ROOT / "README.md",
            *PAGES,
            *_SOURCE.rglob("*.py"),
            *(ROOT / "tests").rglob("*.py"),
        )
        for number in _DECISION.findall(text.read_text(encoding="utf-8"))
        if number not in records
    }
    assert missing == {}


def test_nothing_tells_to_install_the_package_by_a_name_that_no_index_has() -> (
    None
):
    """Another package could get that name; install it from its repository or
    from a wheel.
    """
    tool = r"(?:pip3?|pipx|apt|apt-get|dnf)(?: -\S+)* install"
    by_name = re.compile(
        tool + r"(?: +-\S+| +\S+\.txt)* +['\"]?os[-_]prefilter(?:[\[\s'\"=]|$)"
    )
    paths = [
        path
        for folder in (DOCS, ROOT / "src")
        for path in folder.rglob("*.*")
        if "_build" not in path.parts
    ]
    texts = [
        path
        for path in paths
        if path.suffix in {".md", ".py", ".rst", ".toml", ".yaml", ".yml"}
    ]
    assert [
        path
        for path in (ROOT / "README.md", *texts)
        if by_name.search(path.read_text(encoding="utf-8"))
    ] == []


_READS_IMAGE = re.compile(
    r"""image_property(?:\(|=|: )["']?([a-z][a-z0-9_]+)|_?request(?:_of)?\({"([^"]+)"""
)


@pytest.mark.parametrize(
    "page",
    [*PAGES, *sorted(DOCS.glob("examples/**/*.py"))],
    ids=lambda page: page.name,
)
def test_no_example_reads_an_image_property_that_nova_drops(
    page: Path,
) -> None:
    """Within Nova it would never do anything."""
    names = {
        first or second
        for first, second in _READS_IMAGE.findall(
            page.read_text(encoding="utf-8")
        )
    }
    # Of old names, rules.rst shows that they are refused.
    assert names - KEPT_BY_NOVA - LEGACY_NAMES.keys() == set()
