"""What a packager gets: the same bytes from each build, with all that a build and the tests need."""

import email
import fnmatch
import os
import re
import shutil
import sys
import tarfile
import zipfile
from email.message import Message
from pathlib import Path, PurePath

import pytest

from tests.services.packages.builds import PROJECT, build, clean_run, empty_environment
from tests.support.project import project_table

_FOLDERS = ("src", "tests", "docs")
_FILES = ("LICENSE", "README.md", "pyproject.toml", "tox.ini", ".gitignore")
_IGNORED = [line for line in (PROJECT / ".gitignore").read_text(encoding="utf-8").splitlines() if line]


def _is_ignored(path: PurePath) -> bool:
    patterns = [line.rstrip("/") for line in _IGNORED]
    parents = [str(each) for each in (path, *path.parents)]
    return any(
        pattern in parents if "/" in pattern else fnmatch.filter(path.parts, pattern) != [] for pattern in patterns
    )


def _tree() -> set[str]:
    """Return the files of the project that git would not ignore."""
    found = {
        path.relative_to(PROJECT) for folder in _FOLDERS for path in (PROJECT / folder).rglob("*") if path.is_file()
    }
    return {path.as_posix() for path in found if not _is_ignored(path)} | set(_FILES)


@pytest.fixture(scope="module")
def built_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with both, built from a tree of other times, modes and leftovers, in another environment."""
    clone, folder = tmp_path_factory.mktemp("a clone") / "os-prefilter", tmp_path_factory.mktemp("dist")
    for name in sorted(_tree(), reverse=True):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(PROJECT / name, clone / name)
        # As git with that umask: a script stays one.
        (clone / name).chmod(0o600 | (PROJECT / name).stat().st_mode & 0o100)
        os.utime(clone / name, (1_000_000_000, 1_000_000_000))
    for name in ("src/os_prefilter/__pycache__/conf.pyc", "docs/_build/html/index.html", ".tox/log", "dist/old.whl"):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_text("left over")
    variables = {"LC_ALL": "C", "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "1", "HOME": str(folder)}
    build(clone, folder, "--sdist", "--wheel", umask=0o077, **variables)
    return folder


@pytest.fixture
def source(built: Path, tmp_path: Path) -> Path:
    """Unpack the source distribution."""
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path, filter="data")
    (found,) = tmp_path.iterdir()
    return found


def _metadata(built: Path) -> Message:
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(wheel.read(name))


def _names(built: Path) -> tuple[set[str], set[str]]:
    """Return the files of the source distribution, and those of the wheel without its metadata."""
    (source,), (path,) = built.glob("*.tar.gz"), built.glob("*.whl")
    with tarfile.open(source) as archive, zipfile.ZipFile(path) as wheel:
        return set(archive.getnames()), {name for name in wheel.namelist() if ".dist-info/" not in name}


@pytest.mark.parametrize("pattern", ["*.tar.gz", "*.whl"])
def test_builds_in_different_environments_are_byte_identical(pattern: str, built: Path, built_elsewhere: Path) -> None:
    """Whatever the folder, time, umask, locale and leftovers; the wheel out of the tree is that out of the sdist."""
    (one,), (other,) = built.glob(pattern), built_elsewhere.glob(pattern)
    assert one.name == other.name
    assert one.read_bytes() == other.read_bytes()


def test_the_source_distribution_has_the_whole_project(source: Path) -> None:
    """All that builds, tests and documents it; beside it only what the build writes."""
    found = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    assert found == _tree() | {"PKG-INFO"}


@pytest.mark.parametrize("version", ["1.3.1", "1.12.2"])
def test_an_old_hatchling_packs_the_same_files(version: str, built: Path, tmp_path: Path) -> None:
    """The lower bound, which RDO has for CentOS Stream 9, and Debian 12's; ADR 0031 has both."""
    bin_folder = empty_environment(tmp_path / "environment")
    for command in (("pip", "install", "--quiet", f"hatchling=={version}"), ("hatchling", "build", "-d", tmp_path)):
        done = clean_run(bin_folder / "python", "-m", *command, cwd=PROJECT)
        assert done.returncode == 0, done.stdout + done.stderr
    assert _names(tmp_path) == _names(built)


def test_tests_pass_from_the_unpacked_source_distribution(source: Path) -> None:
    """Some that read files of the project, on the package that lies beside them."""
    code = (
        "import sys; sys.path.insert(0, 'src'); import pytest;"
        "status = pytest.main(['-q', '-p', 'no:cacheprovider', *sys.argv[1:]]);"
        "import os_prefilter; print(os_prefilter.__file__); sys.exit(status)"
    )
    tests = (
        "tests/vocabulary/test_model.py",
        "tests/test_dependencies.py",
        "tests/test_floors.py",
        "tests/vocabulary/test_vocabulary.py",
    )
    done = clean_run(sys.executable, "-c", code, *tests, cwd=source)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1].startswith(str(source / "src"))


def test_the_long_description_is_the_readme(built: Path, source: Path) -> None:
    """What it links to is in the source distribution; ``tox -e package`` checks that an index can show it."""
    metadata = _metadata(built)
    assert metadata["Description-Content-Type"] == "text/markdown"
    text = metadata.get_payload()
    assert isinstance(text, str)
    assert text.rstrip() == (PROJECT / "README.md").read_text(encoding="utf-8").rstrip()
    links = re.findall(r"\]\(([^)#]+)\)", text)
    assert links
    assert [link for link in links if not link.startswith("https://") and not (source / link).exists()] == []


def test_each_python_from_the_lowest_has_its_environment() -> None:
    """The classifiers name none: Debian 12's hatchling refuses those that it does not know."""
    project = project_table()
    assert not [each for each in project["classifiers"] if re.search(r":: 3\.\d", each)]
    factors = re.search(
        r"^\[testenv:py3\{([\d,]+)\}-core\]$", (PROJECT / "tox.ini").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert factors
    minors = [int(each) for each in factors[1].split(",")]
    assert minors == list(range(minors[0], minors[-1] + 1))
    assert project["requires-python"] == f">=3.{minors[0]}"
