"""Imports between the modules of a crate at every level: between the children of each module, and between a module's
own items and its children.

A path is followed through the `use` items of the modules that contain the importer, so that an import of a name that
the parent exports is an import of the module that defines it. What any other module exports counts as its own. Calls
of methods are not seen.
"""

from typing import NamedTuple

from rust_source import PATH_HEADS, modules, place

# The name of a module's own items in the graph of its children.
OWN_ITEMS = "self"
ITEM_KEYWORDS = {"fn", "struct", "enum", "trait", "type", "const", "static", "union", "macro_rules"}


class Cycle(NamedTuple):
    """A cycle among the children and the own items of one module; `steps` are (importer, imported, place)."""

    parent: str
    steps: tuple

    def __str__(self):
        names = [importer for importer, _, _ in self.steps]
        steps = ", ".join(f"{importer} imports {imported} ({where})" for importer, imported, where in self.steps)
        return f"cycle in {self.parent}: {' -> '.join([*names, names[0]])}: {steps}"

    @property
    def key(self):
        """The parent with the last importer, by which a cycle through the parent's own items is known."""
        return f"{self.parent}::{self.steps[-1][0]}"


class Node:
    """One module: the names of its own items, and the paths that its `use` items bind."""

    def __init__(self):
        self.items, self.bindings, self.globs = set(), {}, []

    def has(self, name):
        """Returns true if the module defines or binds a name other than that of a child."""
        return name in self.items or name in self.bindings


class ModuleTree:
    """The modules of one crate outside of tests.

    `edges` maps the path of a module to its imports: from (importer, imported) to the first place that says so. Both are
    names of children of the module, or `OWN_ITEMS`.
    """

    def __init__(self, root_file):
        files = [module for module in modules(root_file) if not module.is_test]
        self.nodes = {}
        self.edges = {}
        for module in files:
            self._add_nodes(module)
        for module in files:
            self._add_names(module)
        for module in files:
            self._add_imports(module)

    def _add_nodes(self, module):
        source = module.source
        self.nodes[module.path] = Node()
        for item in source.items:
            if item.kind == "mod" and item.body is not None and not source.is_test(item.index):
                self.nodes[(*module.path, *source.inline_modules(item.index), item.name)] = Node()

    def _add_names(self, module):
        source = module.source
        for index, text in enumerate(source.code):
            if text in ITEM_KEYWORDS:
                node = self._owner(module, index)
                if node:
                    node.items.add(source.text(index + (2 if text == "macro_rules" else 1)))
        for path in source.uses:
            node = self._owner(module, path.index)
            if node and path.name == "*":
                node.globs.append(path.segments)
            elif node:
                node.bindings.setdefault(path.name, path.segments)

    def _owner(self, module, index):
        """Returns the module to which an item at a code token belongs; None within another item or a test."""
        source = module.source
        if source.is_test(index) or any(item.kind != "mod" for item in source.enclosing(index)):
            return None
        return self.nodes[module.path + source.inline_modules(index)]

    def _add_imports(self, module):
        source = module.source
        used_names = source.used_names()
        # An export is an import if the module uses the name itself.
        only_exported = {path.index for path in source.public_uses if path.name not in used_names}
        for path in [*source.uses, *source.plain_paths]:
            if path.index in only_exported or source.is_test(path.index):
                continue
            importer = module.path + source.inline_modules(path.index)
            target = self._follow(importer, path.segments, importer, frozenset())
            if target is not None:
                self._add_edge(importer, target, place(module.file, source.lines[path.index]))

    def _follow(self, base, segments, importer, seen):
        """Returns the module that a path in the module `base` leads to, or None if it leaves the crate."""
        rest = list(segments)
        if rest and rest[0] == "":
            return None
        while rest and rest[0] in PATH_HEADS:
            head = rest.pop(0)
            base = () if head == "crate" else base[:-1] if head == "super" else base
        return self._find(base, rest, importer, seen)

    def _find(self, base, names, importer, seen):
        """Returns the module that has the item of a path of names from the module `base` on."""
        if base not in self.nodes:
            return None
        if not names:
            return base
        node, name = self.nodes[base], names[0]
        if (*base, name) in self.nodes:
            return self._find((*base, name), names[1:], importer, seen)
        if name in node.items or importer[: len(base)] != base:
            return base
        if (base, name) in seen:
            return None
        seen = seen | {(base, name)}
        if name in node.bindings:
            return self._follow(base, [*node.bindings[name], *names[1:]], importer, seen)
        for segments in node.globs:
            target = self._follow(base, segments, importer, seen)
            if target is not None and target != base and self._defines(target, name):
                return target
        return None

    def _defines(self, path, name):
        return self.nodes[path].has(name) or (*path, name) in self.nodes

    def _add_edge(self, importer, target, where):
        """Adds an import to the graph of the innermost module that contains both modules."""
        depth = 0
        while depth < min(len(importer), len(target)) and importer[depth] == target[depth]:
            depth += 1
        origin = importer[depth] if depth < len(importer) else OWN_ITEMS
        imported = target[depth] if depth < len(target) else OWN_ITEMS
        if origin != imported:
            self.edges.setdefault(importer[:depth], {}).setdefault((origin, imported), where)

    def sibling_cycles(self):
        """Returns a shortest cycle for each child in a cycle among the children of a module, each cycle once."""
        found = {}
        for parent, edges in sorted(self.edges.items()):
            siblings = {pair: where for pair, where in edges.items() if OWN_ITEMS not in pair}
            for child in sorted({name for pair in siblings for name in pair}):
                names = shortest_cycle(siblings, child)
                if names:
                    found.setdefault((parent, frozenset(names)), cycle(parent, siblings, names))
        return list(found.values())

    def parent_cycles(self):
        """Returns a shortest cycle for each child that imports own items of its parent, which imports the child."""
        found = []
        for parent, edges in sorted(self.edges.items()):
            for child, imported in sorted(edges):
                names = shortest_path(edges, OWN_ITEMS, child) if imported == OWN_ITEMS else None
                if names:
                    found.append(cycle(parent, edges, names))
        return found


def cycle(parent, edges, names):
    """Returns the cycle through modules in this order."""
    pairs = zip(names, [*names[1:], names[0]])
    return Cycle("::".join(parent) or "crate", tuple((a, b, edges[a, b]) for a, b in pairs))


def shortest_cycle(edges, start):
    """Returns the names of a shortest cycle from `start` on, or None."""
    paths = [shortest_path(edges, imported, start) for origin, imported in sorted(edges) if origin == start]
    shortest = min(filter(None, paths), key=len, default=None)
    return shortest and [start, *shortest[:-1]]


def shortest_path(edges, start, end):
    """Returns the names of a shortest path from `start` to `end` along the imports, or None."""
    paths, seen = [[start]], {start}
    for path in paths:
        if path[-1] == end:
            return path
        for origin, imported in sorted(edges):
            if origin == path[-1] and imported not in seen:
                seen.add(imported)
                paths.append([*path, imported])
    return None
