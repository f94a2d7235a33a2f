//! Text of PDF pages that is drawn, but not seen: in white where nothing is painted on the white page, transparent, of a point or
//! less, in a layer that is switched off, or under an opaque rectangle that is painted later.
//!
//! The operations of a page and of its forms are followed as a viewer does. Text counts as visible unless it is certainly
//! invisible: in colors of unknown spaces, with blend modes, in fonts with their own drawings, and wherever something that is
//! not known to be white was painted before, even if it was painted over. A rectangle covers text only if the page itself draws
//! it, in a known color, without a clip and outside of layers, and if no picture or drawing that may contain the text is
//! painted over it.

mod page_text;

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use unpdf::parser::backend::{
    ContentOp, ExtGState, ObjectId, PageId, PaintedXObject, PdfBackend, PdfValue, RawBackend, ResourceScope,
    SoftMaskEntry,
};

use super::canvas::{Bounds, Canvas, Matrix};
use super::covered_text::CoveredText;
use super::drawing::{ColorSpace, Drawing, DrawnObject, GraphicsState, Ink, line_move, numbers};
use super::layers::Layers;

/// Maximum number of operations of a page that are followed.
const MAX_OPERATIONS: usize = 2_000_000;
/// Maximum number of saved graphics states of a content stream.
const MAX_SAVED_STATES: usize = 512;
/// Maximum nesting depth of forms that are drawn within one another.
const MAX_NESTED_FORMS: usize = 16;

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
        let (unseen, may_be_covered) = Self::follow(document, page, layers, false);
        // Symbols and the lengths of texts matter on few pages, so they are examined only if needed.
        let is_known = unseen.is_empty() && !may_be_covered;
        if is_known { unseen } else { Self::follow(document, page, layers, true).0 }
    }

    /// Returns the unseen text by the first or second pass, and true if text may be covered.
    fn follow(
        document: &RawBackend,
        page: PageId,
        layers: Option<&Layers>,
        is_second_pass: bool,
    ) -> (Self, bool) {
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
            covered: CoveredText::default(),
            is_second_pass,
            stroke_count: 0,
            remaining_operations: MAX_OPERATIONS,
        };
        let content = document.page_content(page).ok();
        let stream = content.and_then(|content| walk.stream(content));
        match stream.and_then(|stream| walk.draw(stream, None, GraphicsState::default())) {
            Some(()) => walk.finish(),
            None => (Self::default(), false),
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

    /// Removes the operations that draw such text from a content stream.
    pub(super) fn remove(&self, content: &[u8], operations: Vec<ContentOp>) -> Vec<ContentOp> {
        let Some(positions) = self.positions.get(content) else { return operations };
        let keep = |(position, operation): (usize, ContentOp)| match positions.contains(&position) {
            true => line_move(&operation),
            false => Some(operation),
        };
        operations.into_iter().enumerate().filter_map(keep).collect()
    }
}

/// Visibility of the content that an operation draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Visibility {
    /// The operation draws no text.
    Blank,
    Unseen,
    /// The text is seen at least once.
    Seen,
}

impl Visibility {
    /// Merges the visibility of another execution of the operation: text counts as seen if it is seen once.
    fn merge(&mut self, other: Self) {
        if other == Self::Seen || *self == Self::Blank {
            *self = other;
        }
    }
}

/// A content stream of a page or form.
struct ContentStream {
    operations: Rc<[ContentOp]>,
    visibility: Vec<Visibility>,
}

/// Name of a resource, and the form that has it.
type ResourceName = (Option<ObjectId>, Vec<u8>);

/// Parameters of the graphics state without a mask, and whether they set one.
type StateParameters = (ExtGState, Option<bool>);

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
    parameters: HashMap<ResourceName, Option<StateParameters>>,
    /// The forms that are being drawn.
    forms: Vec<ObjectId>,
    /// Fonts by the form that names them, with true for those that draw their glyphs by operations.
    own_drawings: HashMap<(Option<ObjectId>, Rc<[u8]>), bool>,
    /// Text that is seen unless it is covered. The first pass knows where it begins, and the second one its size.
    covered: CoveredText,
    /// True if text may be over symbols, which are drawn as text, or covered.
    is_second_pass: bool,
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
                    let visibility = self.draw_text(&mut drawing, operation, (stream, position));
                    self.streams[stream].visibility[position].merge(visibility);
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
            "W" | "W*" => drawing.clips = true,
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
            "sh" => self.paint_all(),
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
            let found = document.ext_gstate(scope, name)?;
            let sets_mask = found.soft_mask.as_ref().map(|mask| matches!(mask, SoftMaskEntry::Mask(_)));
            // A mask has the content of a form.
            Some((ExtGState { soft_mask: None, ..found }, sets_mask))
        });
        match parameters {
            Some((parameters, sets_mask)) => drawing.state.apply_parameters(parameters, *sets_mask),
            None => drawing.state.apply_unknown_parameters(),
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
        let fills = matches!(operator, "f" | "F" | "f*" | "B" | "B*" | "b" | "b*");
        let strokes = matches!(operator, "B" | "B*" | "b" | "b*" | "S" | "s");
        match path.rectangle() {
            Some(rectangle) if fills && self.covers(drawing) => {
                self.covered.cover(rectangle.intersection(state.unclipped));
            }
            rectangle => {
                // Letters may be drawn as shapes or lines, and a pattern or a mask may have any shape.
                let fills_shape = fills && (rectangle.is_none() || !state.fills_evenly());
                if fills_shape || (strokes && path.has_slanted_edges()) {
                    self.covered.uncover(path.bounds());
                }
            }
        }
        if fills && is_visible(state.fill) {
            path.shapes().iter().for_each(|&shape| self.canvas.paint(shape));
        }
        if strokes && is_visible(state.stroke) {
            self.stroke_count += path.edge_count();
            let scale = state.matrix.horizontal_scale().max(state.matrix.vertical_scale());
            let border = (state.line_width * scale / 2.0).abs();
            path.edges().iter().for_each(|edge| self.canvas.paint(edge.with_border(border)));
        }
        if std::mem::take(&mut drawing.clips) {
            let clip = path.rectangle().unwrap_or(Bounds::NOWHERE);
            drawing.state.unclipped = drawing.state.unclipped.intersection(clip);
        }
    }

    /// Returns true if a filled rectangle hides everything behind it. A form or a layer may be hidden.
    fn covers(&self, drawing: &Drawing) -> bool {
        self.forms.is_empty() && !self.has_layers && drawing.state.fills_opaquely()
    }

    /// Paints a picture, which fills the unit square.
    fn paint_picture(&mut self, drawing: &Drawing) {
        let bounds = Bounds::of_rectangle((0.0, 0.0), (1.0, 1.0), drawing.state.matrix);
        self.canvas.paint(bounds);
        self.covered.uncover(bounds);
    }

    /// Paints content that may be anywhere on the page.
    fn paint_all(&mut self) {
        self.canvas.paint_all();
        self.covered.uncover(Bounds::EVERYWHERE);
    }

    /// Draws a picture or form. Returns `None` if a limit is exceeded.
    fn draw_object(&mut self, drawing: &Drawing, operation: &ContentOp) -> Option<()> {
        let Some(PdfValue::Name(name)) = operation.operands.first() else { return Some(()) };
        if self.forms.len() >= MAX_NESTED_FORMS {
            self.paint_all();
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
            DrawnObject::Form(..) => self.paint_all(),
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

    /// Returns the unseen text, and true if text may be covered.
    fn finish(mut self) -> (UnseenText, bool) {
        let may_be_covered = self.covered.has_covered();
        if self.is_second_pass {
            for ((stream, position), is_covered) in self.covered.into_positions() {
                let visibility = if is_covered { Visibility::Unseen } else { Visibility::Seen };
                self.streams[stream].visibility[position].merge(visibility);
            }
        }
        let mut positions = HashMap::new();
        for (content, index) in self.indexes {
            let visibility = self.streams[index].visibility.iter().enumerate();
            let unseen = visibility.filter(|(_, visibility)| **visibility == Visibility::Unseen);
            let unseen: BTreeSet<usize> = unseen.map(|(position, _)| position).collect();
            if !unseen.is_empty() {
                positions.insert(content, unseen);
            }
        }
        let unseen = UnseenText { positions, stroke_count: self.stroke_count, has_layers: self.has_layers };
        (unseen, may_be_covered)
    }
}
