//! The drawing of the text of a PDF page.

use std::rc::Rc;

use unpdf::parser::backend::{ContentOp, PdfBackend, PdfValue, get_number_from_value};

use super::super::canvas::Bounds;
use super::super::covered_text::OperationPosition;
use super::super::drawing::{Drawing, Ink, TextExtent, is_text_character, numbers, strings_of};
use super::{PageWalk, Visibility};

/// Maximum size of text that counts as hidden, in points.
const MAX_HIDDEN_SIZE: f32 = 1.0;
/// Lower and upper edge of small letters, for a font of size 1.
const LETTER_EDGES: (f32, f32) = (0.1, 0.5);
/// Lower and upper edge of symbols, for a font of size 1.
const SYMBOL_EDGES: (f32, f32) = (-0.2, 1.0);
/// Maximum number of fonts of a page whose glyphs are read. Those of any further font may have drawings of their own.
const MAX_FONTS: usize = 256;
/// Lower and upper edge of capital letters, for a font of size 1.
const CAPITAL_EDGES: (f32, f32) = (0.0, 0.75);
/// Minimum average width of the glyphs of a text, for a font of size 1, that can be those of letters.
const MIN_GLYPH_WIDTH: f32 = 0.15;

impl PageWalk<'_> {
    /// Draws the text of an operation and returns its visibility.
    pub(super) fn draw_text(
        &mut self,
        drawing: &mut Drawing,
        operation: &ContentOp,
        position: OperationPosition,
    ) -> Visibility {
        if operation.operator == "\""
            && let Some([word_spacing, character_spacing]) = numbers(operation)
        {
            drawing.state.text.word_spacing = word_spacing;
            drawing.state.text.character_spacing = character_spacing;
        }
        if matches!(operation.operator.as_str(), "'" | "\"") {
            drawing.next_line(0.0, -drawing.state.text.leading);
        }
        let strings = strings_of(operation);
        if drawing.is_hidden() {
            drawing.offset = None;
            let has_letters = self.has_letters(drawing, strings);
            return if has_letters { Visibility::Unseen } else { Visibility::Blank };
        }
        let state = &drawing.state;
        let size = state.text.size.abs() * drawing.line.then(state.matrix).vertical_scale();
        let is_candidate = |ink: &Ink| ink.is_white || ink.is_transparent || size <= MAX_HIDDEN_SIZE;
        let ink = state.text_ink().filter(is_candidate);
        let Some(ink) = ink.filter(|_| !self.has_own_drawings(drawing)) else {
            return self.draw_seen(drawing, strings, position);
        };
        let extent = self.extent(drawing, strings);
        let is_unseen = self.hides(drawing, ink, size, extent.as_ref());
        drawing.offset = drawing.offset.zip(extent).map(|(offset, extent)| offset + extent.end);
        match (self.has_letters(drawing, strings), is_unseen) {
            (false, _) => Visibility::Blank,
            (true, true) => Visibility::Unseen,
            (true, false) => Visibility::Seen,
        }
    }

    /// Returns true if text is not seen that is drawn at the current position.
    fn hides(&self, drawing: &Drawing, ink: Ink, size: f32, extent: Option<&TextExtent>) -> bool {
        let state = &drawing.state;
        let matrix = drawing.line.then(state.matrix);
        let is_tiny = size <= MAX_HIDDEN_SIZE
            && extent.is_some_and(|extent| {
                let width = (extent.range.1 - extent.range.0) * matrix.horizontal_scale();
                width <= MAX_HIDDEN_SIZE * extent.glyphs as f32
            });
        if is_tiny || ink.is_transparent {
            return true;
        }
        ink.is_white
            && !state.is_blended
            && !self.canvas.is_painted(drawing.text_bounds(extent, LETTER_EDGES))
    }

    /// Draws text that is seen unless something covers it later, which is known at the end of the page.
    fn draw_seen(
        &mut self,
        drawing: &mut Drawing,
        strings: &[PdfValue],
        position: OperationPosition,
    ) -> Visibility {
        if drawing.state.text_ink().is_none() {
            // It is not painted, or it clips content that is painted after it.
            drawing.state.unclipped = Bounds::NOWHERE;
            drawing.offset = None;
            return Visibility::Seen;
        }
        if !self.is_second_pass {
            self.covered.add(position, drawing.text_origin());
            drawing.offset = None;
            return Visibility::Seen;
        }
        self.paint_symbols(drawing, strings);
        let extent = self.extent(drawing, strings).filter(|_| !self.has_own_drawings(drawing));
        let text = &drawing.state.text;
        let glyph_width = MIN_GLYPH_WIDTH * (text.size * text.horizontal_scale).abs();
        let is_measured = extent.as_ref().is_some_and(|extent| {
            drawing.offset.is_some() && extent.range.1 - extent.range.0 >= glyph_width * extent.glyphs as f32
        });
        let bounds = drawing.text_bounds(extent.as_ref(), CAPITAL_EDGES);
        let is_added =
            is_measured && self.has_letters(drawing, strings) && self.covered.add(position, bounds);
        drawing.offset = drawing.offset.zip(extent).map(|(offset, extent)| offset + extent.end);
        if is_added { Visibility::Blank } else { Visibility::Seen }
    }

    /// Paints text that may be a background: symbols such as circles, and glyphs with drawings of their own.
    fn paint_symbols(&mut self, drawing: &Drawing, strings: &[PdfValue]) {
        let edges = if self.has_own_drawings(drawing) {
            let font_bounds = self.document.font_bounds(drawing.scope, &drawing.state.text.font);
            let edges = font_bounds.map(|bounds| (bounds.lly.min(SYMBOL_EDGES.0), bounds.ury));
            edges.map_or(SYMBOL_EDGES, |(lower, upper)| (lower, upper.max(SYMBOL_EDGES.1)))
        } else if self.is_symbolic(drawing, strings) {
            SYMBOL_EDGES
        } else {
            return;
        };
        let extent = self.extent(drawing, strings);
        let bounds = drawing.text_bounds(extent.as_ref(), edges);
        self.canvas.paint(bounds);
        self.covered.uncover(bounds);
    }

    /// Returns true for text without letters, digits and punctuation that is not blank.
    fn is_symbolic(&self, drawing: &Drawing, strings: &[PdfValue]) -> bool {
        let mut is_blank = true;
        for string in strings {
            let PdfValue::Str(bytes) = string else { continue };
            let decoded = self.document.decode_text(drawing.scope, &drawing.state.text.font, bytes);
            if decoded.text.contains(is_text_character) {
                return false;
            }
            // A glyph may have no character.
            let is_space = decoded.text.trim().is_empty() && !decoded.text.is_empty();
            is_blank &= is_space || bytes.is_empty();
        }
        !is_blank
    }

    /// Returns the extent of strings with adjustments between them; `None` if the widths of glyphs are unknown.
    fn extent(&self, drawing: &Drawing, strings: &[PdfValue]) -> Option<TextExtent> {
        let text = &drawing.state.text;
        let mut extent = TextExtent::default();
        let mut advance = |distance: f32| {
            extent.end += distance * text.horizontal_scale;
            extent.range = (extent.range.0.min(extent.end), extent.range.1.max(extent.end));
        };
        let mut glyph_count = 0;
        for string in strings {
            if let Some(adjustment) = get_number_from_value(string) {
                advance(-adjustment / 1_000.0 * text.size);
            }
            let PdfValue::Str(bytes) = string else { continue };
            for glyph in self.document.glyph_advances(drawing.scope, &text.font, bytes)? {
                if glyph.vertical.is_some() {
                    return None;
                }
                let word_spacing = if glyph.is_word_space { text.word_spacing } else { 0.0 };
                advance(glyph.width / 1_000.0 * text.size + text.character_spacing + word_spacing);
                glyph_count += 1;
            }
        }
        Some(TextExtent { glyphs: glyph_count, ..extent })
    }

    fn has_letters(&self, drawing: &Drawing, strings: &[PdfValue]) -> bool {
        strings.iter().any(|string| match string {
            PdfValue::Str(bytes) => {
                let decoded = self.document.decode_text(drawing.scope, &drawing.state.text.font, bytes);
                decoded.text.contains(|character: char| !character.is_whitespace())
            }
            _ => false,
        })
    }

    /// Returns true for a font whose glyphs may have sizes and colors of their own.
    fn has_own_drawings(&mut self, drawing: &Drawing) -> bool {
        let font = &drawing.state.text.font;
        let document = self.document;
        let key = (drawing.scope.form, Rc::clone(font));
        if self.own_drawings.len() >= MAX_FONTS && !self.own_drawings.contains_key(&key) {
            return true;
        }
        *self.own_drawings.entry(key).or_insert_with(|| document.type3_font(drawing.scope, font).is_some())
    }
}
