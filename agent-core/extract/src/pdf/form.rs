//! Fields of PDF forms, without the values that a viewer hides.

use unpdf::FormField;
use unpdf::parser::raw::{PdfDict, PdfObject, RawDocument};

/// Flags of annotations that a viewer does not show: hidden, and not to be viewed (ISO 32000-1, section 12.5.3).
const UNSEEN_FLAGS: i64 = 1 << 1 | 1 << 5;
/// Flag of text fields whose characters a viewer does not show (section 12.7.4.3).
const PASSWORD_FLAG: i64 = 1 << 13;
/// Types of fields.
const FIELD_TYPES: [&[u8]; 4] = [b"Tx", b"Btn", b"Ch", b"Sig"];
/// Maximum nesting depth of fields that are followed.
const MAX_DEPTH: usize = 64;

/// Returns the fields whose values are seen in a document, without the values to which they are reset.
pub(super) fn shown_fields(bytes: &[u8], fields: Vec<FormField>) -> Vec<FormField> {
    if fields.is_empty() {
        return fields;
    }
    let unseen = RawDocument::load(bytes).map(|document| find_unseen(&document, fields.len()));
    let mut unseen = unseen.unwrap_or_default();
    // The library finds the same fields in the same order.
    if unseen.len() != fields.len() {
        unseen = vec![false; fields.len()];
    }
    let shown = fields.into_iter().zip(unseen).filter(|(_, is_unseen)| !is_unseen);
    shown.map(|(field, _)| FormField { default_value: None, ..field }).collect()
}

/// Returns for each field of a document whether its value is not seen, up to one field more than expected.
fn find_unseen(document: &RawDocument, expected: usize) -> Vec<bool> {
    let mut found = Vec::new();
    let form = document.catalog().ok().and_then(|catalog| catalog.get(b"AcroForm".as_slice()));
    let form = form.and_then(|form| document.resolve(form).as_dict());
    let fields = form.and_then(|form| form.get(b"Fields".as_slice()));
    let fields = fields.and_then(|fields| document.resolve(fields).as_array()).unwrap_or_default();
    for field in fields.iter().filter_map(PdfObject::as_reference) {
        add_field(document, field, (None, 0), expected, &mut found);
    }
    found
}

/// Adds the fields of a tree to `found`, given the type that they inherit and their depth.
fn add_field(
    document: &RawDocument,
    id: (u32, u16),
    (inherited_type, depth): (Option<&[u8]>, usize),
    expected: usize,
    found: &mut Vec<bool>,
) {
    let Ok(field) = document.get_dict(id) else { return };
    if depth > MAX_DEPTH || found.len() > expected {
        return;
    }
    let field_type = field.get(b"FT".as_slice()).and_then(PdfObject::as_name).or(inherited_type);
    let children = field.get(b"Kids".as_slice()).and_then(|children| document.resolve(children).as_array());
    if let Some(children) = children {
        for child in children.iter().filter_map(PdfObject::as_reference) {
            add_field(document, child, (field_type, depth + 1), expected, found);
        }
    } else if field_type.is_some_and(|field_type| FIELD_TYPES.contains(&field_type)) {
        found.push(is_unseen(document, field));
    }
}

fn is_unseen(document: &RawDocument, field: &PdfDict) -> bool {
    let entry = |name: &[u8]| field.get(name).map(|entry| document.resolve(entry));
    let has_flag = |name: &[u8], flags: i64| {
        entry(name).and_then(PdfObject::as_i64).is_some_and(|found| found & flags != 0)
    };
    let rectangle = entry(b"Rect").and_then(PdfObject::as_array).unwrap_or_default();
    let edges: Vec<f64> = rectangle.iter().filter_map(|edge| document.resolve(edge).as_f64()).collect();
    let is_empty = matches!(edges[..], [left, bottom, right, top] if left == right || bottom == top);
    is_empty || has_flag(b"F", UNSEEN_FLAGS) || has_flag(b"Ff", PASSWORD_FLAG)
}
