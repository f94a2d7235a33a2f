//! Text of PDF pages without what is drawn invisibly: in the rendering modes 3 and 7 (ISO 32000-1, section 9.3.6).

use std::collections::BTreeMap;

use unpdf::parser::backend::{
    BackendFontInfo, ContentOp, DecodedRun, DecodedText, GlyphAdvance, PageBox, PageContent, PageId,
    PaintedXObject, PdfBackend, PdfMetadataRaw, RawBackend, RawOutlineItem, RawXObject, ResourceScope,
    get_number_from_value,
};
use unpdf::parser::{BlockType, LayoutAnalyzer, LinkAnnotations, TextBlock};

/// Rendering modes that paint nothing.
const INVISIBLE_MODES: [i64; 2] = [3, 7];

/// A document whose pages have no invisible text.
pub(super) struct ShownText {
    document: RawBackend,
}

impl ShownText {
    /// Reads a document.
    ///
    /// # Errors
    /// Those of the library.
    pub(super) fn load(bytes: &[u8]) -> unpdf::Result<Self> {
        Ok(Self { document: RawBackend::load_bytes(bytes)? })
    }

    /// Returns the text of a page as Markdown. Rows of tables are lines.
    ///
    /// # Errors
    /// Those of the library.
    pub(super) fn page(&self, number: u32) -> unpdf::Result<String> {
        let mut analyzer = LayoutAnalyzer::new(self);
        let blocks = analyzer.extract_page_blocks(number)?;
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
        _ => block.text(),
    }
}

/// Removes the operations that draw text while the rendering mode is one that paints nothing, and the forms that are drawn then,
/// whose text inherits the mode.
fn without_invisible_text(operations: Vec<ContentOp>) -> Vec<ContentOp> {
    let mut shown = Vec::with_capacity(operations.len());
    let (mut mode, mut saved_modes) = (0, Vec::new());
    for operation in operations {
        let is_invisible = INVISIBLE_MODES.contains(&mode);
        match operation.operator.as_str() {
            "q" => saved_modes.push(mode),
            "Q" => mode = saved_modes.pop().unwrap_or(mode),
            "Tr" => {
                let operand = operation.operands.first().and_then(get_number_from_value);
                mode = operand.map_or(mode, |operand| operand as i64);
            }
            "Tj" | "TJ" | "Do" if is_invisible => continue,
            // They move to the next line before they draw.
            "'" | "\"" if is_invisible => {
                shown.push(ContentOp::new("T*", Vec::new()));
                continue;
            }
            _ => {}
        }
        shown.push(operation);
    }
    shown
}

/// The document as it is read, but for the operations on its pages.
impl PdfBackend for ShownText {
    fn decode_content(&self, data: &[u8]) -> unpdf::Result<Vec<ContentOp>> {
        self.document.decode_content(data).map(without_invisible_text)
    }

    fn pages(&self) -> BTreeMap<u32, PageId> {
        self.document.pages()
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
        self.document.decode_text(scope, font_name, bytes)
    }

    fn decode_run(&self, scope: ResourceScope, font_name: &[u8], bytes: &[u8]) -> DecodedRun {
        self.document.decode_run(scope, font_name, bytes)
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
