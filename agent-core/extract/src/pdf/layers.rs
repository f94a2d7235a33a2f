//! Layers of PDF documents that a viewer does not show at first: optional content (ISO 32000-1, section 8.11).

use std::collections::HashSet;

use unpdf::parser::backend::{ObjectId, ResourceScope};
use unpdf::parser::raw::{PdfDict, PdfObject, RawDocument};

/// Maximum number of nodes of the page tree above a page that are searched for resources.
const MAX_PARENTS: usize = 32;

/// Maximum number of groups to which marked content can belong together; each of its operations looks at all of them.
const MAX_MEMBERS: usize = 256;

/// The layers of a document.
pub(super) struct Layers {
    document: RawDocument,
    /// Groups of content that are switched off.
    hidden: HashSet<ObjectId>,
}

impl Layers {
    /// Reads the layers of a document; `None` if all are shown.
    pub(super) fn load(bytes: &[u8]) -> Option<Self> {
        let document = RawDocument::load(bytes).ok()?;
        let properties = entry(&document, document.catalog().ok()?, b"OCProperties")?.as_dict()?;
        let configuration = entry(&document, properties, b"D")?.as_dict()?;
        let groups = |dictionary: &PdfDict, name: &[u8]| -> Vec<ObjectId> {
            let groups = entry(&document, dictionary, name).and_then(PdfObject::as_array);
            groups.unwrap_or_default().iter().filter_map(PdfObject::as_reference).collect()
        };
        let is_off = |name: &PdfObject| name.as_name() == Some(b"OFF".as_slice());
        let mut hidden = HashSet::new();
        if entry(&document, configuration, b"BaseState").is_some_and(is_off) {
            hidden.extend(groups(properties, b"OCGs"));
            groups(configuration, b"ON").iter().for_each(|group| {
                hidden.remove(group);
            });
        }
        hidden.extend(groups(configuration, b"OFF"));
        (!hidden.is_empty()).then_some(Self { document, hidden })
    }

    /// Returns true if the content is not shown that an operation marks with a name.
    pub(super) fn hides(&self, scope: ResourceScope, name: &[u8]) -> bool {
        let Some(properties) = self.properties(scope) else { return false };
        let Some(marked) = properties.get(name) else { return false };
        if marked.as_reference().is_some_and(|group| self.hidden.contains(&group)) {
            return true;
        }
        self.document.resolve(marked).as_dict().is_some_and(|membership| self.hides_members(membership))
    }

    /// Returns true for the content of several groups that is not shown. Expressions, content of very many groups, and content that
    /// is shown where groups are switched off, count as shown.
    fn hides_members(&self, membership: &PdfDict) -> bool {
        let Some(groups) = membership.get(b"OCGs".as_slice()) else { return false };
        let groups = match groups.as_reference() {
            Some(group) if self.document.resolve(groups).as_dict().is_some() => vec![group],
            _ => {
                let groups = self.document.resolve(groups).as_array().unwrap_or_default();
                if groups.len() > MAX_MEMBERS {
                    return false;
                }
                groups.iter().filter_map(PdfObject::as_reference).collect()
            }
        };
        let mut is_hidden = groups.iter().map(|group| self.hidden.contains(group));
        let policy = entry(&self.document, membership, b"P").and_then(PdfObject::as_name);
        match policy.unwrap_or(b"AnyOn") {
            _ if membership.contains_key(b"VE".as_slice()) => false,
            b"AnyOn" => !groups.is_empty() && is_hidden.all(|is_hidden| is_hidden),
            b"AllOn" => is_hidden.any(|is_hidden| is_hidden),
            _ => false,
        }
    }

    /// Returns the names of marked content in the resources of a form, or of a page or the nodes above it.
    fn properties(&self, scope: ResourceScope) -> Option<&PdfDict> {
        let resources = match scope.form {
            Some(form) => {
                let form = self.document.get_object(form)?.as_stream()?;
                entry(&self.document, &form.dict, b"Resources")
            }
            None => None,
        };
        let mut node = self.document.get_dict(scope.page).ok()?;
        let mut found = resources;
        for _ in 0..MAX_PARENTS {
            found = found.or_else(|| entry(&self.document, node, b"Resources"));
            let parent = entry(&self.document, node, b"Parent").and_then(PdfObject::as_dict);
            match (found, parent) {
                (None, Some(parent)) => node = parent,
                _ => break,
            }
        }
        entry(&self.document, found?.as_dict()?, b"Properties")?.as_dict()
    }
}

/// Returns an entry of a dictionary, or the object to which it refers.
fn entry<'d>(document: &'d RawDocument, dictionary: &'d PdfDict, name: &[u8]) -> Option<&'d PdfObject> {
    dictionary.get(name).map(|entry| document.resolve(entry))
}
