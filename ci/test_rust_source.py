"""Tests of the lexer and the scanners in `rust_source`: `python3 -m unittest discover ci`."""

import unittest

from rust_source import DOC, TOKEN, Source, cfg_value, is_ident


def token_kind(text):
    """Returns the kind of a token: ident, lifetime, number, string, char, punct, comment or doc."""
    first, last = text[0], text[-1]
    if text[:2] in ("//", "/*"):
        return "doc" if DOC.match(text) else "comment"
    if last == '"' or (last == "#" and len(text) > 1):
        return "string"
    if last == "'" and len(text) > 2:
        return "char"
    if is_ident(text):
        return "ident"
    if first == "'" and len(text) > 1:
        return "lifetime"
    return "number" if first.isdigit() else "punct"


def kinds(text):
    """Returns (kind, text) of each token."""
    return [(token_kind(token), token) for token in TOKEN.findall(text) if not token.isspace()]


def paths(source):
    """Returns the paths that a source file's `use` items bind, as text."""
    return ["::".join(path.segments) + ("::*" if path.name == "*" else "") for path in source.uses]


class Lexer(unittest.TestCase):
    def test_comments_nest_and_hide_code(self):
        self.assertEqual(
            kinds("a /* fn /* mod */ \" */ b // c"),
            [("ident", "a"), ("comment", "/* fn /* mod */ \" */"), ("ident", "b"), ("comment", "// c")],
        )

    def test_documentation_is_told_from_comments(self):
        text = "/// a\n//// b\n//! c\n/** d */\n/*** e */\n/**/\n/*! f */"
        expected = ["doc", "comment", "doc", "doc", "comment", "comment", "doc"]
        self.assertEqual([kind for kind, _ in kinds(text)], expected)

    def test_strings(self):
        for text in (r'"a \" // b"', r'"\\"', r'b"x"', 'r"\\"', 'r#"a " b"#', 'br##"a "# b"##', 'c"x"', '"a\nb"'):
            self.assertEqual(kinds(text), [("string", text)])
        self.assertEqual(kinds('r#type "s"'), [("ident", "r#type"), ("string", '"s"')])

    def test_characters_and_lifetimes(self):
        for text in ("'a'", r"'\''", r"'\\'", "'\"'", r"'\x41'", r"'\u{1F600}'", "b'x'", "'{'", "'ß'", "' '"):
            self.assertEqual(kinds(text), [("char", text)])
        self.assertEqual(
            [kind for kind, _ in kinds("<'a, 'static> '_ 'b: loop")],
            ["punct", "lifetime", "punct", "lifetime", "punct", "lifetime", "lifetime", "punct", "ident"],
        )

    def test_numbers_leave_ranges_and_methods_alone(self):
        self.assertEqual([text for _, text in kinds("0..10 1.5e3 1.max(2)")],
                         ["0", ".", ".", "10", "1.5e3", "1", ".", "max", "(", "2", ")"])

    def test_lines_are_counted_through_strings_and_comments(self):
        source = Source('"a\nb" /*\n*/ c\nd')
        self.assertEqual(list(zip(source.code, source.lines)), [('"a\nb"', 1), ("c", 3), ("d", 4)])


class TestSpans(unittest.TestCase):
    def test_cfg_values(self):
        cases = {
            "test": False,
            "unix": None,
            "not(test)": True,
            "all(test, unix)": False,
            "any(test, unix)": None,
            'any(test, feature = "x")': None,
            "not(unix)": None,
            "all(unix, not(test))": None,
        }
        for text, value in cases.items():
            self.assertIs(cfg_value(TOKEN.findall(text.replace(" ", ""))), value, text)

    def assert_tests(self, text, tests, product):
        source = Source(text)
        found = [text for index, text in enumerate(source.code) if source.is_test(index)]
        kept = [text for index, text in enumerate(source.code) if not source.is_test(index)]
        for name in tests:
            self.assertIn(name, found)
        for name in product:
            self.assertIn(name, kept)

    def test_items(self):
        self.assert_tests("#[cfg(test)] mod tests { fn a() {} } fn b() {}", ["a"], ["b"])
        self.assert_tests("#[cfg(test)] #[path = \"x\"] mod a; fn b() {}", ["a"], ["b"])
        self.assert_tests("#[cfg(test)] pub(super) const fn a() -> [u8; 1] { [0] } fn b() {}", ["a"], ["b"])
        self.assert_tests("#[cfg(test)] use x::{a, c}; fn b() {}", ["a", "c"], ["b"])
        self.assert_tests("#[cfg(test)] const A: X = X { a: 1 }; fn b() {}", ["a"], ["b"])
        self.assert_tests("#[cfg(test)] impl<A, C> T<A> for S<C> where A: C, { fn a() {} } fn b() {}", ["a"], ["b"])
        self.assert_tests("mod m { #![cfg(test)] fn a() {} } fn b() {}", ["a"], ["b"])

    def test_fields_and_statements(self):
        self.assert_tests("struct S { #[cfg(test)] a: u8, b: u8 } fn c() {}", ["a"], ["b", "c"])
        self.assert_tests("struct S { #[cfg(test)] pub a: Vec<u8> } fn c() {}", ["a"], ["c"])
        self.assert_tests("fn f() { #[cfg(test)] a(); b(); }", ["a"], ["b"])

    def test_other_conditions_are_the_product(self):
        self.assert_tests("#[cfg(not(test))] fn a() {} #[cfg(any(test, unix))] fn b() {}", [], ["a", "b"])
        self.assert_tests("fn f() { \"#[cfg(test)]\"; a() }", [], ["a"])


class Items(unittest.TestCase):
    def test_names_and_owners(self):
        source = Source("impl T for S { type A = u8; } fn f(g: fn(u8), x: impl T) { struct L; } mod m { enum E {} }")
        found = {item.name: [owner.kind for owner in source.enclosing(item.index)] for item in source.items}
        self.assertEqual(found, {"": [], "A": ["impl"], "f": [], "L": ["fn"], "m": [], "E": ["mod"]})

    def test_function_lines_leave_out_comments_and_blank_lines(self):
        source = Source('fn f()\n{\n // a\n\n let a = "b\n\nc";\n /* } */\n}\nfn g() {}')
        self.assertEqual([source.function_lines(item) for item in source.items], [6, 1])

    def test_use_trees(self):
        source = Source("pub use crate::a::{self, b::{C, D as E}, f::*}; use ::x::y; use super::{g}; use {h, i::j};")
        self.assertEqual(
            paths(source),
            ["crate::a", "crate::a::b::C", "crate::a::b::D", "crate::a::f::*", "::x::y", "super::g", "h", "i::j"],
        )
        self.assertEqual([path.name for path in source.uses][:4], ["a", "C", "E", "*"])
        self.assertEqual(len(source.public_uses), 4)

    def test_scopes_of_groups_in_use_items_are_no_items(self):
        source = Source("use a::{b}; mod m { use super::c; }")
        self.assertEqual([source.inline_modules(path.index) for path in source.uses], [(), ("m",)])

    def test_plain_paths(self):
        text = 'use a::b; #[serde(with = "crate::c")] fn f() -> impl Fn() + use<> { $crate::d::e!(); "super::x" }'
        source = Source(text)
        self.assertEqual([path.segments for path in source.plain_paths], [("crate", "d", "e"), ("crate", "c")])

    def test_visibilities_are_no_paths(self):
        source = Source("pub(in crate::a) fn f() { for x in crate::b::C {} } pub(super) use c::D;")
        self.assertEqual([path.segments for path in source.plain_paths], [("crate", "b", "C")])


if __name__ == "__main__":
    unittest.main()
