"""Tests of the imports between modules at every level: `python3 -m unittest discover ci`."""

import tempfile
import unittest
from pathlib import Path
from unittest import mock

import module_tree
from module_tree import ModuleTree


def tree(files):
    """Returns the modules of a crate with these files, by their paths below its source folder."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            file = Path(folder) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        with mock.patch.object(module_tree, "place", lambda file, line: f"{Path(file).name}:{line}"):
            return ModuleTree(Path(folder) / "lib.rs")


def siblings(parent, **children):
    """Returns the cycles among the children of a module `a`, which has the text `parent`."""
    files = {"lib.rs": "mod a;", "a.rs": parent + "".join(f"mod {name};" for name in children)}
    files |= {f"a/{name}.rs": text for name, text in children.items()}
    return [str(cycle) for cycle in tree(files).sibling_cycles()]


def with_parent(parent, child):
    """Returns the cycles between a module `a` and its child `b`."""
    return [cycle.key for cycle in tree({"lib.rs": "mod a;", "a.rs": parent, "a/b.rs": child}).parent_cycles()]


class SiblingCycles(unittest.TestCase):
    def test_a_cycle_is_told_with_both_imports(self):
        found = siblings("", b="use super::c::C;\npub struct B;", c="\nuse crate::a::b::B;\npub struct C;")
        self.assertEqual(
            found, ["cycle in a: b -> c -> b: b imports c (b.rs:1), c imports b (c.rs:2)"]
        )

    def test_one_direction_is_no_cycle(self):
        self.assertEqual(siblings("", b="use super::c::C;", c="pub struct C; use self::C as D;"), [])

    def test_a_cycle_of_three_is_found_once(self):
        found = siblings("", b="use super::c::X;", c="use super::d::X;", d="use super::b::X;")
        self.assertEqual(len(found), 1, found)
        self.assertIn("b -> c -> d -> b", found[0])

    def test_names_are_followed_through_the_exports_of_the_parent(self):
        parent = "pub use b::B; pub use c::*;"
        found = siblings(parent, b="pub struct B; use super::C;", c="pub struct C; use crate::a::B;")
        self.assertEqual(len(found), 1, found)

    def test_plain_paths_and_attributes_are_imports(self):
        for path in ("fn f() { super::c::g() }", '#[serde(with = "super::c")] struct S;', "use super::c as d;"):
            self.assertEqual(len(siblings("", b=path, c="fn g() { super::b::f() }")), 1, path)

    def test_imports_of_files_in_a_folder_are_those_of_their_module(self):
        files = {
            "lib.rs": "mod a;",
            "a.rs": "mod b; mod c;",
            "a/b.rs": "mod d;",
            "a/b/d.rs": "use super::super::c::C;",
            "a/c.rs": "pub struct C; fn f() { crate::a::b::g() }",
        }
        self.assertEqual([cycle.parent for cycle in tree(files).sibling_cycles()], ["a"])

    def test_top_level_and_inline_modules(self):
        files = {"lib.rs": "mod a { use super::b::B; } mod b { pub struct B; use crate::a; }"}
        self.assertEqual([cycle.parent for cycle in tree(files).sibling_cycles()], ["crate"])

    def test_tests_are_exempt(self):
        found = siblings("", b="use super::c::C;", c="#[cfg(test)] mod tests { use super::super::b::B; }")
        self.assertEqual(found, [])
        found = siblings("#[cfg(test)]", b="use super::c::C;", c="use super::b::B;")
        self.assertEqual(found, [])

    def test_names_of_other_crates_are_no_imports(self):
        found = siblings("use http::B;", b="use super::c::C;", c="use super::B; use ::b::X; use http::b;")
        self.assertEqual(found, [])


class ParentCycles(unittest.TestCase):
    def test_an_item_of_the_parent_and_a_use_of_the_child(self):
        child = "use super::A; pub fn f(_: A) {}"
        self.assertEqual(with_parent("mod b; use b::f; pub struct A;", child), ["a::b"])
        self.assertEqual(with_parent("mod b; pub struct A; fn g() { b::f(A) }", child), ["a::b"])
        self.assertEqual(with_parent("mod b; pub const A: u8 = b::C;", "use super::A;"), ["a::b"])

    def test_an_export_alone_is_no_use(self):
        child = "use super::A; pub fn f(_: A) {}"
        self.assertEqual(with_parent("mod b; pub use b::f; pub struct A;", child), [])
        self.assertEqual(with_parent("mod b; pub use b::f; pub struct A; fn g() { f(A) }", child), ["a::b"])

    def test_a_child_that_imports_what_the_parent_imports(self):
        self.assertEqual(with_parent("mod b; use std::sync::Arc; use b::f;", "use super::Arc;"), [])

    def test_a_way_through_another_child(self):
        files = {
            "lib.rs": "mod a;",
            "a.rs": "mod b; mod c; pub struct A; fn g() { b::f() }",
            "a/b.rs": "use super::c;",
            "a/c.rs": "use super::A;",
        }
        found = tree(files).parent_cycles()
        self.assertEqual([cycle.key for cycle in found], ["a::c"])
        self.assertIn("self -> b -> c -> self", str(found[0]))


if __name__ == "__main__":
    unittest.main()
