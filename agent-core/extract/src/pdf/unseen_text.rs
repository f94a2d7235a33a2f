//! Text of PDF pages that is drawn, but not seen: in white where nothing is painted on the white page, transparent, of a point or
//! less, or in a layer that is switched off.
//!
//! The operations of a page and of its forms are followed as a viewer does. Where it is not certain that text is not seen, it
//! counts as seen: in colors of unknown spaces, with blend modes, in fonts with their own drawings, and wherever something that is
//! not known to be white was painted before, even if it was painted over.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use unpdf::parser::backend::{
    ContentOp, ExtGState, ObjectId, PageId, PaintedXObject, PdfBackend, PdfValue, RawBackend, ResourceScope,
    get_number_from_value,
};

use super::canvas::{Bounds, Canvas, Matrix};
use super::drawing::{
    ColorSpace, Drawing, DrawnObject, GraphicsState, Ink, TextExtent, is_writing, line_move, numbers,
    strings_of,
};
use super::layers::Layers;

/// Size of text in points up to which it is not read.
const MAX_HIDDEN_SIZE: f32 = 1.0;
/// Operations of a page that are followed.
const MAX_OPERATIONS: usize = 2_000_000;
/// Saved graphics states of a content stream.
const MAX_SAVED_STATES: usize = 512;
/// Forms that are drawn within one another.
const MAX_NESTED_FORMS: usize = 16;
/// Lower and upper edge of small letters, for a font of size 1.
const LETTER_EDGES: (f32, f32) = (0.1, 0.5);
/// Lower and upper edge of symbols, for a font of size 1.
const SYMBOL_EDGES: (f32, f32) = (-0.2, 1.0);
/// Fonts of a page whose glyphs are read. Those of any further font may have drawings of their own.
const MAX_FONTS: usize = 256;

/// The operations that draw text which is not seen, by their positions in the content streams of a page.
#[derive(Debug, Default)]
pub(super) struct UnseenText {
    positions: HashMap<Vec<u8>, BTreeSet<usize>>,
    stroke_count: usize,
    has_layers: bool,
}

impl UnseenText {
    /// Returns the unseen text of a page of a document with layers, if they are known. A page that cannot be followed has none.
    pub(super) fn find(document: &RawBackend, page: PageId, layers: Option<&Layers>) -> Self {
        let unseen = Self::follow(document, page, layers, false);
        // Few pages have text for which it matters what symbols paint.
        if unseen.is_empty() { unseen } else { Self::follow(document, page, layers, true) }
    }

    fn follow(document: &RawBackend, page: PageId, layers: Option<&Layers>, paints_symbols: bool) -> Self {
        let mut walk = PageWalk {
            document,
            layers,
            has_layers: false,
            page,
            canvas: Canvas::new(document.page_box(page)),
            streams: Vec::new(),
            indexes: HashMap::new(),
            objects: HashMap::new(),
            spaces: HashMap::new(),
            parameters: HashMap::new(),
            forms: Vec::new(),
            own_drawings: HashMap::new(),
            paints_symbols,
            stroke_count: 0,
            remaining_operations: MAX_OPERATIONS,
        };
        let content = document.page_content(page).ok();
        let stream = content.and_then(|content| walk.stream(content));
        match stream.and_then(|stream| walk.draw(stream, None, GraphicsState::default())) {
            Some(()) => walk.finish(),
            None => Self::default(),
        }
    }

    /// Returns the number of lines and curves that the page strokes.
    pub(super) fn stroke_count(&self) -> usize {
        self.stroke_count
    }

    /// Returns true for a page with content that is part of layers.
    pub(super) fn has_layers(&self) -> bool {
        self.has_layers
    }

    /// Returns true if all text is seen.
    pub(super) fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// Removes the operations that draw such text from those of a content stream.
    pub(super) fn remove(&self, content: &[u8], operations: Vec<ContentOp>) -> Vec<ContentOp> {
        let Some(positions) = self.positions.get(content) else { return operations };
        let keep = |(position, operation): (usize, ContentOp)| match positions.contains(&position) {
            true => line_move(&operation),
            false => Some(operation),
        };
        operations.into_iter().enumerate().filter_map(keep).collect()
    }
}

/// Visibility of what an operation draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Visibility {
    /// The operation draws no text.
    Blank,
    Unseen,
    /// The text is seen at least once.
    Seen,
}

/// A content stream of a page or form.
struct ContentStream {
    operations: Rc<[ContentOp]>,
    visibility: Vec<Visibility>,
}

/// Name of a resource, and the form that has it.
type ResourceName = (Option<ObjectId>, Vec<u8>);

/// The drawing of a page.
struct PageWalk<'d> {
    document: &'d RawBackend,
    layers: Option<&'d Layers>,
    /// True if content that is part of a layer was drawn.
    has_layers: bool,
    page: PageId,
    canvas: Canvas,
    streams: Vec<ContentStream>,
    /// Positions of the content streams among them.
    indexes: HashMap<Vec<u8>, usize>,
    /// Objects, spaces of colors and parameters of the graphics state, which are read once however often they are named.
    objects: HashMap<ResourceName, DrawnObject>,
    spaces: HashMap<ResourceName, Option<ColorSpace>>,
    parameters: HashMap<ResourceName, Option<ExtGState>>,
    /// The forms that are being drawn.
    forms: Vec<ObjectId>,
    /// Fonts by the form that names them, with true for those that draw their glyphs by operations.
    own_drawings: HashMap<(Option<ObjectId>, Rc<[u8]>), bool>,
    /// True if text may be over symbols, which are drawn as text.
    paints_symbols: bool,
    /// Number of lines and curves that were stroked.
    stroke_count: usize,
    remaining_operations: usize,
}

impl PageWalk<'_> {
    /// Returns the position of a content stream; `None` if it cannot be read.
    fn stream(&mut self, content: Vec<u8>) -> Option<usize> {
        if let Some(&index) = self.indexes.get(&content) {
            return Some(index);
        }
        let operations: Rc<[ContentOp]> = self.document.decode_content(&content).ok()?.into();
        let visibility = vec![Visibility::Blank; operations.len()];
        self.indexes.insert(content, self.streams.len());
        self.streams.push(ContentStream { operations, visibility });
        Some(self.streams.len() - 1)
    }

    /// Draws the content stream at a position. Returns `None` if it exceeds a limit.
    fn draw(&mut self, stream: usize, form: Option<ObjectId>, state: GraphicsState) -> Option<()> {
        let operations = Rc::clone(&self.streams[stream].operations);
        self.remaining_operations = self.remaining_operations.checked_sub(operations.len())?;
        let mut drawing = Drawing::new(ResourceScope { page: self.page, form }, state);
        for (position, operation) in operations.iter().enumerate() {
            match operation.operator.as_str() {
                "q" if drawing.saved.len() >= MAX_SAVED_STATES => return None,
                "q" => drawing.saved.push(drawing.state.clone()),
                "Q" => {
                    if let Some(state) = drawing.saved.pop() {
                        drawing.state = state;
                    }
                }
                "Do" => self.draw_object(&drawing, operation)?,
                "Tj" | "TJ" | "'" | "\"" => {
                    let visibility = self.draw_text(&mut drawing, operation);
                    let known = &mut self.streams[stream].visibility[position];
                    if visibility == Visibility::Seen || *known == Visibility::Blank {
                        *known = visibility;
                    }
                }
                _ => self.apply(&mut drawing, operation),
            }
        }
        Some(())
    }

    /// Applies an operation that draws no text and no object.
    fn apply(&mut self, drawing: &mut Drawing, operation: &ContentOp) {
        if drawing.state.apply_text_parameter(operation)
            || drawing.move_text(operation)
            || drawing.extend_path(operation)
            || self.set_color(drawing, operation)
        {
            return;
        }
        match operation.operator.as_str() {
            "cm" => {
                if let Some(matrix) = numbers(operation) {
                    drawing.state.matrix = Matrix(matrix).then(drawing.state.matrix);
                }
            }
            "w" => {
                if let Some([width]) = numbers(operation) {
                    drawing.state.line_width = width;
                }
            }
            "gs" => self.apply_parameters(drawing, operation),
            "BMC" => drawing.begin_marked(false),
            "BDC" => {
                let is_hidden = self.begins_hidden_layer(drawing, operation);
                drawing.begin_marked(is_hidden);
            }
            "EMC" => drawing.end_marked(),
            "f" | "F" | "f*" | "B" | "B*" | "b" | "b*" | "S" | "s" | "n" => {
                self.paint_path(drawing, &operation.operator);
            }
            "BI" => self.paint_picture(drawing),
            "sh" => self.canvas.paint_all(),
            _ => {}
        }
    }

    /// Applies an operation that sets a color or its space. Returns false for other operations.
    fn set_color(&mut self, drawing: &mut Drawing, operation: &ContentOp) -> bool {
        let (document, scope) = (self.document, drawing.scope);
        let operator = operation.operator.as_str();
        let is_fill = operator.starts_with(|character: char| character.is_ascii_lowercase());
        let ink = if is_fill { &mut drawing.state.fill } else { &mut drawing.state.stroke };
        match operator {
            "g" | "G" => ink.set_color(Some(ColorSpace::Gray), operation),
            "rg" | "RG" => ink.set_color(Some(ColorSpace::Rgb), operation),
            "k" | "K" => ink.set_color(Some(ColorSpace::Cmyk), operation),
            "sc" | "scn" | "SC" | "SCN" => ink.set_color(ink.space, operation),
            "cs" | "CS" => {
                // The first color of each of the spaces is black.
                ink.is_white = false;
                ink.space = match operation.operands.first() {
                    Some(PdfValue::Name(name)) => {
                        let space = self.spaces.entry((scope.form, name.clone()));
                        *space.or_insert_with(|| ColorSpace::named(document, scope, name))
                    }
                    _ => None,
                };
            }
            _ => return false,
        }
        true
    }

    /// Applies a dictionary of parameters of the graphics state.
    fn apply_parameters(&mut self, drawing: &mut Drawing, operation: &ContentOp) {
        let Some(PdfValue::Name(name)) = operation.operands.first() else { return };
        let (document, scope) = (self.document, drawing.scope);
        let parameters = self.parameters.entry((scope.form, name.clone())).or_insert_with(|| {
            // A mask has the content of a form.
            document.ext_gstate(scope, name).map(|found| ExtGState { soft_mask: None, ..found })
        });
        if let Some(parameters) = parameters {
            drawing.state.apply_parameters(parameters);
        }
    }

    /// Returns true for the begin of marked content that is part of a layer that is switched off.
    fn begins_hidden_layer(&mut self, drawing: &Drawing, operation: &ContentOp) -> bool {
        let [PdfValue::Name(tag), PdfValue::Name(name)] = operation.operands.as_slice() else { return false };
        if tag != b"OC" {
            return false;
        }
        self.has_layers = true;
        self.layers.is_some_and(|layers| layers.hides(drawing.scope, name))
    }

    /// Paints the path and begins another one.
    fn paint_path(&mut self, drawing: &mut Drawing, operator: &str) {
        if matches!(operator, "s" | "b" | "b*") {
            drawing.path.close();
        }
        let path = std::mem::take(&mut drawing.path);
        let state = &drawing.state;
        let is_visible = |ink: Ink| !ink.is_white || state.is_blended;
        if matches!(operator, "f" | "F" | "f*" | "B" | "B*" | "b" | "b*") && is_visible(state.fill) {
            path.shapes().iter().for_each(|&shape| self.canvas.paint(shape));
        }
        if matches!(operator, "B" | "B*" | "b" | "b*" | "S" | "s") && is_visible(state.stroke) {
            self.stroke_count += path.edge_count();
            let scale = state.matrix.horizontal_scale().max(state.matrix.vertical_scale());
            let border = (state.line_width * scale / 2.0).abs();
            path.edges().iter().for_each(|edge| self.canvas.paint(edge.with_border(border)));
        }
    }

    /// Paints a picture, which fills the unit square.
    fn paint_picture(&mut self, drawing: &Drawing) {
        self.canvas.paint(Bounds::of_rectangle((0.0, 0.0), (1.0, 1.0), drawing.state.matrix));
    }

    /// Draws a picture or form. Returns `None` if a limit is exceeded.
    fn draw_object(&mut self, drawing: &Drawing, operation: &ContentOp) -> Option<()> {
        let Some(PdfValue::Name(name)) = operation.operands.first() else { return Some(()) };
        if self.forms.len() >= MAX_NESTED_FORMS {
            self.canvas.paint_all();
            return Some(());
        }
        let key = (drawing.scope.form, name.clone());
        let object = match self.objects.get(&key) {
            Some(&object) => object,
            None => {
                let object = self.read_object(drawing.scope, name)?;
                self.objects.insert(key, object);
                object
            }
        };
        match object {
            DrawnObject::Form(id, matrix, Some(stream)) if !self.forms.contains(&id) => {
                let matrix = matrix.then(drawing.state.matrix);
                let is_hidden = drawing.is_hidden();
                let state = GraphicsState { matrix, is_hidden, ..drawing.state.clone() };
                self.forms.push(id);
                let outcome = self.draw(stream, Some(id), state);
                self.forms.pop();
                return outcome;
            }
            DrawnObject::Form(..) => self.canvas.paint_all(),
            DrawnObject::Picture => self.paint_picture(drawing),
            DrawnObject::Missing => {}
        }
        Some(())
    }

    /// Reads an object by its name. Returns `None` if a form cannot be followed.
    fn read_object(&mut self, scope: ResourceScope, name: &[u8]) -> Option<DrawnObject> {
        Some(match self.document.xobject(scope, name) {
            Some(PaintedXObject::Form(form)) => {
                let stream = match form.content {
                    Some(content) => Some(self.stream(content)?),
                    None => None,
                };
                DrawnObject::Form(form.id, Matrix(form.matrix), stream)
            }
            Some(PaintedXObject::Image | PaintedXObject::Other) => DrawnObject::Picture,
            None => DrawnObject::Missing,
        })
    }

    /// Draws the text of an operation and returns its visibility.
    fn draw_text(&mut self, drawing: &mut Drawing, operation: &ContentOp) -> Visibility {
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
            if self.paints_symbols && drawing.state.text_ink().is_some() {
                self.paint_symbols(drawing, strings);
            }
            drawing.offset = None;
            return Visibility::Seen;
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
        self.canvas.paint(drawing.text_bounds(extent.as_ref(), edges));
    }

    /// Returns true for text without letters, digits and punctuation that is not blank.
    fn is_symbolic(&self, drawing: &Drawing, strings: &[PdfValue]) -> bool {
        let mut is_blank = true;
        for string in strings {
            let PdfValue::Str(bytes) = string else { continue };
            let decoded = self.document.decode_text(drawing.scope, &drawing.state.text.font, bytes);
            if decoded.text.contains(is_writing) {
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

    fn finish(self) -> UnseenText {
        let mut positions = HashMap::new();
        for (content, index) in self.indexes {
            let visibility = self.streams[index].visibility.iter().enumerate();
            let unseen = visibility.filter(|(_, visibility)| **visibility == Visibility::Unseen);
            let unseen: BTreeSet<usize> = unseen.map(|(position, _)| position).collect();
            if !unseen.is_empty() {
                positions.insert(content, unseen);
            }
        }
        UnseenText { positions, stroke_count: self.stroke_count, has_layers: self.has_layers }
    }
}
