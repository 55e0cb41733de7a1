"""Mutation testing: change one expression of a core module and run the tests of that module.

A mutant is *killed* if a test fails. A mutant that survives points to behaviour that no test
checks.

    python tools/mutation.py --sample 150 --seed 0

The sample is drawn uniformly over all mutants of the modules in `TARGETS`. Mutants run in copies of
the source tree, so the working tree is never changed. The exit code is 1 if the share of killed
mutants is below `--least`.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path("src/thalweg")
# Module -> arguments for pytest.
TARGETS: dict[str, list[str]] = {
    "aggregation/shift_aware.py": ["tests/aggregation/test_shift_aware.py"],
    "memory/importance.py": ["tests/memory/test_importance.py"],
    "memory/dds.py": ["tests/memory/test_dds.py"],
    "federation/server_round.py": ["tests/federation"],
    "bank/feddaa.py": ["tests/bank/test_feddaa.py"],
    "selection/balanced_cohort.py": ["tests/selection/test_balanced_cohort.py"],
    "selection/dpcs.py": ["tests/selection/test_dpcs.py"],
    "engine/run_folder.py": ["tests/engine/test_run_folder.py"],
}
SECONDS_PER_MUTANT = 300.0  # a mutant that runs longer is killed: some mutants loop forever

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.Pow: ast.Mult,
}


@dataclass(frozen=True)
class Mutant:
    """One changed expression of one module."""

    module: str  # relative to the package
    line: int
    before: str
    after: str
    source: str  # of the whole module, mutated

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.before}  ->  {self.after}"


def find_mutants(source: str, module: str = "") -> Iterator[Mutant]:
    """Generate all mutants of a module.

    >>> source = "def f(x):\\n    return x + 1 if x > 0 else 0\\n"
    >>> for mutant in list(find_mutants(source))[:3]:
    ...     print(mutant.before, "->", mutant.after)
    x + 1 if x > 0 else 0 -> 0 if x > 0 else x + 1
    x > 0 -> x >= 0
    x + 1 -> x - 1
    """
    tree = ast.parse(source)
    skipped = _find_skipped(tree)
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        for after in _mutate(node):
            segment = ast.get_source_segment(source, node)
            if segment is None or not isinstance(node, ast.expr):
                continue
            text = ast.unparse(after)
            mutated = _replace(source, node, f"({text})")
            yield Mutant(module, node.lineno, ast.unparse(node), text, mutated)


def _find_skipped(tree: ast.AST) -> set[int]:
    """Nodes whose change no test can or should notice: annotations, messages, docstrings."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        if isinstance(node, ast.FunctionDef):
            parts += [node.returns, *node.decorator_list]
            parts += [
                argument.annotation
                for argument in ast.walk(node.args)
                if isinstance(argument, ast.arg)
            ]
        elif isinstance(node, ast.ClassDef):
            parts += node.decorator_list
        elif isinstance(node, ast.AnnAssign):
            parts.append(node.annotation)
        elif isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr):
            parts.append(node)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "require":
            parts += node.args[1:]
        for part in parts:
            if part is not None:
                skipped |= {id(inner) for inner in ast.walk(part)}
    return skipped


def _mutate(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        ops = [COMPARISONS[type(node.ops[0])](), *node.ops[1:]]
        yield ast.Compare(node.left, ops, node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        yield ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.Invert | ast.USub):
        yield node.operand
    elif isinstance(node, ast.IfExp):
        yield ast.IfExp(node.test, node.orelse, node.body)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield ast.Constant(node.value + 1)


def _replace(source: str, node: ast.expr, text: str) -> str:
    lines = source.encode().splitlines(keepends=True)
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    head = b"".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
    tail = lines[node.end_lineno - 1][node.end_col_offset :] + b"".join(lines[node.end_lineno :])
    return (head + text.encode() + tail).decode()


def is_killed(mutant: Mutant, copy: Path) -> bool:
    """Run the tests of a mutant's module in a copy of the tree."""
    file = copy / PACKAGE / mutant.module
    original = file.read_text()
    file.write_text(mutant.source)
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "OMP_NUM_THREADS": "1"}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    tests = [*TARGETS[mutant.module], str(PACKAGE / mutant.module)]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-m",
        "not slow",
        "-p",
        "no:cacheprovider",
    ]
    try:
        done = subprocess.run(
            [*command, *tests],
            cwd=copy,
            env=environment,
            capture_output=True,
            timeout=SECONDS_PER_MUTANT,
        )
        return done.returncode != 0
    except subprocess.TimeoutExpired:
        return True
    finally:
        file.write_text(original)


def run_mutants(mutants: list[Mutant], workers: int) -> list[bool]:
    """Whether each mutant was killed; prints one line per mutant."""
    with tempfile.TemporaryDirectory() as folder:
        copies: Queue[Path] = Queue()
        for number in range(workers):
            copy = Path(folder) / str(number)
            for part in ("src", "tests", "pyproject.toml"):
                source = ROOT / part
                if source.is_dir():
                    shutil.copytree(
                        source, copy / part, ignore=shutil.ignore_patterns("__pycache__")
                    )
                else:
                    shutil.copy(source, copy / part)
            copies.put(copy)

        def run_one(mutant: Mutant) -> bool:
            copy = copies.get()
            try:
                killed = is_killed(mutant, copy)
            finally:
                copies.put(copy)
            print("killed  " if killed else "SURVIVED", mutant, flush=True)
            return killed

        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(run_one, mutants))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--sample", type=int, default=150, help="number of mutants to run")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample")
    parser.add_argument(
        "--least", type=float, default=0.9, help="smallest accepted share of killed"
    )
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="parallel test runs"
    )
    parser.add_argument("--only", default="", help="run only modules whose path contains this text")
    options = parser.parse_args()
    mutants = [
        mutant
        for module in TARGETS
        if options.only in module
        for mutant in find_mutants((ROOT / PACKAGE / module).read_text(), module)
    ]
    total = len(mutants)
    mutants = random.Random(options.seed).sample(mutants, min(options.sample, total))
    print(f"{len(mutants)} of {total} mutants in {options.workers} processes", flush=True)
    killed = run_mutants(mutants, options.workers)
    run = Counter(mutant.module for mutant in mutants)
    dead = Counter(
        mutant.module for mutant, is_dead in zip(mutants, killed, strict=True) if is_dead
    )
    for module in sorted(run):
        print(f"{module:<32} {dead[module]:>3} of {run[module]:>3} killed")
    share = sum(killed) / max(1, len(killed))
    print(
        f"{sum(killed)} of {len(killed)} mutants killed ({share:.0%}, at least {options.least:.0%})"
    )
    return 0 if share >= options.least else 1


if __name__ == "__main__":
    sys.exit(main())
