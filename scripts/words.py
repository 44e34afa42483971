"""Our words, counted: `python -m scripts.words` refuses more offences than `scripts/words.toml` allows each layer.

    python -m scripts.words            # what is new; --list shows all, --write lowers the numbers to what is there

Five rules. A function is named by what it gives or does, not by a participle (`made`, `taken_from`); a property that
answers yes or no may be. Where a noun does, its name does not end in `_of`. No docstring, sentence in one, or message
begins with a genitive ("Of each file its address"). Docstrings say "after" and "downstream of" where English does, not
"behind". No class name stands twice in the package.
"""

import argparse
import ast
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "dagster_ckpt"
ALLOWED = ROOT / "scripts/words.toml"

_PARTICIPLE = re.compile(
    "[a-z]{2,}(?<!e)ed|begun|bound|broken|brought|built|caught|chosen|dealt|done|drawn|driven|fallen|felt|forgotten|found"
    "|frozen|given|gone|got|grown|heard|held|hidden|kept|known|laid|led|lent|lost|made|meant|met|paid|risen|said|seen"
    "|sent|shown|sold|spent|spoken|stood|taken|thought|thrown|told|torn|understood|woken|won|worn|written"
)
_NO_PARTICIPLE = re.compile("embed|hundred|shed|(keyed|unkeyed)")  # the last two are terms of stream processing
_VERB_TOO = re.compile("cast|cut|left|let|put|read|run|set|shut|split|spread")
"""Participles only before "by": otherwise they may be the verb."""
_AFTER = re.compile(
    "after|again|alike|alone|apart|as|aside|at|away|back|behind|beside|by|down|for|from|in|into|meanwhile|no|now|of|off"
    "|on|out|over|since|to|together|until|up|with"
)
"""Words before which a participle is no adjective: `merged_rows` is a noun, `merged_with` is not."""
_BEHIND = re.compile(r"\bbehind\b")
_GENITIVE = re.compile(r"(?:^|[.!?:] )Of (?!course\b)")


@dataclass(frozen=True, slots=True, order=True)
class Offence:
    """Where a rule is broken, and by what."""

    path: str
    line: int
    rule: str
    text: str

    @property
    def layer(self) -> str:
        """The first folder below the package; of a module of the package itself `.`."""
        first, _, rest = self.path.partition("/")
        return first if rest else "."


def is_participle_name(name: str) -> bool:
    """Whether a function of this name is named by a participle."""
    first, *others = name.strip("_").split("_")
    if others and not _AFTER.fullmatch(others[0]):
        return False
    if _VERB_TOO.fullmatch(first):
        return others[:1] == ["by"]
    return bool(_PARTICIPLE.fullmatch(first) and not _NO_PARTICIPLE.fullmatch(first))


def offences(root: Path = PACKAGE) -> list[Offence]:
    """All below a folder, by path and line."""
    found: list[Offence] = []
    classes: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for file in sorted(root.rglob("*.py")):
        path, tree = file.relative_to(root).as_posix(), ast.parse(file.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append((path, node.lineno))
            found += [Offence(path, line, rule, text) for line, rule, text in _of_node(node)]
    twice = [(name, place) for name, places in classes.items() if len(places) > 1 for place in places[1:]]
    return sorted([*found, *(Offence(path, line, "class twice", name) for name, (path, line) in twice)])


def _of_node(node: ast.AST) -> Iterator[tuple[int, str, str]]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            if is_participle_name(node.name) and not _answers_yes_or_no(node):
                yield node.lineno, "participle", node.name
            if node.name.endswith("_of"):
                yield node.lineno, "ends in _of", node.name
        case ast.Expr(ast.Constant(str(text))):
            plain = " ".join(text.split())
            if place := _BEHIND.search(plain):
                yield node.lineno, "behind", plain[max(0, place.start() - 30) :][:60]
            if begins := _GENITIVE.search(plain):
                yield node.lineno, "genitive", plain[begins.start() :][:60]
        case ast.Raise(ast.Call(args=[message, *_])):
            if (text := _first_text(message)).lower().startswith("of "):
                yield node.lineno, "genitive", text[:60]


def _answers_yes_or_no(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    decorators = {ast.unparse(each) for each in function.decorator_list}
    returns_bool = function.returns is not None and ast.unparse(function.returns) == "bool"
    return returns_bool and bool(decorators & {"property", "cached_property"})


def _first_text(message: ast.expr) -> str:
    match message:
        case ast.Constant(str(text)) | ast.JoinedStr([ast.Constant(str(text)), *_]):
            return text
    return ""


def counts(found: list[Offence]) -> dict[str, dict[str, int]]:
    """How many there are, by rule and layer."""
    by_rule: dict[str, Counter[str]] = defaultdict(Counter)
    for each in found:
        by_rule[each.rule][each.layer] += 1
    return {rule: dict(sorted(layers.items())) for rule, layers in sorted(by_rule.items())}


def excess(found: list[Offence], allowed: dict[str, dict[str, int]]) -> list[str]:
    """A line for each rule and layer with more offences than are allowed, and one for each of its offences."""
    lines = []
    for rule, layers in counts(found).items():
        for layer, number in layers.items():
            limit = allowed.get(rule, {}).get(layer, 0)
            if number > limit:
                lines.append(
                    f"{layer}: {number} times {rule}, {limit} allowed (scripts/words.toml); one of these is new"
                )
                mine = (each for each in found if (each.rule, each.layer) == (rule, layer))
                lines += [f"  dagster_ckpt/{each.path}:{each.line}: {each.text}" for each in mine]
    return lines


def load_allowed() -> dict[str, dict[str, int]]:
    """What the file allows."""
    allowed: dict[str, dict[str, int]] = tomllib.loads(ALLOWED.read_text())
    return allowed


def _write(now: dict[str, dict[str, int]]) -> None:
    lines = ["# Offences that are left, by rule and layer: see scripts/words.py. A number may only fall."]
    for rule, layers in now.items():
        lines += ["", f'["{rule}"]', *(f'"{layer}" = {number}' for layer, number in layers.items())]
    ALLOWED.write_text("\n".join(lines) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", action="store_true", help="show all offences")
    parser.add_argument("--write", action="store_true", help="lower the numbers to what is there")
    options = parser.parse_args()
    found = offences()
    if options.list:
        print(*(f"dagster_ckpt/{each.path}:{each.line}: {each.rule}: {each.text}" for each in found), sep="\n")
    lines = excess(found, load_allowed() if ALLOWED.exists() else {})
    if options.write and not (ALLOWED.exists() and lines):
        _write(counts(found))
        return 0
    print(*lines, sep="\n") if lines else print(f"Words: {len(found)} offences left, none is new.")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
