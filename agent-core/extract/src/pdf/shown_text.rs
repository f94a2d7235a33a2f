//! Visible text of PDF pages. Left out is text in the rendering mode 3, which draws nothing, text in the mode 7 if nothing is
//! painted in its shape (ISO 32000-1, section 9.3.6), and [text that is drawn but not seen](super::unseen_text). Ligatures of
//! scripts from right to left are read in the order of their letters, and vertical columns in theirs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use unpdf::parser::backend::{
    BackendFontInfo, ContentOp, DecodedRun, DecodedText, GlyphAdvance, PageBox, PageContent, PageId,
    PaintedXObject, PdfBackend, PdfMetadataRaw, RawBackend, RawOutlineItem, RawXObject, ResourceScope,
    get_number_from_value,
};
use unpdf::parser::{BlockType, LayoutAnalyzer, LinkAnnotations, TextBlock};

use super::drawing::line_move;
use super::layers::Layers;
use super::ligatures::LigatureWords;
use super::superscripts::raise_in_block;
use super::unseen_text::UnseenText;
use super::vertical_text::text_of_columns;
use crate::escapes::escape_line;

/// Rendering mode in which text is not painted.
const INVISIBLE: i64 = 3;
/// Rendering mode in which text is not painted but is a clip for later paint, such as a gradient.
const CLIPPING: i64 = 7;

/// A document whose pages are read without text that is not seen.
pub(super) struct ShownText<'b> {
    bytes: &'b [u8],
    document: RawBackend,
    pages: BTreeMap<u32, PageId>,
    /// The layers of the document, once a page has some; `None` within if all are shown.
    layers: OnceLock<Option<Layers>>,
    /// The unseen text of the page that is being read.
    unseen: UnseenText,
    /// True if invisible text of the page is left out.
    drops_invisible: bool,
    /// True if the letters of ligatures stay as the library reads them.
    keeps_ligatures: bool,
}

impl<'b> ShownText<'b> {
    /// Reads a document.
    ///
    /// # Errors
    /// Errors of the library.
    pub(super) fn load(bytes: &'b [u8]) -> unpdf::Result<Self> {
        let document = RawBackend::load_bytes(bytes)?;
        let pages = document.pages();
        let unseen = UnseenText::default();
        let (drops_invisible, keeps_ligatures) = (false, false);
        Ok(Self { bytes, document, pages, layers: OnceLock::new(), unseen, drops_invisible, keeps_ligatures })
    }

    /// Returns the text that a page draws unseen.
    pub(super) fn unseen_text(&self, number: u32) -> UnseenText {
        let Some(&page) = self.pages.get(&number) else { return UnseenText::default() };
        let unseen = UnseenText::find(&self.document, page, None);
        if !unseen.has_layers() {
            return unseen;
        }
        match self.layers.get_or_init(|| Layers::load(self.bytes)) {
            Some(layers) => UnseenText::find(&self.document, page, Some(layers)),
            None => unseen,
        }
    }

    /// Returns true for a page with most of its text in vertical columns.
    pub(super) fn is_vertical(&mut self, number: u32) -> bool {
        (self.unseen, self.drops_invisible) = (UnseenText::default(), false);
        self.column_text(number).is_some()
    }

    /// Returns the text of a page in vertical columns; `None` for another page.
    fn column_text(&self, number: u32) -> Option<String> {
        let scope = ResourceScope::page(*self.pages.get(&number)?);
        let fonts = self.document.page_fonts(scope).ok()?;
        if !fonts.iter().any(|font| self.document.is_vertical_font(scope, &font.name)) {
            return None;
        }
        let analyzer = LayoutAnalyzer::new(self);
        let mut spans = analyzer.extract_page_spans(number).ok()?;
        analyzer.filter_spans_for_page(&mut spans, number);
        text_of_columns(spans)
    }

    /// Returns the words of a page, as the library reads them and in the order of their letters.
    ///
    /// # Errors
    /// Errors of the library.
    pub(super) fn ligature_words(&mut self, number: u32) -> unpdf::Result<LigatureWords> {
        (self.unseen, self.drops_invisible) = (UnseenText::default(), false);
        self.keeps_ligatures = true;
        let read = self.words(number);
        self.keeps_ligatures = false;
        Ok(LigatureWords::new(&read?, &self.words(number)?))
    }

    /// Returns the words of a page that are in bold type.
    ///
    /// # Errors
    /// Those of the library.
    pub(super) fn bold_words(&mut self, number: u32) -> unpdf::Result<BTreeSet<String>> {
        (self.unseen, self.drops_invisible) = (UnseenText::default(), false);
        let spans = LayoutAnalyzer::new(&*self).extract_page_spans(number)?;
        let bold = spans.iter().filter(|span| span.is_bold);
        Ok(bold.flat_map(|span| span.text.split_whitespace()).map(str::to_owned).collect())
    }

    fn words(&self, number: u32) -> unpdf::Result<Vec<String>> {
        let blocks = LayoutAnalyzer::new(self).extract_page_blocks(number)?;
        let words =
            |block: &TextBlock| block.text().split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        Ok(blocks.iter().flat_map(words).collect())
    }

    /// Returns the text of a page as Markdown, without unseen text and, if so chosen, without invisible text. Rows of tables are
    /// lines.
    ///
    /// # Errors
    /// Errors of the library.
    pub(super) fn page(
        &mut self,
        number: u32,
        unseen: UnseenText,
        drops_invisible: bool,
    ) -> unpdf::Result<String> {
        (self.unseen, self.drops_invisible) = (unseen, drops_invisible);
        if let Some(text) = self.column_text(number) {
            return Ok(text);
        }
        let mut analyzer = LayoutAnalyzer::new(&*self);
        let mut blocks = analyzer.extract_page_blocks(number)?;
        blocks.iter_mut().for_each(raise_in_block);
        Ok(blocks.iter().map(markdown).collect::<Vec<_>>().join("\n\n"))
    }
}

fn markdown(block: &TextBlock) -> String {
    match (block.block_type, block.list_item_number) {
        (BlockType::Heading, _) => {
            format!("{} {}", "#".repeat(usize::from(block.heading_level.clamp(1, 6))), block.text())
        }
        (BlockType::ListItem, Some(number)) => format!("{number}. {}", block.list_item_text()),
        (BlockType::ListItem, None) => format!("- {}", block.list_item_text()),
        _ => {
            let mut text = block.text();
            escape_line(&mut text);
            text
        }
    }
}

/// Removes the operations that draw text invisibly, and the form XObjects that are drawn in this mode, since their text inherits
/// it.
fn without_invisible_text(operations: Vec<ContentOp>) -> Vec<ContentOp> {
    let mut filter = TextFilter::default();
    for operation in operations {
        filter.push(operation);
    }
    filter.finish()
}

/// Filter of the operations of a content stream.
#[derive(Default)]
struct TextFilter {
    shown: Vec<ContentOp>,
    /// The rendering mode.
    mode: i64,
    /// Positions of clipping texts that have not been painted.
    unseen: BTreeSet<usize>,
    /// Operations of the open text object, whose clip begins at its end.
    pending: Vec<usize>,
    /// Operations whose clip is in force.
    clips: Vec<usize>,
    /// Saved rendering modes with the numbers of clips.
    saved: Vec<(i64, usize)>,
}

impl TextFilter {
    fn push(&mut self, operation: ContentOp) {
        match operation.operator.as_str() {
            "q" => self.saved.push((self.mode, self.clips.len())),
            "Q" => {
                if let Some((mode, clips)) = self.saved.pop() {
                    self.mode = mode;
                    self.clips.truncate(clips);
                }
            }
            "Tr" => {
                let operand = operation.operands.first().and_then(get_number_from_value);
                self.mode = operand.map_or(self.mode, |operand| operand as i64);
            }
            "ET" => self.clips.append(&mut self.pending),
            "Tj" | "TJ" | "'" | "\"" => match self.mode {
                INVISIBLE => {
                    self.shown.extend(line_move(&operation));
                    return;
                }
                CLIPPING => {
                    self.pending.push(self.shown.len());
                    self.unseen.insert(self.shown.len());
                }
                _ => self.paint(),
            },
            "f" | "F" | "f*" | "B" | "B*" | "b" | "b*" | "S" | "s" | "sh" | "BI" => self.paint(),
            "Do" => {
                self.paint();
                if matches!(self.mode, INVISIBLE | CLIPPING) {
                    return;
                }
            }
            _ => {}
        }
        self.shown.push(operation);
    }

    /// Marks the texts whose clip is in force as seen: something is painted in their shape.
    fn paint(&mut self) {
        if self.clips.is_empty() {
            return;
        }
        for text in self.clips.drain(..) {
            self.unseen.remove(&text);
        }
        self.saved.iter_mut().for_each(|(_, clips)| *clips = 0);
    }

    fn finish(self) -> Vec<ContentOp> {
        let Self { shown, unseen, .. } = self;
        let keep = |(position, operation): (usize, ContentOp)| match unseen.contains(&position) {
            true => line_move(&operation),
            false => Some(operation),
        };
        shown.into_iter().enumerate().filter_map(keep).collect()
    }
}

/// Reverses the letters of each glyph from right to left. The library reverses the letters of a line, whose glyphs are drawn from left
/// to right, and with them those of a glyph, which are in their order.
fn reverse_ligatures(run: &mut DecodedRun) {
    let DecodedRun { decoded, clusters, .. } = run;
    for cluster in clusters.iter().flatten() {
        let Some(letters) = decoded.text.get(cluster.text.clone()) else { continue };
        if letters.chars().all(is_right_to_left) {
            let reversed: String = letters.chars().rev().collect();
            decoded.text.replace_range(cluster.text.clone(), &reversed);
        }
    }
}

/// Returns true for letters and marks of the Hebrew, Arabic and other scripts from right to left.
fn is_right_to_left(character: char) -> bool {
    matches!(character, '\u{590}'..='\u{8ff}')
}

/// The document as it is read, without the operations on its pages.
impl PdfBackend for ShownText<'_> {
    fn decode_content(&self, data: &[u8]) -> unpdf::Result<Vec<ContentOp>> {
        let operations = self.unseen.remove(data, self.document.decode_content(data)?);
        Ok(if self.drops_invisible { without_invisible_text(operations) } else { operations })
    }

    fn pages(&self) -> BTreeMap<u32, PageId> {
        self.pages.clone()
    }

    fn page_fonts(&self, scope: ResourceScope) -> unpdf::Result<Vec<BackendFontInfo>> {
        self.document.page_fonts(scope)
    }

    fn page_content(&self, page: PageId) -> unpdf::Result<Vec<u8>> {
        self.document.page_content(page)
    }

    fn page_content_with_losses(&self, page: PageId) -> unpdf::Result<PageContent> {
        self.document.page_content_with_losses(page)
    }

    fn decode_text(&self, scope: ResourceScope, font_name: &[u8], bytes: &[u8]) -> DecodedText {
        let decoded = self.document.decode_text(scope, font_name, bytes);
        match !self.keeps_ligatures && decoded.text.contains(is_right_to_left) {
            true => self.decode_run(scope, font_name, bytes).decoded,
            false => decoded,
        }
    }

    fn decode_run(&self, scope: ResourceScope, font_name: &[u8], bytes: &[u8]) -> DecodedRun {
        let mut run = self.document.decode_run(scope, font_name, bytes);
        if !self.keeps_ligatures {
            reverse_ligatures(&mut run);
        }
        run
    }

    fn glyph_advances(
        &self,
        scope: ResourceScope,
        font_name: &[u8],
        bytes: &[u8],
    ) -> Option<Vec<GlyphAdvance>> {
        self.document.glyph_advances(scope, font_name, bytes)
    }

    fn is_vertical_font(&self, scope: ResourceScope, font_name: &[u8]) -> bool {
        self.document.is_vertical_font(scope, font_name)
    }

    fn metadata(&self) -> PdfMetadataRaw {
        self.document.metadata()
    }

    fn page_box(&self, page: PageId) -> PageBox {
        self.document.page_box(page)
    }

    fn crop_box(&self, page: PageId) -> PageBox {
        self.document.crop_box(page)
    }

    fn page_rotation(&self, page: PageId) -> u16 {
        self.document.page_rotation(page)
    }

    fn struck_out_areas(&self, page: PageId) -> Vec<PageBox> {
        self.document.struck_out_areas(page)
    }

    fn link_annotations(&self, page: PageId) -> LinkAnnotations {
        self.document.link_annotations(page)
    }

    fn outline(&self) -> unpdf::Result<Vec<RawOutlineItem>> {
        self.document.outline()
    }

    fn page_xobjects(&self, page: PageId) -> unpdf::Result<Vec<RawXObject>> {
        self.document.page_xobjects(page)
    }

    fn xobject(&self, scope: ResourceScope, name: &[u8]) -> Option<PaintedXObject> {
        self.document.xobject(scope, name)
    }
}
