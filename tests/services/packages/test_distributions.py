#    Licensed under the Apache License, Version 2.0 (the "License"); you may
#    not use this file except in compliance with the License. You may obtain
#    a copy of the License at
#
#         http://www.apache.org/licenses/LICENSE-2.0
#
#    Unless required by applicable law or agreed to in writing, software
#    distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
#    WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
#    License for the specific language governing permissions and limitations
#    under the License.

"""What a packager gets: the same bytes from each build, with all that a build and the tests need."""

import fnmatch
import os
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path, PurePath

import pytest

from tests.services.packages.builds import PROJECT, build, clean_run, empty_environment

_FOLDERS = ("src", "tests", "docs", ".ci")
_FILES = ("LICENSE", "README.md", "pyproject.toml", "tox.ini", ".gitignore", ".pre-commit-config.yaml", ".zuul.yaml")
_IGNORED = [line for line in (PROJECT / ".gitignore").read_text(encoding="utf-8").splitlines() if line]


def _is_ignored(path: PurePath) -> bool:
    patterns = [line.rstrip("/") for line in _IGNORED]
    parents = [str(each) for each in (path, *path.parents)]
    return any(
        pattern in parents if "/" in pattern else fnmatch.filter(path.parts, pattern) != [] for pattern in patterns
    )


def _tree() -> set[str]:
    found = {
        path.relative_to(PROJECT) for folder in _FOLDERS for path in (PROJECT / folder).rglob("*") if path.is_file()
    }
    return {path.as_posix() for path in found if not _is_ignored(path)} | set(_FILES)


def _built_elsewhere(folder: Path) -> Path:
    """Build both from a tree of other times, modes and leftovers, in another environment; return their folder."""
    clone, folder = folder / "a clone" / "os-prefilter", folder / "dist"
    folder.mkdir()
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
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path, filter="data")
    (found,) = tmp_path.iterdir()
    return found


def _names(built: Path) -> tuple[set[str], set[str]]:
    """Return the files of the source distribution, and those of the wheel without its metadata."""
    (source,), (path,) = built.glob("*.tar.gz"), built.glob("*.whl")
    with tarfile.open(source) as archive, zipfile.ZipFile(path) as wheel:
        return set(archive.getnames()), {name for name in wheel.namelist() if ".dist-info/" not in name}


def test_builds_in_different_environments_are_byte_identical(built: Path, tmp_path: Path) -> None:
    """Whatever the folder, time, umask, locale and leftovers; the wheel out of the tree is that out of the sdist."""
    elsewhere = _built_elsewhere(tmp_path)
    for pattern in ("*.tar.gz", "*.whl"):
        (one,), (other,) = built.glob(pattern), elsewhere.glob(pattern)
        assert (one.name, one.read_bytes() == other.read_bytes()) == (other.name, True)


def test_the_source_distribution_has_the_whole_project(source: Path) -> None:
    found = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    assert found == _tree() | {"PKG-INFO"}


def test_the_oldest_hatchling_packs_the_same_files(built: Path, tmp_path: Path) -> None:
    """The lower bound, which RDO has for CentOS Stream 9; .ci/packages builds with Debian's."""
    bin_folder = empty_environment(tmp_path / "environment")
    for command in (("pip", "install", "--quiet", "hatchling==1.3.1"), ("hatchling", "build", "-d", tmp_path)):
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
    tests = ("tests/vocabulary/test_model.py", "tests/test_dependencies.py")
    done = clean_run(sys.executable, "-c", code, *tests, cwd=source)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1].startswith(str(source / "src"))
