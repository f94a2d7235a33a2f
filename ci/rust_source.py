"""Lexical view of the workspace's Rust source: tokens, items, paths, modules and packages.

This is a lexer and a few scanners over its tokens, not a parser. It knows strings, raw strings, character
literals, lifetimes and nested comments, so that their contents are never taken for code.
"""

import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent

# Packages that are neither libraries nor binaries of the product, by their folder at the top.
EXEMPT_FOLDERS = {"benches", "examples", "tests"}


class Doc(NamedTuple):
    """A documentation comment with its first line."""

    text: str
    line: int

    @property
    def end_line(self):
        return self.line + self.text.count("\n")


# A block comment is matched with others in it to this depth, and a raw string with fewer marks than this.
MAX_COMMENT_DEPTH = 4
MAX_RAW_STRING_MARKS = 6


def block_comment_pattern(depth):
    """Returns the pattern of a block comment; block comments nest."""
    nested = block_comment_pattern(depth - 1) + "|" if depth > 1 else ""
    return rf"/\*(?:[^*/]|{nested}\*(?!/)|/(?!\*))*\*/"


def raw_string_pattern():
    """Returns the pattern of a raw string, which ends with as many marks as it begins with."""
    bodies = (f'{"#" * count}"(?s:.*?)"{"#" * count}' for count in range(MAX_RAW_STRING_MARKS))
    return f"[bc]?r(?:{'|'.join(bodies)})"


# Without groups, so that `findall` returns the texts of all tokens, white space included, in one call.
TOKEN = re.compile(
    "|".join(
        [
            r"\s+",
            r"//[^\n]*",
            block_comment_pattern(MAX_COMMENT_DEPTH),
            raw_string_pattern(),
            r'[bc]?"(?s:[^"\\]|\\.)*"',
            r"b?'(?:[^'\\\n]|\\x[0-9a-fA-F]{2}|\\u\{[^}]*\}|\\[^xu])'",
            r"'(?:r\#)?[^\W\d]\w*",
            r"(?:r\#)?[^\W\d]\w*",
            r"\d\w*(?:\.\d\w*)?",
            r"::|->|=>|.",
        ]
    )
)
DOC = re.compile(r"///(?!/)|/\*\*(?![*/])|//!|/\*!")


def is_ident(text):
    """Returns true if a token is an identifier or a keyword."""
    return text.isidentifier() or text[2:].isidentifier() and text.startswith("r#")


def cfg_value(tokens):
    """Evaluates a cfg predicate for a build without `test`: True, False, or None if it depends on more."""
    name, arguments = tokens[0], split_arguments(tokens[2:-1])
    if len(tokens) == 1:
        return False if name == "test" else None
    if name not in ("all", "any", "not"):
        return None
    values = [cfg_value(argument) for argument in arguments]
    if name == "not":
        return None if values[0] is None else not values[0]
    decisive = name == "any"
    if decisive in values:
        return decisive
    return None if None in values else not decisive


def split_arguments(tokens):
    """Splits tokens at the commas outside of brackets."""
    arguments, depth = [[]], 0
    for token in tokens:
        depth += (token in OPENING) - (token in CLOSING)
        if token == "," and depth == 0:
            arguments.append([])
        else:
            arguments[-1].append(token)
    return [argument for argument in arguments if argument]


class Item(NamedTuple):
    """An item at code token `index`; `scope` and `body` are indices of opening braces, or None."""

    kind: str
    name: str
    index: int
    scope: int | None
    body: int | None


class UsePath(NamedTuple):
    """A path with its code token: `name` is what a `use` binds, `*` for a glob, None for a plain path."""

    segments: tuple
    name: str | None
    index: int


ITEM_KEYWORDS = {"fn", "struct", "enum", "trait", "type", "mod"}
# What an attribute on an item is followed by; otherwise it is on a field, a variant, an arm or an expression.
ITEM_STARTS = ITEM_KEYWORDS | {"pub", "impl", "use", "const", "static", "extern", "unsafe", "async", "let"}
ITEM_STARTS |= {"macro_rules", "default"}
ENDED_BY_SEMICOLON = {"use", "static", "let", "type"}
PATH_HEADS = {"crate", "self", "super"}
OPENING = {"(", "[", "{"}
CLOSING = {")", "]", "}"}


class Source:
    """A source file: its code tokens as texts with their lines, documentation comments, brackets and test spans.

    A text tells the kind of its token: only punctuation is `{`, and only a keyword is `fn`.
    """

    def __init__(self, text):
        self.line_count = len(text.splitlines())
        self.code, self.lines, self.docs = [], [], []
        line = 1
        for token in TOKEN.findall(text):
            first = token[0]
            if first <= " ":
                line += token.count("\n")
            elif first == "/" and len(token) > 1:
                if DOC.match(token):
                    self.docs.append(Doc(token, line))
                line += token.count("\n")
            else:
                self.code.append(token)
                self.lines.append(line)
                if "\n" in token:
                    line += token.count("\n")
        self.closing, self.scopes = self._match_brackets()
        self.test_spans = self._find_test_spans()

    def text(self, index):
        """Returns the text of a code token, or an empty string outside of the file."""
        return self.code[index] if 0 <= index < len(self.code) else ""

    def _end_line(self, index):
        return self.lines[index] + self.code[index].count("\n")

    def _match_brackets(self):
        """Returns the closing bracket of each opening one, and the brace that each token is in."""
        closing, scopes, stack, braces = {}, [], [], [None]
        for index, text in enumerate(self.code):
            if text in CLOSING and stack:
                closing[stack.pop()] = index
                if text == "}" and len(braces) > 1:
                    braces.pop()
            scopes.append(braces[-1])
            if text in OPENING:
                stack.append(index)
                if text == "{":
                    braces.append(index)
        return closing, scopes

    def _skip_bracketed(self, index):
        """Returns the index after the token, and after its whole group if it opens one."""
        return self.closing.get(index, index) + 1

    @functools.cached_property
    def attributes(self):
        """(first token, first token inside the brackets, closing bracket) of each attribute."""
        found = []
        for index in (index for index, text in enumerate(self.code) if text == "#"):
            opening = index + 2 if self.text(index + 1) == "!" else index + 1
            if self.text(opening) == "[" and opening in self.closing:
                found.append((index, opening + 1, self.closing[opening]))
        return found

    def _find_test_spans(self):
        spans = []
        for start, inside, close in self.attributes:
            if self.text(inside) != "cfg" or self.text(inside + 1) != "(":
                continue
            if cfg_value(self.code[inside + 2 : close - 1]) is not False:
                continue
            if self.text(start + 1) == "!":
                scope = self.scopes[start]
                end = len(self.code) if scope is None else self.closing.get(scope, len(self.code))
                spans.append((0 if scope is None else scope, end))
            else:
                spans.append((start, self._annotated_end(close + 1)))
        return spans

    def _annotated_end(self, index):
        """Returns the index after the item, field, arm or expression that an attribute stands before."""
        while self.text(index) == "#" and self.text(index + 1) == "[":
            index = self._skip_bracketed(index + 1)
        first = self.text(index)
        is_item = first in ITEM_STARTS
        if first == "pub":
            index = self._skip_bracketed(index + 1) if self.text(index + 1) == "(" else index + 1
            # A public field is a name and a single colon.
            is_item = self.text(index) in ITEM_STARTS
            first = self.text(index)
        is_constant = first == "const" and self.text(index + 1) not in ("fn", "unsafe", "async", "extern")
        ended_by_brace = is_item and first not in ENDED_BY_SEMICOLON and not is_constant
        while index < len(self.code):
            if self.text(index) == ";" or (not is_item and self.text(index) == ","):
                return index + 1
            if self.text(index) in CLOSING:
                return index
            if ended_by_brace and self.text(index) == "{":
                return self._skip_bracketed(index)
            index = self._skip_bracketed(index)
        return index

    def is_test(self, index):
        """Returns true if the code token is compiled for tests only."""
        return self._is_test[index] == 1

    @functools.cached_property
    def _is_test(self):
        """For each code token 1 if it is compiled for tests only, and 0 if not."""
        is_test = bytearray(len(self.code))
        for start, end in self.test_spans:
            is_test[start:end] = b"\1" * (end - start)
        return is_test

    def test_lines(self):
        """Returns the numbers of the lines that are compiled for tests only."""
        lines = set()
        for start, end in self.test_spans:
            if start < end:
                lines.update(range(self.lines[start], self._end_line(end - 1) + 1))
        return lines

    def code_lines(self):
        """Returns the numbers of the lines that have code: neither blank nor comment alone."""
        return self._lines(0, len(self.code))

    def _lines(self, start, end):
        lines = set(self.lines[start:end])
        for index in range(start, end):
            if "\n" in self.code[index]:
                lines.update(range(self.lines[index], self._end_line(index) + 1))
        return lines

    def function_lines(self, item):
        """Returns the number of code lines of a function, from its `fn` to its closing brace."""
        return len(self._lines(item.index, self._skip_bracketed(item.body)))

    @functools.cached_property
    def items(self):
        """All functions, types, traits and modules, in the order of their text."""
        return list(self._find_items())

    def _find_items(self):
        for index, kind in enumerate(self.code):
            if kind not in ITEM_KEYWORDS and kind != "impl":
                continue
            name = self.text(index + 1)
            if kind == "impl" and self._starts_item(index):
                yield Item(kind, "", index, self.scopes[index], self._find_body(index))
            elif kind in ITEM_KEYWORDS and is_ident(name):
                body = None if kind == "type" else self._find_body(index)
                yield Item(kind, name, index, self.scopes[index], body)

    def _starts_item(self, index):
        return self.text(index - 1) in ("", ";", "{", "}", "]", "unsafe", "default")

    def _find_body(self, index):
        """Returns the index of the brace that opens an item's body, or None if it has none."""
        while index < len(self.code) and self.text(index) != ";":
            # A brace right after `<` is a constant argument of a type.
            if self.text(index) == "{" and self.text(index - 1) != "<":
                return index
            index = self._skip_bracketed(index)
        return None

    def enclosing(self, index):
        """Yields the items whose bodies contain a code token, the innermost first."""
        scope = self.scopes[index]
        while scope is not None:
            if scope in self._items_by_body:
                yield self._items_by_body[scope]
            scope = self.scopes[scope]

    @functools.cached_property
    def _items_by_body(self):
        return {item.body: item for item in self.items if item.body is not None}

    def inline_modules(self, index):
        """Returns the names of the modules of this file that contain a code token, the outermost first."""
        return tuple(item.name for item in self.enclosing(index) if item.kind == "mod")[::-1]

    @functools.cached_property
    def uses(self):
        """All paths that `use` items bind."""
        return [path for _, _, paths in self._use_items for path in paths]

    @functools.cached_property
    def public_uses(self):
        """The paths that `use` items with a visibility bind."""
        return [path for start, _, paths in self._use_items if self._is_public(start) for path in paths]

    def _is_public(self, index):
        return self.text(index - 1) in ("pub", ")")

    @functools.cached_property
    def _use_items(self):
        items = []
        for index, text in enumerate(self.code):
            # `use<'a>` in a type is a list of captures.
            if text == "use" and self.text(index + 1) != "<":
                paths = []
                end = self._read_use_tree(index + 1, (), paths)
                items.append((index, end, paths))
        return items

    def _read_use_tree(self, index, prefix, paths):
        """Reads one use tree, appends its paths, and returns the index after it."""
        start = index
        segments = prefix
        while True:
            if self.text(index) == "::":
                segments, index = segments or ("",), index + 1
            elif self.text(index) == "$":
                index += 1
            elif self.text(index) == "{":
                close, index = self.closing[index], index + 1
                while index < close:
                    index = self._read_use_tree(index, segments, paths)
                    index += self.text(index) == ","
                return close + 1
            elif self.text(index) == "*":
                paths.append(UsePath(segments, "*", start))
                return index + 1
            elif self.text(index) == "as":
                paths.append(UsePath(segments, self.text(index + 1), start))
                return index + 2
            elif is_ident(self.text(index)):
                # `self` at the end of a path stands for the path before it.
                if not (self.text(index) == "self" and segments):
                    segments += (self.text(index),)
                index += 1
            else:
                paths.append(UsePath(segments, segments[-1] if segments else None, start))
                return index

    @functools.cached_property
    def _use_tokens(self):
        """The indices of the code tokens of `use` items."""
        return {index for start, end, _ in self._use_items for index in range(start, end)}

    def used_names(self):
        """Returns the names in the product's code outside of `use` items, those of fields, methods and modules left out."""
        return {
            text
            for index, text in enumerate(self.code)
            if is_ident(text)
            and index not in self._use_tokens
            and self.text(index - 1) not in ("::", ".", "mod")
            and not self.is_test(index)
        }

    @functools.cached_property
    def plain_paths(self):
        """Paths of more than one segment, also those in attributes' strings.

        Left out are those of `use` items and of visibilities.
        """
        return list(self._find_plain_paths())

    def _find_plain_paths(self):
        for index in [index for index, text in enumerate(self.code) if text == "::"]:
            start = index - 1
            is_visibility = self.text(start - 1) == "in" and self.text(start - 3) == "pub"
            if start in self._use_tokens or self.text(start - 1) == "::" or is_visibility:
                continue
            if is_ident(self.text(start)):
                yield UsePath(self._read_path(start), None, start)
        for _, inside, close in self.attributes:
            for index in range(inside, close):
                # Such as `#[serde(with = "crate::times")]`.
                path = re.fullmatch(r'"((?:crate|self|super)(?:::\w+)+)"', self.text(index))
                if path:
                    yield UsePath(tuple(path.group(1).split("::")), None, index)

    def _read_path(self, index):
        segments = [self.text(index)]
        while self.text(index + 1) == "::" and self.code[index + 2 : index + 3]:
            if not is_ident(self.code[index + 2]):
                break
            segments.append(self.text(index + 2))
            index += 2
        return tuple(segments)


@functools.cache
def load(path):
    """Reads and scans a source file once."""
    return Source(Path(path).read_text(encoding="utf-8"))


class Module(NamedTuple):
    """A file of a crate with the path of its module; `is_test` if it is compiled for tests only."""

    path: tuple
    file: Path
    is_test: bool

    @property
    def source(self):
        return load(self.file)


def modules(root_file):
    """Yields the files of a crate, from its root along the `mod` items."""
    pending = [(Module((), root_file, False), root_file.parent)]
    while pending:
        module, folder = pending.pop()
        yield module
        source = module.source
        for item in source.items:
            if item.kind == "mod" and item.body is None:
                inline = source.inline_modules(item.index)
                file = module_file(source, item, module.file.parent, folder.joinpath(*inline))
                if file:
                    path = module.path + inline + (item.name,)
                    is_test = module.is_test or source.is_test(item.index)
                    child_folder = file.parent if file.name == "mod.rs" else file.with_suffix("")
                    pending.append((Module(path, file, is_test), child_folder))


def module_file(source, item, file_folder, module_folder):
    """Returns the file of a module without a body, or None if there is no such file."""
    index = item.index - 1
    while index >= 0 and source.text(index) not in (";", "{", "}"):
        if source.text(index) == "path" and source.text(index + 1) == "=":
            return (file_folder / source.text(index + 2).strip('"')).resolve()
        index -= 1
    for file in (module_folder / f"{item.name}.rs", module_folder / item.name / "mod.rs"):
        if file.is_file():
            return file
    return None


class Package:
    """A package of the workspace with its targets and source files."""

    def __init__(self, description, manifests):
        self.targets = description["targets"]
        self.dependencies = description["dependencies"]
        self.name = description["name"]
        self.folder = Path(description["manifest_path"]).parent
        self.is_exempt = bool(EXEMPT_FOLDERS.intersection(self.folder.relative_to(ROOT).parts[:1]))
        self._nested = {manifest.parent for manifest in manifests} - {self.folder}

    def roots(self):
        """Returns the root files of the library and the binaries."""
        kinds = {"lib", "rlib", "proc-macro", "bin"}
        return [Path(t["src_path"]) for t in self.targets if kinds & set(t["kind"])]

    @property
    def has_library(self):
        return any({"lib", "rlib", "proc-macro"} & set(target["kind"]) for target in self.targets)

    @functools.cached_property
    def files(self):
        """All Rust files of the package, nested packages left out."""
        found = []
        for folder, folders, names in os.walk(self.folder):
            folders[:] = sorted(name for name in folders if self._is_own(Path(folder), name))
            found += [Path(folder) / name for name in sorted(names) if name.endswith(".rs")]
        return found

    def _is_own(self, folder, name):
        if name.startswith(".") or name in ("node_modules", "target"):
            return False
        return folder / name not in self._nested

    @functools.cached_property
    def product_files(self):
        """The files that are not for tests, benchmarks and examples alone."""
        if self.is_exempt:
            return []
        tests = {m.file for root in self.roots() for m in modules(root) if m.is_test}
        return [file for file in self.files if file not in tests and not is_test_path(file, self.folder)]


def is_test_path(file, folder):
    """Returns true for `tests.rs` and for files in a folder for tests, benchmarks or examples."""
    parts = file.relative_to(folder).parts
    return parts[-1] == "tests.rs" or bool(EXEMPT_FOLDERS & set(parts[:-1]))


def cargo(*arguments):
    """Returns the output of a cargo command, or ends the program if it fails."""
    command = ["cargo", *arguments]
    result = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)} failed")
    return result.stdout


@functools.cache
def metadata():
    """Returns the output of `cargo metadata` for the workspace, without its outside dependencies."""
    return json.loads(cargo("metadata", "--no-deps", "--offline", "--format-version", "1"))


def packages():
    """Returns the packages of the workspace."""
    found = metadata()["packages"]
    manifests = [Path(package["manifest_path"]) for package in found]
    return [Package(package, manifests) for package in found]


def place(file, line):
    """Returns `file:line` relative to the workspace."""
    return f"{relative_path(file)}:{line}"


@functools.cache
def relative_path(file):
    """Returns the path of a file relative to the workspace."""
    return str(Path(file).resolve().relative_to(ROOT))
