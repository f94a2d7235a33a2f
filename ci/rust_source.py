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


class Token(NamedTuple):
    """One token; `kind` is ident, lifetime, number, string, char, punct, comment or doc."""

    kind: str
    text: str
    line: int

    @property
    def end_line(self):
        return self.line + self.text.count("\n")


TOKEN = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<line_comment>//[^\n]*)
    | (?P<block_comment>/\*)
    | (?P<raw_string>(?:b|c)?r(?P<hashes>\#*)"(?s:.*?)"(?P=hashes))
    | (?P<string>[bc]?"(?s:[^"\\]|\\.)*")
    | (?P<char>b?'(?:[^'\\\n]|\\x[0-9a-fA-F]{2}|\\u\{[^}]*\}|\\[^xu])')
    | (?P<lifetime>'(?:r\#)?[^\W\d]\w*)
    | (?P<ident>(?:r\#)?[^\W\d]\w*)
    | (?P<number>\d\w*(?:\.\d\w*)?)
    | (?P<punct>::|->|=>|.)
    """,
    re.VERBOSE,
)
BLOCK_COMMENT_EDGE = re.compile(r"/\*|\*/")


def block_comment_end(text, start):
    """Returns the offset after the block comment that starts at `start`; block comments nest."""
    depth = 0
    for edge in BLOCK_COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(text)


def comment_kind(text):
    """Returns `doc` for a documentation comment and `comment` for any other."""
    outer = re.match(r"///(?!/)|/\*\*(?![*/])", text)
    return "doc" if outer or text.startswith(("//!", "/*!")) else "comment"


def tokenize(text):
    """Yields the tokens of a source file, comments included, white space left out."""
    offset, line = 0, 1
    while offset < len(text):
        match = TOKEN.match(text, offset)
        kind, end = match.lastgroup, match.end()
        if kind == "block_comment":
            end = block_comment_end(text, offset)
        token_text = text[offset:end]
        if kind in ("line_comment", "block_comment"):
            yield Token(comment_kind(token_text), token_text, line)
        elif kind != "space":
            yield Token("string" if kind == "raw_string" else kind, token_text, line)
        line += token_text.count("\n")
        offset = end


def cfg_value(tokens):
    """Evaluates a cfg predicate for a build without `test`: True, False, or None if it depends on more."""
    name, arguments = tokens[0].text, split_arguments(tokens[2:-1])
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
        depth += (token.text in "([{") - (token.text in ")]}") if token.kind == "punct" else 0
        if token.text == "," and depth == 0:
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


class Source:
    """A source file: its code tokens, documentation comments, brackets and the spans compiled for tests only."""

    def __init__(self, text):
        self.line_count = len(text.splitlines())
        tokens = list(tokenize(text))
        self.docs = [token for token in tokens if token.kind == "doc"]
        self.code = [token for token in tokens if token.kind not in ("doc", "comment")]
        self.closing, self.scopes = self._match_brackets()
        self.test_spans = self._find_test_spans()

    def text(self, index):
        """Returns the text of a code token, or an empty string outside of the file."""
        return self.code[index].text if 0 <= index < len(self.code) else ""

    def _is_punct(self, index, text):
        return self.text(index) == text and self.code[index].kind == "punct"

    def _match_brackets(self):
        closing, scopes, stack, braces = {}, [], [], []
        for index, token in enumerate(self.code):
            if token.kind == "punct" and token.text in "}])" and stack:
                closing[stack.pop()] = index
                if token.text == "}" and braces:
                    braces.pop()
            scopes.append(braces[-1] if braces else None)
            if token.kind == "punct" and token.text in "{[(":
                stack.append(index)
                if token.text == "{":
                    braces.append(index)
        return closing, scopes

    def _skip_bracketed(self, index):
        """Returns the index after the token, and after its whole group if it opens one."""
        return self.closing.get(index, index) + 1

    def attributes(self):
        """Yields (first token, first token inside the brackets, closing bracket) of each attribute."""
        for index in range(len(self.code)):
            if self._is_punct(index, "#"):
                opening = index + 2 if self._is_punct(index + 1, "!") else index + 1
                if self._is_punct(opening, "[") and opening in self.closing:
                    yield index, opening + 1, self.closing[opening]

    def _find_test_spans(self):
        spans = []
        for start, inside, close in self.attributes():
            if self.text(inside) != "cfg" or not self._is_punct(inside + 1, "("):
                continue
            if cfg_value(self.code[inside + 2 : close - 1]) is not False:
                continue
            if self._is_punct(start + 1, "!"):
                scope = self.scopes[start]
                end = len(self.code) if scope is None else self.closing.get(scope, len(self.code))
                spans.append((0 if scope is None else scope, end))
            else:
                spans.append((start, self._annotated_end(close + 1)))
        return spans

    def _annotated_end(self, index):
        """Returns the index after the item, field, arm or expression that an attribute stands before."""
        while self._is_punct(index, "#") and self._is_punct(index + 1, "["):
            index = self._skip_bracketed(index + 1)
        first = self.text(index)
        is_item = first in ITEM_STARTS
        if first == "pub":
            index = self._skip_bracketed(index + 1) if self._is_punct(index + 1, "(") else index + 1
            # A public field is a name and a single colon.
            is_item = self.text(index) in ITEM_STARTS
            first = self.text(index)
        is_constant = first == "const" and self.text(index + 1) not in ("fn", "unsafe", "async", "extern")
        ended_by_brace = is_item and first not in ENDED_BY_SEMICOLON and not is_constant
        while index < len(self.code):
            if self._is_punct(index, ";") or (not is_item and self._is_punct(index, ",")):
                return index + 1
            if self.code[index].kind == "punct" and self.text(index) in "}])":
                return index
            if ended_by_brace and self._is_punct(index, "{"):
                return self._skip_bracketed(index)
            index = self._skip_bracketed(index)
        return index

    def is_test(self, index):
        """Returns true if the code token is compiled for tests only."""
        return any(start <= index < end for start, end in self.test_spans)

    def test_lines(self):
        """Returns the numbers of the lines that are compiled for tests only."""
        lines = set()
        for start, end in self.test_spans:
            if start < end:
                lines.update(range(self.code[start].line, self.code[end - 1].end_line + 1))
        return lines

    def code_lines(self):
        """Returns the numbers of the lines that have code: neither blank nor comment alone."""
        return self._lines(0, len(self.code))

    def _lines(self, start, end):
        lines = set()
        for token in self.code[start:end]:
            lines.update(range(token.line, token.end_line + 1))
        return lines

    def function_lines(self, item):
        """Returns the number of code lines of a function, from its `fn` to its closing brace."""
        return len(self._lines(item.index, self._skip_bracketed(item.body)))

    @functools.cached_property
    def items(self):
        """All functions, types, traits and modules, in the order of their text."""
        return list(self._find_items())

    def _find_items(self):
        for index, token in enumerate(self.code):
            if token.kind != "ident":
                continue
            kind, name = token.text, self.text(index + 1)
            if kind == "impl" and self._starts_item(index):
                yield Item(kind, "", index, self.scopes[index], self._find_body(index))
            elif kind in ITEM_KEYWORDS and self.code[index + 1 : index + 2] and self.code[index + 1].kind == "ident":
                body = None if kind == "type" else self._find_body(index)
                yield Item(kind, name, index, self.scopes[index], body)

    def _starts_item(self, index):
        return self.text(index - 1) in ("", ";", "{", "}", "]", "unsafe", "default")

    def _find_body(self, index):
        """Returns the index of the brace that opens an item's body, or None if it has none."""
        while index < len(self.code) and not self._is_punct(index, ";"):
            # A brace right after `<` is a constant argument of a type.
            if self._is_punct(index, "{") and not self._is_punct(index - 1, "<"):
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
        for index, token in enumerate(self.code):
            # `use<'a>` in a type is a list of captures.
            if token.text == "use" and token.kind == "ident" and not self._is_punct(index + 1, "<"):
                paths = []
                end = self._read_use_tree(index + 1, (), paths)
                items.append((index, end, paths))
        return items

    def _read_use_tree(self, index, prefix, paths):
        """Reads one use tree, appends its paths, and returns the index after it."""
        start = index
        segments = prefix
        while True:
            if self._is_punct(index, "::"):
                segments, index = segments or ("",), index + 1
            elif self._is_punct(index, "$"):
                index += 1
            elif self._is_punct(index, "{"):
                close, index = self.closing[index], index + 1
                while index < close:
                    index = self._read_use_tree(index, segments, paths)
                    index += self._is_punct(index, ",")
                return close + 1
            elif self._is_punct(index, "*"):
                paths.append(UsePath(segments, "*", start))
                return index + 1
            elif self.text(index) == "as":
                paths.append(UsePath(segments, self.text(index + 1), start))
                return index + 2
            elif index < len(self.code) and self.code[index].kind == "ident":
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
            token.text
            for index, token in enumerate(self.code)
            if token.kind == "ident"
            and index not in self._use_tokens
            and self.text(index - 1) not in ("::", ".", "mod")
            and not self.is_test(index)
        }

    def plain_paths(self):
        """Yields paths of more than one segment, also those in attributes' strings.

        Left out are those of `use` items and of visibilities.
        """
        for index, token in enumerate(self.code):
            is_visibility = self.text(index - 1) == "in" and self.text(index - 3) == "pub"
            if index in self._use_tokens or self._is_punct(index - 1, "::") or is_visibility:
                continue
            if token.kind == "ident" and self._is_punct(index + 1, "::"):
                yield UsePath(self._read_path(index), None, index)
        for _, inside, close in self.attributes():
            for index in range(inside, close):
                # Such as `#[serde(with = "crate::times")]`.
                path = re.fullmatch(r'"((?:crate|self|super)(?:::\w+)+)"', self.text(index))
                if path:
                    yield UsePath(tuple(path.group(1).split("::")), None, index)

    def _read_path(self, index):
        segments = [self.text(index)]
        while self._is_punct(index + 1, "::") and self.code[index + 2 : index + 3]:
            if self.code[index + 2].kind != "ident":
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
    return f"{Path(file).resolve().relative_to(ROOT)}:{line}"
