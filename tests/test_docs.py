"""Test that the documentation is true and complete: its examples run, and it covers everything."""

import configparser
import doctest
import inspect
import io
import logging
import pkgutil
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from importlib.metadata import entry_points
from pathlib import Path, PurePath
from typing import NamedTuple

import pytest

import os_prefilter
from os_prefilter import errors
from os_prefilter.cli.capabilities import CapabilitiesReport
from os_prefilter.cli.main import Program, main
from os_prefilter.conf import OPTIONS
from os_prefilter.filters.loading import NAMESPACE
from os_prefilter.filters.report_scope import EVERY_TRAIT
from os_prefilter.hosts.capabilities import REPORTERS
from os_prefilter.pipeline.decision_log import LOGGER
from tests.support.project import our_commands, project_table
from tests.support.report_scopes import RECOMMENDED, scope_of

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
DROP_IN = DOCS / "examples" / "nova" / "os-prefilter.conf"
PAGES = sorted(page for page in DOCS.rglob("*.rst") if "_build" not in page.parts)

_BLOCK = re.compile(
    r"^(?P<indent> *)\.\. code-block:: (?P<language>\w+)\n(?P<options>(?:(?P=indent) +:.*\n)*)\n"
    r"(?P<body>(?:(?P=indent) +\S.*\n|[ ]*\n)+)",
    re.MULTILINE,
)
_INCLUDE = re.compile(r"^\.\. literalinclude:: (examples/nova/\S+)\n((?: +:.*\n)*)", re.MULTILINE)
_CAPTION = re.compile(r":caption: (\S+)$", re.MULTILINE)
_COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n?", re.MULTILINE)


class Command(NamedTuple):
    """A command in the documentation, and what the page says that it prints."""

    page: Path
    text: str
    output: str
    exit_code: str | None
    """What ``echo $?`` after it says; None if nothing does."""


def blocks(page: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the language, the options and the text of each code block of a page."""
    for match in _BLOCK.finditer(page.read_text(encoding="utf-8") + "\n"):
        yield match["language"], match["options"], textwrap.dedent(match["body"]).strip("\n") + "\n"


def files_of(page: Path) -> dict[str, str]:
    """Return the files that a page shows: its code blocks whose caption is the name of one."""
    found = [(options, text) for _, options, text in blocks(page)]
    for match in _INCLUDE.finditer(page.read_text(encoding="utf-8")):
        start = re.search(r":start-at: (.*)", match[2])
        text = (page.parent / match[1]).read_text(encoding="utf-8")
        found.append((match[2], text[text.index(start[1]) :] if start else text))
    captions = ((_CAPTION.search(options), text) for options, text in found)
    return {caption[1]: text for caption, text in captions if caption}


def commands_of(page: Path) -> Iterator[Command]:
    """Yield the commands of a page that a test can run."""
    for language, _, text in blocks(page):
        if language != "console":
            continue
        parts = _COMMAND.split(text)[1:]
        pairs = [(parts[i].replace("\\\n", " "), parts[i + 1]) for i in range(0, len(parts), 2)]
        for index, (command, output) in enumerate(pairs):
            following = pairs[index + 1] if index + 1 < len(pairs) else ("", "")
            code = following[1].strip() if following[0] == "echo $?" else None
            if shlex.split(command)[0] in ("os-prefilter", "python"):
                yield Command(page, command, output, code)


def run(command: Command, pytester: pytest.Pytester | None = None) -> tuple[str, int]:
    """Run a command; return what it printed, both streams in one as a terminal shows them, and its exit code.

    :param pytester: runs pytest in this process, which has imported already what takes seconds
    """
    program, *arguments = shlex.split(command.text)
    if pytester:
        result = pytester.runpytest_inprocess(*arguments[2:])
        return result.stdout.str(), int(result.ret)
    if program == "python":
        done = subprocess.run(
            [sys.executable, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
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


def _runs_pytest(command: Command) -> bool:
    return shlex.split(command.text)[1:3] == ["-m", "pytest"]


def stripped(text: str) -> str:
    """Return the text without spaces at the ends of its lines."""
    return "\n".join(line.rstrip() for line in text.strip().splitlines()) + "\n"


@pytest.fixture
def in_page_folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run in a folder that holds the files which the page shows, with a terminal of 80 columns."""
    page = request.node.callspec.params.get("page") or request.node.callspec.params["command"].page
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


@pytest.mark.usefixtures("in_page_folder")
@pytest.mark.parametrize(
    "page",
    [page for page in (*PAGES, ROOT / "README.md") if _examples(page)],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_python_examples_run(page: Path) -> None:
    """Every ``>>>`` example gives what the page says, each page in one go from top to bottom."""
    test = doctest.DocTest(_examples(page), {"__name__": "__main__"}, page.name, str(page), 0, None)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.REPORT_NDIFF)
    result = runner.run(test, out=report.append, clear_globs=False)
    assert result.attempted
    assert not result.failed, "".join(report)


@pytest.mark.parametrize(
    "command",
    [command for page in PAGES for command in commands_of(page)],
    ids=lambda command: f"{command.page.stem}: {command.text}",
)
def test_commands_print_what_the_page_shows(command: Command, request: pytest.FixtureRequest) -> None:
    """Every ``$ os-prefilter`` and ``$ python`` prints what the page says (``...``: anything), and exits so."""
    # It has a folder of its own, and at its end Python forgets what was imported meanwhile: only where it is needed.
    pytester = request.getfixturevalue("pytester") if _runs_pytest(command) else None
    request.getfixturevalue("in_page_folder")
    printed, code = run(command, pytester)
    if command.exit_code is not None:
        assert str(code) == command.exit_code
    else:
        assert code in (0, 1, 2)
    wanted, found = stripped(command.output), stripped(printed)
    assert doctest.OutputChecker().check_output(wanted, found, doctest.ELLIPSIS), found


def test_docs_have_more_than_ten_commands_that_are_checked() -> None:
    """The reader of the pages finds commands at all, so that the test above proves something."""
    assert len({command.text for page in PAGES for command in commands_of(page)}) > 10


def installed_by_us(group: str) -> list[str]:
    """Return the names of the package's own entry points in a group."""
    return sorted(point.name for point in entry_points(group=group) if point.dist and point.dist.name == "os-prefilter")


@pytest.mark.parametrize("name", installed_by_us(NAMESPACE))
def test_installed_filter_has_a_complete_section_with_an_example_in_filters_rst(name: str) -> None:
    """Every filter that the package installs has a section of its name in filters.rst, with an example of its own."""
    text = (DOCS / "filters.rst").read_text(encoding="utf-8")
    section = re.search(
        rf"^\.\. _filter-{name}:\n\n{name}\n-+\n(.*?)(?=^\.\. _filter-|\Z)", text, re.MULTILINE | re.DOTALL
    )
    assert section, f"The filter {name} lacks its section in docs/filters.rst, as docs/contribute.rst says."
    assert f'"{name}"' in section[1], "its example loads it by name"
    for field in (":Reads:", ":Requires:", ":Ignores:", ":Nova:", ":Options:"):
        assert field in section[1]


@pytest.mark.parametrize("name", installed_by_us(REPORTERS))
def test_installed_reporter_is_described_on_exactly_one_page(name: str) -> None:
    """Every virt driver whose hosts can be reported has a place where it is said what they report."""
    assert sum(f".. _reporter-{name}:\n" in page.read_text(encoding="utf-8") for page in PAGES) == 1


def test_systemd_unit_uses_valid_options_of_capabilities_report() -> None:
    """Its options exist, and go together; so do those that agent.env names. It is restarted whatever ended it."""
    folder = DOCS / "packaging"
    unit = configparser.RawConfigParser()
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((folder / "os-prefilter-agent.service").read_text(encoding="utf-8").replace("\\\n", ""))
    # systemd takes an end by SIGHUP for a clean one, and would leave it at that with on-failure.
    assert (unit["Service"]["Restart"], unit["Unit"]["StartLimitIntervalSec"]) == ("always", "0")
    assert unit["Service"]["ExecReload"] == "/bin/kill -HUP $MAINPID"
    _, *words, more = shlex.split(unit["Service"]["ExecStart"])
    assert words[:2] == ["capabilities", "report"]
    environment = (folder / "agent.env").read_text(encoding="utf-8")
    assert environment.splitlines()[-1] == f"{more.removeprefix('$')}="
    named = re.findall(r"^# (--\S+) ", environment, re.MULTILINE)
    parser = CapabilitiesReport(Program("0"), None).get_parser("report")
    arguments = parser.parse_args([*words[2:], *(word for option in named for word in (option, "34"))])
    assert arguments.watch
    assert arguments.nova_conf
    assert arguments.config_file == "/etc/os-prefilter/agent.conf"
    assert arguments.nova_release == 34


def test_packages_have_the_version_of_the_project() -> None:
    version = project_table()["version"]
    changelog = (DOCS / "packaging" / "debian" / "changelog").read_text(encoding="utf-8")
    assert changelog.startswith(f"os-prefilter ({version}-")
    specification = (DOCS / "packaging" / "os-prefilter.spec").read_text(encoding="utf-8")
    assert re.search(r"^Version: +(\S+)$", specification, re.MULTILINE)[1] == version  # type: ignore[index]


@pytest.mark.parametrize("page", ["upgrade.rst", "enable-safely.rst"])
def test_commands_for_a_cloud_use_valid_options(page: str) -> None:
    """They are about a cloud, so they do not run here; their options exist, and go together."""
    text = (DOCS / page).read_text(encoding="utf-8").replace("\\\n", "")
    lines = re.findall(
        r"^ +(?:/\S+/)?os-prefilter (.*?)(?: [>|].*)?$|``(capabilities report --.*?)``", text, re.MULTILINE
    )
    commands = our_commands()
    assert len(lines) > 4
    for block, inline in lines:
        words = " ".join((block or inline).split())
        name = next(each for each in sorted(commands, reverse=True) if words.startswith(each))
        parser = commands[name].load()(Program("0"), None).get_parser(name)
        parser.parse_args(shlex.split(words.removeprefix(name)))


def test_every_page_recommends_the_section_of_one_file() -> None:
    """Hosts that report by another section count as hosts that have not reported."""
    of_file = DROP_IN.read_text(encoding="utf-8")
    lines = [line for line in of_file.splitlines() if line and not line.startswith("#")]
    section = lines[lines.index("[prefilter]") :]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "\n".join(f"    {line}" for line in lines) in readme
    commands = files_of(DOCS / "commands.rst")["nova.conf"].splitlines()
    assert commands[commands.index("[prefilter]") :] == section
    for page, start in (
        ("nova", "[filter_scheduler]"),
        ("agent", "[prefilter]"),
        ("deployment-tools", "[filter_scheduler]"),
    ):
        text = (DOCS / f"{page}.rst").read_text(encoding="utf-8")
        assert any(f":start-at: {start}" in options for _, options in _INCLUDE.findall(text)), page
        assert "[prefilter]" not in [
            line
            for language, _, block in blocks(DOCS / f"{page}.rst")
            if language == "ini"
            for line in block.splitlines()
        ]


def test_agent_rst_counts_and_lists_the_custom_traits_that_reports_create() -> None:
    """The page says about how many a first report by its own section creates; its loop for provider.yaml all."""
    text = (DOCS / "agent.rst").read_text(encoding="utf-8")
    told = re.search(r"about (\d+) requests at the\s+first report", text)
    assert told
    assert abs(int(told[1]) - len(scope_of(RECOMMENDED).known)) <= 5
    loop = re.search(r"os-prefilter (capabilities show .*?) \|", text)
    assert loop
    listed, _ = run(Command(DOCS / "agent.rst", f"os-prefilter {loop[1].partition(' | ')[0]}", "", None))
    assert {line for line in listed.splitlines() if line.startswith("CUSTOM_")} == EVERY_TRAIT.known


@pytest.mark.parametrize("option", sorted(option.name for option in OPTIONS))
def test_config_option_is_referenced_on_some_page(option: str) -> None:
    """Every option is told of by hand somewhere, not only in the list that is made from the code."""
    assert any(f":ref:`{option} <option-{option}>`" in page.read_text(encoding="utf-8") for page in PAGES)


@pytest.mark.parametrize(
    "name",
    sorted(
        name for name, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, errors.PrefilterError)
    ),
)
def test_error_class_is_explained_in_errors_rst(name: str) -> None:
    """Every error has a line in errors.rst that says what to do."""
    assert f":class:`~os_prefilter.common.errors.{name}`" in (DOCS / "errors.rst").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", os_prefilter.__all__)
def test_public_name_is_documented_in_reference_rst(name: str) -> None:
    """Every public name has an entry in reference.rst."""
    text = (DOCS / "reference.rst").read_text(encoding="utf-8")
    assert re.search(rf"^\.\. auto(class|function|data):: os_prefilter\.(\w+\.)*{name}$", text, re.MULTILINE)


_DOTTED = re.compile(r"\bos_prefilter(?:\.[A-Za-z_]\w*)+")
_PATH = re.compile(r"(?<!formerly )(?<!`)(``?)((?:[\w.-]+/)*[\w-]+\.py)\1(?!`)")
_SOURCE = ROOT / "src" / "os_prefilter"
_FOLDERS = (ROOT, DOCS, ROOT / "src", _SOURCE)
# Code of other projects.
_ELSEWHERE = (
    "ansible/",
    "common/states.py",
    "conductor/",
    "db/",
    "glance/",
    "ironic/",
    "ironicclient/",
    "kolla/",
    "nova/",
    "placement/",
    "plugins/action/",
)


def _exists(dotted: str) -> bool:
    """Whether a dotted name is a module, something in a module, a logger, or a group of entry points."""
    try:
        pkgutil.resolve_name(dotted)
    except (AttributeError, ImportError):
        parent, _, name = dotted.rpartition(".")
        if entry_points(group=dotted) or dotted == LOGGER:
            return True
        return _exists(parent) and name in getattr(pkgutil.resolve_name(parent), "__annotations__", {})
    return True


def _is_file(path: str, text: Path) -> bool:
    """Whether a path is a file of this project, one of another project, or one that a page shows."""
    if "/" not in path and text.suffix == ".py":
        # A comment that names another project's file in full uses its short name afterwards.
        return True
    shown = {name for page in PAGES for caption in files_of(page) for name in (caption, PurePath(caption).name)}
    return path.startswith(_ELSEWHERE) or path in shown or any((folder / path).exists() for folder in _FOLDERS)


@pytest.mark.parametrize(
    "text",
    [ROOT / "README.md", *PAGES, *sorted(DOCS.glob("releasenotes/notes/*.yaml")), *sorted(_SOURCE.rglob("*.py"))],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_every_module_that_a_text_names_exists(text: Path) -> None:
    """In pages, decisions, notes and source: a removed or renamed file is named only after the word ``formerly``."""
    content = text.read_text(encoding="utf-8")
    assert [name for name in sorted(set(_DOTTED.findall(content))) if not _exists(name)] == []
    assert [path for _, path in _PATH.findall(content) if not _is_file(path, text)] == []


@pytest.mark.parametrize("folder", ["docs", "src", "README.md"])
def test_nothing_tells_to_install_the_package_by_a_name_that_no_index_has(folder: str) -> None:
    """Another package could get that name; install it from its repository or from a wheel."""
    tool = r"(?:pip3?|pipx|apt|apt-get|dnf)(?: -\S+)* install"
    by_name = re.compile(tool + r"(?: +-\S+| +\S+\.txt)* +['\"]?os[-_]prefilter(?:[\[\s'\"=]|$)")
    paths = [ROOT / folder] if folder.endswith(".md") else sorted((ROOT / folder).rglob("*.*"))
    for path in paths:
        if path.suffix in {".md", ".py", ".rst", ".toml", ".yaml", ".yml"} and "_build" not in path.parts:
            found = by_name.search(path.read_text(encoding="utf-8"))
            assert not found, f"{path.relative_to(ROOT)}: {found and found[0]}"
