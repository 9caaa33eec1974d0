"""Mutants of the source: one small change each, to see whether the tests notice it.

``python -m tests.mutants --seed 30 --count 100 FOLDER`` makes them in a copy of the repository in FOLDER, runs the
first layer on each, the folders that are nearest to the change first, and prints one line of JSON for each: killed,
with the test that failed, or survived. A mutant is named by its source line, not by its number, so that a later run
finds it again (``--again FILE``) where that line still exists; the test that killed it then is the first to run.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACES = ("request", "filters", "pipeline", "hosts", "service", "adapters/placement")
"""Folders of the package with what decides about requests and hosts, and with what writes to Placement."""

NEAREST = ("property", "against_nova", "nova", "operators", "vocabulary", "rules", "fleet")
"""Folders of the tests that come after those of the same name, before all others."""

_PATIENCE = 1_200
"""Seconds for the tests on one mutant: an end condition that is wrong may make one wait for ever."""

_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.In: (" in ", " not in "),
    ast.NotIn: (" not in ", " in "),
    ast.Is: (" is ", " is not "),
    ast.IsNot: (" is not ", " is "),
}
_SET_OPERATIONS: dict[type[ast.operator], tuple[str, str]] = {
    ast.BitAnd: (" & ", " | "),
    ast.BitOr: (" | ", " & "),
    ast.Sub: (" - ", " | "),
}
_SET_METHODS = {"union": "intersection", "intersection": "union", "difference": "union", "issubset": "issuperset"}


@dataclass(frozen=True)
class Mutant:
    """One change of one line."""

    path: str
    """Of the file, below the repository."""
    line: str
    """The source line, without its indentation."""
    changed: str
    """The same line after the change."""
    nth: int = 0
    """Which of the equal lines of the file."""

    def change(self, text: str) -> str:
        """Return the content of the file after the change; empty if the line is not there any more."""
        lines = text.splitlines(keepends=True)
        places = [number for number, line in enumerate(lines) if line.strip() == self.line]
        if self.nth >= len(places):
            return ""
        number = places[self.nth]
        lines[number] = lines[number].replace(self.line, self.changed)
        return "".join(lines)


def mutants_of(path: Path) -> list[Mutant]:
    """Return all mutants of a file that change one line and still parse."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    found = {}
    for number, start, end, new in _changes(ast.parse(text)):
        # The syntax tree counts bytes.
        line = lines[number - 1].encode()
        changed = (line[:start] + new(line[start:end].decode()).encode() + line[end:]).decode().strip()
        stripped = lines[number - 1].strip()
        nth = sum(other.strip() == stripped for other in lines[: number - 1])
        if changed != stripped:
            found[stripped, changed, nth] = Mutant(str(path.relative_to(ROOT)), stripped, changed, nth)
    return list(found.values())


def _changes(tree: ast.Module) -> Iterator[tuple[int, int, int, "_Change"]]:
    """Yield line, first and last byte of what changes, and the change; nothing of annotations and type aliases."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        for name in ("annotation", "returns", "type_comment"):
            if isinstance(part := getattr(node, name, None), ast.AST):
                skipped.update(map(id, ast.walk(part)))
    skipped.update(id(part) for node in tree.body if isinstance(node, ast.Assign) for part in ast.walk(node))
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        for part, change in _parts(node):
            if part.lineno == part.end_lineno and part.end_col_offset is not None:
                yield part.lineno, part.col_offset, part.end_col_offset, change


def _parts(node: ast.AST) -> Iterator[tuple[ast.expr, "_Change"]]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        old, new = _COMPARISONS[type(node.ops[0])]
        yield node, _Change(old, new)
    elif isinstance(node, ast.BoolOp):
        old, new = (" and ", " or ") if isinstance(node.op, ast.And) else (" or ", " and ")
        yield node, _Change(old, new)
    elif isinstance(node, ast.BinOp) and type(node.op) in _SET_OPERATIONS:
        yield node, _Change(*_SET_OPERATIONS[type(node.op)])
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node, _Change("not ", "")
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield node, _Change(str(node.value), str(not node.value))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SET_METHODS:
        yield node, _Change(f".{node.func.attr}(", f".{_SET_METHODS[node.func.attr]}(")
    if isinstance(node, (ast.If, ast.IfExp, ast.While)) and not isinstance(node.test, ast.UnaryOp):
        yield node.test, _Change("", "not ")
    if isinstance(node, ast.comprehension):
        for condition in node.ifs:
            yield condition, _Change("", "not ")


@dataclass(frozen=True)
class _Change:
    """One text in place of another; in front of all of it, where the other is empty."""

    old: str
    new: str

    def __call__(self, text: str) -> str:
        return text.replace(self.old, self.new, 1) if self.old else f"{self.new}({text})"


def sample(count: int, seed: int) -> list[Mutant]:
    """Return mutants drawn at random, each file with a chance in proportion to its number of mutants."""
    package = ROOT / "src/os_prefilter"
    found = [
        mutant
        for place in PLACES
        for path in sorted((package / place).rglob("*.py"))
        for mutant in mutants_of(path)
        if _parses(path, mutant)
    ]
    return random.Random(seed).sample(found, count)  # noqa: S311 - no secret


def _parses(path: Path, mutant: Mutant) -> bool:
    """Return whether the file is still Python, as a condition in an f-string or over several lines may not be."""
    try:
        ast.parse(mutant.change(path.read_text(encoding="utf-8")))
    except SyntaxError:
        return False
    return True


def tests_for(mutant: Mutant, root: Path) -> list[str]:
    """Return the folders and files of the first layer, those nearest to the mutant first."""
    folder = Path(mutant.path).relative_to("src/os_prefilter").parent
    wanted = [root / "tests" / folder, *(root / "tests" / name for name in NEAREST)]
    later = {"exhaustive", "novas", "guests", "services", "support", "__pycache__"}
    others = [
        path
        for path in sorted((root / "tests").iterdir())
        if path.name not in later and (path.is_dir() or path.name.startswith("test_")) and path not in wanted
    ]
    return [str(path.relative_to(root)) for path in (*wanted, *others) if path.exists()]


def outcome(mutant: Mutant, root: Path, parts: int, killer: str = "") -> dict[str, object]:
    """Run the tests on one mutant, and return it with what became of it; the copy is as before afterwards."""
    path = root / mutant.path
    original = path.read_text(encoding="utf-8") if path.exists() else ""
    changed = mutant.change(original)
    if not changed:
        return {**asdict(mutant), "outcome": "gone"}
    path.write_text(changed, encoding="utf-8")
    try:
        run = _run(root, [killer]) if killer else None
        # 1: a test failed, 2: a module does not even import; 4: there is no such test any more.
        if run is None or run.returncode not in (1, 2):
            run = _run(root, tests_for(mutant, root)[: parts or None])
    except subprocess.TimeoutExpired:
        return {**asdict(mutant), "outcome": "killed", "by": "a test that did not end"}
    finally:
        path.write_text(original, encoding="utf-8")
    failed = [line.split(" ")[1] for line in run.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    killed = {"outcome": "killed", "by": failed[0] if failed else run.stdout.strip()[-200:]}
    return {**asdict(mutant), **(killed if run.returncode else {"outcome": "survived"})}


def _run(root: Path, names: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *names],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=_PATIENCE,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the tests on mutants, and print what became of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="an empty folder for the copy of the repository")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--again", type=Path, help="the output of an earlier run, in place of a new sample")
    parser.add_argument("--parts", type=int, default=0, help="run only so many of the nearest folders; 0: all")
    given = parser.parse_args(arguments)
    if given.again:
        names = ("path", "line", "changed", "nth")
        read = [json.loads(line) for line in given.again.read_text(encoding="utf-8").splitlines()]
        mutants = [(Mutant(**{name: each[name] for name in names}), each.get("by", "")) for each in read]
    else:
        mutants = [(mutant, "") for mutant in sample(given.count, given.seed)]
    root = given.folder / "copy"
    shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns(".git", ".*", "__pycache__"), dirs_exist_ok=True)
    for mutant, killer in mutants:
        print(json.dumps(outcome(mutant, root, given.parts, killer)), flush=True)  # noqa: T201 - a command


if __name__ == "__main__":
    main()
