//! State in which the operations of a content stream of a PDF document draw (ISO 32000-1, section 8.4).

use std::rc::Rc;

use unpdf::parser::backend::{
    BlendMode, ContentOp, ExtGState, ImageColorSpace, ObjectId, PdfBackend, PdfValue, RawBackend,
    ResourceScope, get_number_from_value,
};

use super::canvas::{Bounds, Matrix, Path, Point};

/// Maximum difference per component of two colors that a reader cannot distinguish, and maximum opacity at which nothing is
/// seen.
const MAX_COLOR_DIFFERENCE: f32 = 8.0 / 255.0;

/// Upper bound of the length of a line, in text space.
const MAX_LINE_LENGTH: f32 = 20_000.0;

/// A space of colors in which white is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColorSpace {
    Gray,
    Rgb,
    Cmyk,
}

impl ColorSpace {
    /// Returns a space by its name; `None` for one in which white is unknown.
    pub(super) fn named(document: &RawBackend, scope: ResourceScope, name: &[u8]) -> Option<Self> {
        match name {
            b"DeviceGray" => Some(Self::Gray),
            b"DeviceRGB" => Some(Self::Rgb),
            b"DeviceCMYK" => Some(Self::Cmyk),
            _ => match document.named_color_space(scope, name)? {
                ImageColorSpace::Gray => Some(Self::Gray),
                ImageColorSpace::Rgb => Some(Self::Rgb),
                ImageColorSpace::Cmyk => Some(Self::Cmyk),
                ImageColorSpace::Indexed { .. } | ImageColorSpace::Tint(_) => None,
            },
        }
    }

    fn is_white(self, components: &[f32]) -> bool {
        match (self, components.len()) {
            (Self::Gray, 1) | (Self::Rgb, 3) => {
                components.iter().all(|&component| component >= 1.0 - MAX_COLOR_DIFFERENCE)
            }
            (Self::Cmyk, 4) => components.iter().all(|&ink| ink <= MAX_COLOR_DIFFERENCE),
            _ => false,
        }
    }
}

/// A color with its opacity.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ink {
    /// The space of the color; `None` if it is unknown.
    pub(super) space: Option<ColorSpace>,
    pub(super) is_white: bool,
    pub(super) is_transparent: bool,
}

impl Ink {
    /// Sets the color by the operands of an operation.
    pub(super) fn set_color(&mut self, space: Option<ColorSpace>, operation: &ContentOp) {
        let components: Option<Vec<f32>> = operation.operands.iter().map(get_number_from_value).collect();
        self.space = space;
        self.is_white =
            matches!((space, components), (Some(space), Some(components)) if space.is_white(&components));
    }

    /// Returns the visible result of two inks on a white page.
    fn with(self, other: Self) -> Self {
        let is_faint = |ink: Self| ink.is_white || ink.is_transparent;
        Self {
            space: None,
            is_white: is_faint(self) && is_faint(other),
            is_transparent: self.is_transparent && other.is_transparent,
        }
    }
}

/// The state of text within the graphics state.
#[derive(Debug, Clone)]
pub(super) struct TextParameters {
    pub(super) font: Rc<[u8]>,
    pub(super) size: f32,
    pub(super) character_spacing: f32,
    pub(super) word_spacing: f32,
    pub(super) horizontal_scale: f32,
    pub(super) leading: f32,
    pub(super) rise: f32,
    pub(super) rendering_mode: f32,
}

/// The graphics state.
#[derive(Debug, Clone)]
pub(super) struct GraphicsState {
    pub(super) matrix: Matrix,
    pub(super) fill: Ink,
    pub(super) stroke: Ink,
    pub(super) is_blended: bool,
    /// True if fills may be translucent, by an opacity or a mask.
    pub(super) is_translucent: bool,
    pub(super) is_masked: bool,
    /// Area in which everything is painted. Content that is painted outside of it may be clipped.
    pub(super) unclipped: Bounds,
    /// True for a form in a layer that is switched off.
    pub(super) is_hidden: bool,
    pub(super) line_width: f32,
    pub(super) text: TextParameters,
}

impl Default for GraphicsState {
    fn default() -> Self {
        let text = TextParameters {
            font: Rc::from(&b""[..]),
            // Content must select a font before it draws text.
            size: 12.0,
            character_spacing: 0.0,
            word_spacing: 0.0,
            horizontal_scale: 1.0,
            leading: 0.0,
            rise: 0.0,
            rendering_mode: 0.0,
        };
        let black = Ink { space: Some(ColorSpace::Gray), is_white: false, is_transparent: false };
        Self {
            matrix: Matrix::IDENTITY,
            fill: black,
            stroke: black,
            is_blended: false,
            is_translucent: false,
            is_masked: false,
            unclipped: Bounds::EVERYWHERE,
            is_hidden: false,
            line_width: 1.0,
            text,
        }
    }
}

impl GraphicsState {
    /// Applies an operation that sets a parameter of text. Returns false for other operations.
    pub(super) fn apply_text_parameter(&mut self, operation: &ContentOp) -> bool {
        let text = &mut self.text;
        let parameter = match operation.operator.as_str() {
            "Tf" => {
                if let Some(PdfValue::Name(name)) = operation.operands.first() {
                    text.font = Rc::from(name.as_slice());
                }
                let size = operation.operands.get(1).and_then(get_number_from_value);
                text.size = size.unwrap_or(text.size);
                return true;
            }
            "Tc" => &mut text.character_spacing,
            "Tw" => &mut text.word_spacing,
            "Tz" => &mut text.horizontal_scale,
            "TL" => &mut text.leading,
            "Ts" => &mut text.rise,
            "Tr" => &mut text.rendering_mode,
            _ => return false,
        };
        if let Some([number]) = numbers(operation) {
            *parameter = if operation.operator == "Tz" { number / 100.0 } else { number };
        }
        true
    }

    /// Applies a dictionary of parameters without its mask, and whether it sets one.
    pub(super) fn apply_parameters(&mut self, parameters: &ExtGState, sets_mask: Option<bool>) {
        self.is_masked = sets_mask.unwrap_or(self.is_masked);
        self.is_translucent =
            parameters.fill_alpha.map_or(self.is_translucent, |opacity| opacity.is_nan() || opacity < 1.0);
        if let Some(mode) = parameters.blend_mode {
            self.is_blended = mode != BlendMode::Normal;
        }
        for (ink, opacity) in
            [(&mut self.fill, parameters.fill_alpha), (&mut self.stroke, parameters.stroke_alpha)]
        {
            ink.is_transparent =
                opacity.map_or(ink.is_transparent, |opacity| opacity <= MAX_COLOR_DIFFERENCE);
        }
        self.line_width = parameters.line_width.unwrap_or(self.line_width);
    }

    /// Applies a dictionary of parameters that cannot be read.
    pub(super) fn apply_unknown_parameters(&mut self) {
        (self.is_masked, self.is_translucent) = (true, true);
    }

    /// Returns true if a fill hides everything behind it.
    pub(super) fn fills_opaquely(&self) -> bool {
        let is_known = matches!(self.fill.space, Some(ColorSpace::Gray | ColorSpace::Rgb));
        is_known && !self.is_blended && !self.is_translucent && !self.is_masked
    }

    /// Returns true if a fill certainly has the same color in all of its path.
    pub(super) fn fills_evenly(&self) -> bool {
        self.fill.space.is_some() && !self.is_masked
    }

    /// Returns the ink of text; `None` if it is not painted, or is a clip for later paint.
    pub(super) fn text_ink(&self) -> Option<Ink> {
        match self.text.rendering_mode as i64 {
            0 => Some(self.fill),
            1 => Some(self.stroke),
            2 => Some(self.fill.with(self.stroke)),
            _ => None,
        }
    }
}

/// An object that a content stream draws by its name.
#[derive(Debug, Clone, Copy)]
pub(super) enum DrawnObject {
    /// A form with its matrix and the position of its content stream; `None` if that cannot be read.
    Form(ObjectId, Matrix, Option<usize>),
    Picture,
    /// A name without an object, for which viewers draw nothing.
    Missing,
}

/// Text of an operation.
#[derive(Debug, Default)]
pub(super) struct TextExtent {
    /// The lowest and the highest distance from its beginning, in text space.
    pub(super) range: (f32, f32),
    /// The distance of its end.
    pub(super) end: f32,
    pub(super) glyphs: usize,
}

/// State of the drawing of a content stream.
pub(super) struct Drawing {
    pub(super) scope: ResourceScope,
    pub(super) state: GraphicsState,
    pub(super) saved: Vec<GraphicsState>,
    /// The marked content that is open, with true for layers that are switched off.
    marked: Vec<bool>,
    /// Number of the entries of `marked` that are true.
    hidden_marks: usize,
    pub(super) path: Path,
    /// True if the path is a clip for later paint.
    pub(super) clips: bool,
    /// The text line matrix.
    pub(super) line: Matrix,
    /// Distance from the beginning of the line in text space; `None` if it is unknown.
    pub(super) offset: Option<f32>,
}

impl Drawing {
    /// Begins a content stream in a graphics state.
    pub(super) fn new(scope: ResourceScope, state: GraphicsState) -> Self {
        Self {
            scope,
            state,
            saved: Vec::new(),
            marked: Vec::new(),
            hidden_marks: 0,
            path: Path::default(),
            clips: false,
            line: Matrix::IDENTITY,
            offset: Some(0.0),
        }
    }

    /// Returns true if the content is part of a layer that is switched off.
    pub(super) fn is_hidden(&self) -> bool {
        self.state.is_hidden || self.hidden_marks > 0
    }

    /// Begins marked content, which may be part of a layer that is switched off.
    pub(super) fn begin_marked(&mut self, is_hidden: bool) {
        self.marked.push(is_hidden);
        self.hidden_marks += usize::from(is_hidden);
    }

    /// Ends the marked content that started last.
    pub(super) fn end_marked(&mut self) {
        let is_hidden = self.marked.pop().unwrap_or_default();
        self.hidden_marks -= usize::from(is_hidden);
    }

    /// Moves to a line by the distance of its beginning from that of the current line.
    pub(super) fn next_line(&mut self, x: f32, y: f32) {
        self.line = Matrix::translation(x, y).then(self.line);
        self.offset = Some(0.0);
    }

    /// Returns the area of text at the current position: its width by the extent, if that is known, and its height by the lower
    /// and upper edge for a font of size 1.
    pub(super) fn text_bounds(&self, extent: Option<&TextExtent>, (lower, upper): (f32, f32)) -> Bounds {
        let text = &self.state.text;
        let (left, right) = match (self.offset, extent) {
            (Some(offset), Some(extent)) => (offset + extent.range.0, offset + extent.range.1),
            _ => (-MAX_LINE_LENGTH, MAX_LINE_LENGTH),
        };
        let height = |edge: f32| text.rise + edge * text.size;
        let matrix = self.line.then(self.state.matrix);
        Bounds::of_rectangle((left, height(lower)), (right, height(upper)), matrix)
    }

    /// Returns the current position of text, or the beginning of its line if that is unknown.
    pub(super) fn text_origin(&self) -> Bounds {
        let matrix = self.line.then(self.state.matrix);
        Bounds::around([matrix.apply((self.offset.unwrap_or_default(), self.state.text.rise))])
    }

    /// Applies an operation that moves the position of text. Returns false for other operations.
    pub(super) fn move_text(&mut self, operation: &ContentOp) -> bool {
        match operation.operator.as_str() {
            "BT" => (self.line, self.offset) = (Matrix::IDENTITY, Some(0.0)),
            "Tm" => {
                if let Some(matrix) = numbers(operation) {
                    (self.line, self.offset) = (Matrix(matrix), Some(0.0));
                }
            }
            "Td" | "TD" => {
                if let Some([x, y]) = numbers(operation) {
                    if operation.operator == "TD" {
                        self.state.text.leading = -y;
                    }
                    self.next_line(x, y);
                }
            }
            "T*" => self.next_line(0.0, -self.state.text.leading),
            _ => return false,
        }
        true
    }

    /// Applies an operation that extends the path. Returns false for other operations.
    pub(super) fn extend_path(&mut self, operation: &ContentOp) -> bool {
        let matrix = self.state.matrix;
        let points = |count: usize| -> Option<Vec<Point>> {
            let operands = operation.operands.get(..2 * count)?;
            let values: Option<Vec<f32>> = operands.iter().map(get_number_from_value).collect();
            Some(values?.chunks_exact(2).map(|point| matrix.apply((point[0], point[1]))).collect())
        };
        let extension = match operation.operator.as_str() {
            "m" => {
                if let Some(points) = points(1) {
                    self.path.begin(points[0]);
                }
                return true;
            }
            "h" => {
                self.path.close();
                return true;
            }
            "re" => {
                if let Some([x, y, width, height]) = numbers(operation) {
                    self.path.add_rectangle((x, y), (x + width, y + height), matrix);
                }
                return true;
            }
            "l" => points(1),
            "c" => points(3),
            "v" | "y" => points(2),
            _ => return false,
        };
        if let Some(points) = extension {
            self.path.extend(&points);
        }
        true
    }
}

/// Returns the first operands of an operation, if they are numbers.
pub(super) fn numbers<const COUNT: usize>(operation: &ContentOp) -> Option<[f32; COUNT]> {
    let mut numbers = [0.0; COUNT];
    for (number, operand) in numbers.iter_mut().zip(operation.operands.get(..COUNT)?) {
        *number = get_number_from_value(operand)?;
    }
    Some(numbers)
}

/// Returns the strings of an operation that draws text, with the adjustments between them.
pub(super) fn strings_of(operation: &ContentOp) -> &[PdfValue] {
    match (operation.operator.as_str(), operation.operands.last()) {
        ("TJ", Some(PdfValue::Array(items))) => items.as_slice(),
        (_, Some(string)) => std::slice::from_ref(string),
        (_, None) => &[],
    }
}

/// Returns the move to the next line that an operation makes before it draws its text; `None` if it makes none.
pub(super) fn line_move(operation: &ContentOp) -> Option<ContentOp> {
    matches!(operation.operator.as_str(), "'" | "\"").then(|| ContentOp::new("T*", Vec::new()))
}

/// Returns true for a letter, a digit or punctuation. Other characters, such as circles, can be a background of text.
pub(super) fn is_text_character(character: char) -> bool {
    let is_dash_or_quote = matches!(character, '\u{2010}'..='\u{201f}');
    character.is_alphanumeric() || character.is_ascii_punctuation() || is_dash_or_quote
}
