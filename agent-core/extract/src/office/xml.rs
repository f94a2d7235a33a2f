//! Reading of XML with the positions of its elements, and changes at these positions.

use std::ops::Range;

use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

/// The events of a text of XML, up to the first fault, as the readers of Office documents see them.
pub(super) struct XmlEvents<'x> {
    reader: Reader<&'x [u8]>,
    /// Length of a byte order mark, which the reader does not count.
    mark: usize,
    length: usize,
}

impl<'x> XmlEvents<'x> {
    pub(super) fn new(xml: &'x str) -> Self {
        let mut reader = Reader::from_str(xml);
        reader.config_mut().allow_dangling_amp = true;
        let mark = if xml.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        Self { reader, mark, length: xml.len() }
    }

    /// Returns the next event and the position of its markup.
    pub(super) fn next(&mut self) -> Option<(Event<'x>, Range<usize>)> {
        let start = self.position();
        match self.reader.read_event() {
            Ok(Event::Eof) | Err(_) => None,
            Ok(event) => Some((event, start..self.position())),
        }
    }

    /// Skips the content of an element that was opened by the last event. Returns the offset after it.
    pub(super) fn skip(&mut self, element: &BytesStart<'_>) -> usize {
        match self.reader.read_to_end(element.to_end().name()) {
            Ok(_) => self.position(),
            Err(_) => self.length,
        }
    }

    fn position(&self) -> usize {
        let position = usize::try_from(self.reader.buffer_position()).unwrap_or(self.length);
        position.saturating_add(self.mark).min(self.length)
    }
}

/// Returns the value of an attribute by its name with prefix.
pub(super) fn attribute(element: &BytesStart<'_>, name: &str) -> Option<String> {
    let attribute = element.attributes().flatten().find(|attribute| attribute.key.into_inner() == name)?;
    Some(match attribute.normalized_value(XmlVersion::Implicit1_0) {
        Ok(value) => value.into_owned(),
        Err(_) => attribute.value.to_string(),
    })
}

/// Returns true for an attribute that is switched on.
pub(super) fn is_on(value: &str) -> bool {
    matches!(value, "1" | "true" | "on")
}

/// Changes of a text of XML.
pub(super) struct XmlChanges<'x> {
    xml: &'x str,
    replacements: Vec<(Range<usize>, String)>,
}

impl<'x> XmlChanges<'x> {
    pub(super) fn new(xml: &'x str) -> Self {
        Self { xml, replacements: Vec::new() }
    }

    pub(super) fn remove(&mut self, range: Range<usize>) {
        self.replace(range, String::new());
    }

    pub(super) fn replace(&mut self, range: Range<usize>, replacement: String) {
        self.replacements.push((range, replacement));
    }

    /// Returns the changed text, or `None` if nothing was changed. A change within a range that another change replaces or
    /// removes has no effect.
    pub(super) fn finish(mut self) -> Option<String> {
        if self.replacements.is_empty() {
            return None;
        }
        self.replacements.sort_by_key(|(range, replacement)| {
            (range.start, std::cmp::Reverse(range.end), !replacement.is_empty())
        });
        let mut changed = String::with_capacity(self.xml.len());
        let mut copied = 0;
        for (range, replacement) in self.replacements {
            if range.start < copied {
                continue;
            }
            changed.push_str(&self.xml[copied..range.start]);
            changed.push_str(&replacement);
            copied = range.end;
        }
        changed.push_str(&self.xml[copied..]);
        Some(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_removed_at_their_places() {
        let xml = "<?xml version=\"1.0\"?>\n<a x=\"é &amp; 1\"> é <b>1<b/></b>&amp;<c/> </a>";
        let mut changes = XmlChanges::new(xml);
        let mut events = XmlEvents::new(xml);
        while let Some((event, range)) = events.next() {
            match event {
                Event::Start(element) if element.name().into_inner() == "a" => {
                    assert_eq!(attribute(&element, "x").as_deref(), Some("é & 1"));
                }
                Event::Start(element) if element.name().into_inner() == "b" => {
                    let end = events.skip(&element);
                    assert_eq!(&xml[range.start..end], "<b>1<b/></b>");
                    changes.remove(range.start..end);
                    changes.remove(range.start + 3..end);
                }
                Event::Empty(_) => changes.replace(range, "<d/>".to_owned()),
                _ => {}
            }
        }
        let expected = "<?xml version=\"1.0\"?>\n<a x=\"é &amp; 1\"> é &amp;<d/> </a>";
        assert_eq!(changes.finish().as_deref(), Some(expected));
        assert_eq!(XmlChanges::new(xml).finish(), None);
        let mut changes = XmlChanges::new("<a/><b/>");
        changes.replace(0..4, "<c/>".to_owned());
        changes.remove(0..4);
        assert_eq!(changes.finish().as_deref(), Some("<b/>"));
    }

    #[test]
    fn a_byte_order_mark_does_not_shift_positions() {
        let xml = "\u{feff}<a>é<b/></a>";
        let mut changes = XmlChanges::new(xml);
        let mut events = XmlEvents::new(xml);
        while let Some((event, range)) = events.next() {
            if matches!(event, Event::Empty(_)) {
                changes.remove(range);
            }
        }
        assert_eq!(changes.finish().as_deref(), Some("\u{feff}<a>é</a>"));
    }

    #[test]
    fn faults_end_the_events() {
        let mut events = XmlEvents::new("<a><b></c>");
        assert!(events.next().is_some());
        let Some((Event::Start(element), _)) = events.next() else { panic!("an element begins") };
        assert_eq!(events.skip(&element), 10);
    }
}
