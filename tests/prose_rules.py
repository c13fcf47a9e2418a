"""Rules of the writing style that a program can check: marker words, and first lines of docstrings."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LONGEST_SUMMARY = 100
# words of a private dialect; lookarounds exempt their ordinary uses ("users who", "there is no", "is no larger than")
PEOPLE = (
    "user",
    "users",
    "reader",
    "readers",
    "engineers",
    "contributors",
    "people",
    "person",
    "anyone",
    "those",
    "administrators",
    "**",
)
COMPARATIVES = (
    "better",
    "worse",
    "larger",
    "smaller",
    "longer",
    "more",
    "less",
    "later",
    "earlier",
    "higher",
    "lower",
)
MARKERS = (
    "".join(f"(?<!{word} )" for word in map(re.escape, PEOPLE)) + r"\bwho\b",
    r"\bwhom\b",
    r"\bwhoever\b",
    r"\bsomebody\b",
    r"\bnobody\b",
    r"\beverybody\b",
    r"\banew\b",
    r"(?<!, )\bso many\b",
    r"\bof late\b(?=[.,;:)])",
    r"\bin vain\b",
    r"\bto and fro\b",
    rf"(?<!there )\b(?:is|are|was|were) no (?!(?:{'|'.join(COMPARATIVES)})\b)[a-z]",
    r"\bgo(?:es)? on\b",
    r"\btold\b",
    r"\bours\b",
    r"\bousts?\b",
    r"\bthirst\b",
    r"\bhand-overs?\b",
    r"\bat work\b",
    r"\blast words\b",
    r"\blevelling\b",
    r"\bgives? way\b",
    r"\bkin\b",
)
MARKER = re.compile("|".join(MARKERS), re.IGNORECASE)
# a summary whose first noun is a pronoun: "Return its pod.", "Return whether it runs."
PRONOUN = re.compile(r"^[A-Z][a-z]+ (?:(?:whether|when|what|until|that|if) )?(?:its|it|they|their|them)\b")
# a summary of a function is an imperative: none of these starts one, nor does a verb in the third person
NOT_IMPERATIVE = frozenset(
    [
        "a",
        "an",
        "the",
        "this",
        "that",
        "these",
        "those",
        "what",
        "whether",
        "how",
        "which",
        "when",
        "where",
        "why",
        "from",
        "one",
        "all",
        "each",
        "every",
        "its",
        "it",
        "no",
        "not",
        "is",
        "are",
        "as",
        "at",
        "by",
        "for",
        "if",
        "in",
        "of",
        "on",
        "to",
        "with",
    ]
)
ENDS_IN_S = frozenset(
    [
        "pass",
        "process",
        "compress",
        "address",
        "access",
        "express",
        "press",
        "focus",
        "discuss",
        "canvas",
        "guess",
        "toss",
        "bias",
        "cross",
    ]
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One breach of a rule: where it is, and the text."""

    line: int
    text: str


def marker_words(path: Path) -> Iterator[Finding]:
    """Yield each line of prose in `path` that holds a marker word: comments and strings of Python, all other text."""
    for number, line in _prose(path):
        found = MARKER.search(line)
        if found:
            yield Finding(number, f"[{found[0]}] {line.strip()}")


def summaries(path: Path) -> Iterator[Finding]:
    """Yield each public docstring whose first line breaks a rule.

    It is too long or unfinished, begins with a pronoun as its object, or (of a function) is not imperative.
    """
    for node in _public(ast.parse(path.read_text(encoding="utf-8"))):
        text = ast.get_docstring(node)
        if text is None:
            continue
        first = text.splitlines()[0]
        if (
            len(first) > LONGEST_SUMMARY
            or not first.endswith(".")
            or (not isinstance(node, ast.ClassDef) and PRONOUN.match(first))
            or (not isinstance(node, ast.ClassDef) and not _is_property(node) and not is_imperative(first))
        ):
            yield Finding(node.lineno, f"{node.name}: {first}")


def is_imperative(summary: str) -> bool:
    """Return False where the first word cannot be an imperative ("Returns", "The", "Whether")."""
    word = re.split(r"[^A-Za-z-]", summary, maxsplit=1)[0].lower()
    if not word or word in NOT_IMPERATIVE:
        return False
    return word in ENDS_IN_S or not word.endswith("s")


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in node.decorator_list)


def _public(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from _public(node)


def _prose(path: Path) -> Iterator[tuple[int, str]]:
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in kinds:
            for offset, line in enumerate(token.string.splitlines()):
                yield token.start[0] + offset, line
