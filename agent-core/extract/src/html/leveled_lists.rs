//! Lists in the HTML export of Google Docs. It writes the items of each level as separate lists, one below the other, and names
//! the list and the level in a class such as `lst-kix_abc-1`.

use std::rc::Rc;

use htmd::Node;
use markup5ever_rcdom::NodeData;

use super::lists::is_item;

/// Prefix of the class. The name of the list, a hyphen and the level follow.
const CLASS_PREFIX: &str = "lst-kix_";
/// The lowest level of lists in Google Docs.
const MAX_LEVEL: u8 = 8;

/// The name, level and element of a list.
struct LeveledList {
    name: String,
    level: u8,
    node: Rc<Node>,
}

/// Moves each list into the last item above it of a higher level, and the items of a list that continues into that list.
pub(super) fn nest_lists(tree: &Rc<Node>) {
    let mut pending = vec![tree.clone()];
    while let Some(node) = pending.pop() {
        nest_children(&node);
        pending.extend(node.children.borrow().iter().cloned());
    }
}

fn nest_children(parent: &Node) {
    // The lists that can continue, the outermost first.
    let mut open: Vec<LeveledList> = Vec::new();
    parent.children.borrow_mut().retain(|child| {
        let Some(list) = leveled_list(child) else {
            if !is_blank(child) {
                open.clear();
            }
            return true;
        };
        open.retain(|outer| outer.name == list.name && (outer.level < list.level || continues(outer, &list)));
        let Some(outer) = open.last() else {
            open.push(list);
            return true;
        };
        if outer.level == list.level {
            list.node.children.take().into_iter().for_each(|item| append(&outer.node, item));
            return false;
        }
        let Some(item) = last_item(&outer.node) else { return true };
        append(&item, child.clone());
        open.push(list);
        false
    });
}

/// Returns true for a list of the same level and element.
fn continues(outer: &LeveledList, list: &LeveledList) -> bool {
    outer.level == list.level && tag(&outer.node) == tag(&list.node)
}

/// Returns a list with its name and its level; `None` for another element, and for a list without them.
fn leveled_list(node: &Rc<Node>) -> Option<LeveledList> {
    if !matches!(tag(node)?.as_str(), "ul" | "ol") {
        return None;
    }
    let NodeData::Element { attrs, .. } = &node.data else { return None };
    let attributes = attrs.borrow();
    let classes = attributes.iter().find(|attribute| &*attribute.name.local == "class")?;
    let class = classes.value.split_whitespace().find_map(|class| class.strip_prefix(CLASS_PREFIX))?;
    let (name, level) = class.rsplit_once('-')?;
    let level = level.parse::<u8>().ok().filter(|&level| level <= MAX_LEVEL)?;
    Some(LeveledList { name: name.to_owned(), level, node: node.clone() })
}

fn tag(node: &Node) -> Option<String> {
    let NodeData::Element { name, .. } = &node.data else { return None };
    Some(name.local.to_string())
}

fn last_item(list: &Node) -> Option<Rc<Node>> {
    list.children.borrow().iter().rfind(|child| is_item(child)).cloned()
}

fn append(parent: &Rc<Node>, child: Rc<Node>) {
    child.parent.set(Some(Rc::downgrade(parent)));
    parent.children.borrow_mut().push(child);
}

/// Returns true for what can be between two lists: white space and comments.
fn is_blank(node: &Node) -> bool {
    match &node.data {
        NodeData::Text { contents } => contents.borrow().trim().is_empty(),
        NodeData::Comment { .. } => true,
        _ => false,
    }
}
