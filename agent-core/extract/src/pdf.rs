//! PDF documents.

mod canvas;
mod continued_tables;
mod covered_text;
mod drawing;
mod form;
mod layers;
mod ligatures;
mod shown_text;
mod superscripts;
mod unseen_text;
mod vertical_text;

use std::ops::ControlFlow;

use agent_retrieval::document::TextFormat;
use agent_retrieval::extract::{ExtractError, ExtractedDocument};
use unpdf::render::{BlockRenderer, CleanupPipeline, CleanupPreset};
use unpdf::{
    Block, ErrorKind, FormField, InlineContent, Page, PageSelection, PageStreamOptions, Paragraph,
    ParseEvent, ParseOptions, PdfParser, RenderOptions, TextRun,
};

use self::continued_tables::LastTable;
use self::form::shown_fields;
use self::ligatures::may_have_ligatures;
use self::shown_text::ShownText;
use self::superscripts::raise_in_page;
use self::unseen_text::UnseenText;
use crate::escapes::{escape_cell, escape_line};
use crate::limits::ExtractionLimits;
use crate::text_builder::TextBuilder;

/// Share of a page that pictures cover in a scan.
const SCAN_COVERAGE: f32 = 0.5;
/// Minimum number of filled shapes on a page whose text counts as drawn by outlines.
const MIN_OUTLINES: u32 = 100;
/// Minimum number of lines and curves for each character of text that counts as drawn by strokes.
const MIN_STROKES: usize = 2;
/// Minimum number of invisible characters for each painted one on a scan, which may have a stamp or a signature.
const MIN_INVISIBLE_SHARE: u32 = 8;

pub(crate) fn extract(bytes: &[u8], limits: &ExtractionLimits) -> Result<ExtractedDocument, ExtractError> {
    let options = ParseOptions::new().sequential();
    let parser = PdfParser::from_bytes_with_options(bytes, options).map_err(|error| convert_error(&error))?;
    let mut reader = PageReader::new(bytes, limits);
    let mut failure = None;
    parser
        .for_each_page(stream_options(), |event| match reader.accept(event) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        })
        .map_err(|error| convert_error(&error))?;
    match failure {
        Some(error) => Err(error),
        None => reader.finish(),
    }
}

/// Returns options that start no threads: their stacks count as memory, and the process has one document to read.
fn stream_options() -> PageStreamOptions {
    let ParseOptions { error_mode, min_image_dimension, suppress_low_confidence_ocr, .. } =
        ParseOptions::new();
    PageStreamOptions {
        error_mode,
        extract_text: true,
        extract_resources: false,
        min_image_dimension,
        pages: PageSelection::All,
        password: None,
        parallel: false,
        suppress_low_confidence_ocr,
        window_size: 1,
        emit_progress_every: u32::MAX,
    }
}

/// Converts an error, without the text of the document that its message may contain.
fn convert_error(error: &unpdf::Error) -> ExtractError {
    match error.kind() {
        ErrorKind::Encrypted | ErrorKind::InvalidPassword => ExtractError::Encrypted,
        ErrorKind::UnknownFormat => ExtractError::Malformed("it has no PDF signature".to_owned()),
        ErrorKind::MissingObject => {
            ExtractError::Malformed("an object of the PDF document is missing".to_owned())
        }
        _ => ExtractError::Malformed("not a valid PDF document".to_owned()),
    }
}

/// Collects the text of the pages.
struct PageReader<'b> {
    bytes: &'b [u8],
    /// The document without invisible text, if a page may have such text.
    shown: Option<ShownText<'b>>,
    builder: TextBuilder,
    max_pages: u32,
    blocks: BlockRenderer,
    cleanup: CleanupPipeline,
    /// The table at the end of the page before, if that was read with its tables.
    last_table: Option<LastTable>,
    title: Option<String>,
    form_fields: Vec<FormField>,
    needs_ocr: Vec<u32>,
    failed_pages: u32,
}

impl<'b> PageReader<'b> {
    fn new(bytes: &'b [u8], limits: &ExtractionLimits) -> Self {
        let options = RenderOptions { escape_special_chars: false, cleanup: None, ..RenderOptions::new() };
        Self {
            bytes,
            shown: None,
            builder: TextBuilder::new(limits),
            max_pages: limits.max_pages,
            blocks: BlockRenderer::new(options),
            cleanup: CleanupPipeline::from_preset(CleanupPreset::Standard),
            last_table: None,
            title: None,
            form_fields: Vec::new(),
            needs_ocr: Vec::new(),
            failed_pages: 0,
        }
    }

    fn accept(&mut self, event: ParseEvent) -> Result<(), ExtractError> {
        match event {
            ParseEvent::DocumentStart { metadata, page_count, form_fields, .. } => {
                if page_count > self.max_pages {
                    return Err(ExtractError::LimitExceeded(format!("more than {} pages", self.max_pages)));
                }
                self.title = metadata.title;
                self.form_fields = form_fields;
                Ok(())
            }
            ParseEvent::PageParsed(mut page) => {
                raise_in_page(&mut page);
                escape_cells(&mut page);
                self.push_page(&mut page)
            }
            ParseEvent::PageFailed { page, .. } => {
                self.failed_pages += 1;
                self.last_table = None;
                self.begin_page(page)
            }
            ParseEvent::DocumentEnd { .. } => self.push_form_fields(),
            ParseEvent::Progress { .. } => Ok(()),
        }
    }

    /// Begins the page with this number. Pages before it that could not be read become empty pages.
    fn begin_page(&mut self, number: u32) -> Result<(), ExtractError> {
        while self.builder.pages() < number {
            self.builder.begin_page()?;
        }
        Ok(())
    }

    fn push_page(&mut self, page: &mut Page) -> Result<(), ExtractError> {
        self.begin_page(page.number)?;
        let markdown = self.shown_text(page);
        self.builder.push(&self.cleanup.process(&markdown))?;
        let has_text = self.builder.page_text().contains(char::is_alphanumeric);
        if needs_ocr(page, has_text) {
            self.needs_ocr.push(page.number);
        }
        Ok(())
    }

    /// Returns the text of a page with its tables, below the header row of the table that goes on from the page before.
    fn render(&mut self, page: &mut Page, last_table: Option<LastTable>) -> String {
        if let Some(table) = last_table
            && let Some(position) = table.place_on(page)
        {
            let shown = self.shown_document();
            let bold_words = shown.and_then(|shown| shown.bold_words(page.number).ok()).unwrap_or_default();
            table.continue_at(position, page, &bold_words);
        }
        self.last_table = LastTable::of(page);
        escape_paragraphs(page);
        let mut markdown = String::new();
        let mut previous = None;
        for block in page.elements.iter().filter(|block| !matches!(block, Block::Image { .. })) {
            markdown.push_str(&self.blocks.render_block_after(previous, block));
            previous = Some(block);
        }
        markdown
    }

    /// Returns the visible text of a page; empty if the page has invisible text that cannot be separated.
    fn shown_text(&mut self, page: &mut Page) -> String {
        let last_table = self.last_table.take();
        if has_tables(page) && may_have_ligatures(page) {
            let shown = self.shown_document();
            let words = shown.and_then(|shown| shown.ligature_words(page.number).ok()).unwrap_or_default();
            words.put_in_order(page);
        }
        let has_hidden_text = has_hidden_text(page);
        // Text behind the picture of a scan may be what was recognized in it.
        let may_be_unseen = page.text_op_count > 0 && page.image_coverage < SCAN_COVERAGE;
        let has_ligatures = !has_tables(page) && may_have_ligatures(page);
        if !has_hidden_text && !may_be_unseen && !has_ligatures {
            return self.render(page, last_table);
        }
        let unseen = match self.shown_document() {
            Some(shown) if may_be_unseen => shown.unseen_text(page.number),
            _ => UnseenText::default(),
        };
        let drops_invisible = has_hidden_text && !is_stroked(page, unseen.stroke_count());
        let has_unseen_text = drops_invisible || !unseen.is_empty();
        let is_vertical = self.shown.as_mut().is_some_and(|shown| shown.is_vertical(page.number));
        if !has_unseen_text && !has_ligatures && !is_vertical {
            return self.render(page, last_table);
        }
        let text =
            self.shown.as_mut().and_then(|shown| shown.page(page.number, unseen, drops_invisible).ok());
        match text {
            None if !has_unseen_text => self.render(page, last_table),
            text => text.unwrap_or_default(),
        }
    }

    /// Returns the document as it is read without text that is not seen.
    fn shown_document(&mut self) -> Option<&mut ShownText<'b>> {
        if self.shown.is_none() {
            self.shown = ShownText::load(self.bytes).ok();
        }
        self.shown.as_mut()
    }

    fn push_form_fields(&mut self) -> Result<(), ExtractError> {
        self.builder.end_paragraph();
        for field in shown_fields(self.bytes, std::mem::take(&mut self.form_fields)) {
            let value = field.display_value();
            if !value.trim().is_empty() {
                self.builder.push(&format!("{}: {value}\n", field.name))?;
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<ExtractedDocument, ExtractError> {
        if self.builder.pages() == self.failed_pages {
            return Err(ExtractError::Malformed("no page can be read".to_owned()));
        }
        let extraction = self.builder.finish(self.title.as_deref(), TextFormat::Markdown);
        Ok(ExtractedDocument { needs_ocr: self.needs_ocr, ..extraction })
    }
}

/// Escapes the texts of tables.
fn escape_cells(page: &mut Page) {
    let tables = page.elements.iter_mut().filter_map(|block| match block {
        Block::Table(table) => Some(table),
        _ => None,
    });
    let cells = tables.flat_map(|table| &mut table.rows).flat_map(|row| &mut row.cells);
    for content in cells.flat_map(|cell| &mut cell.content).flat_map(|paragraph| &mut paragraph.content) {
        if let InlineContent::Text(TextRun { text, .. }) | InlineContent::Link { text, .. } = content {
            escape_cell(text);
        }
    }
}

/// Escapes the lines of paragraphs that would be headings.
fn escape_paragraphs(page: &mut Page) {
    let paragraphs = page.elements.iter_mut().filter_map(|block| match block {
        Block::Paragraph(paragraph) => Some(paragraph),
        _ => None,
    });
    paragraphs.for_each(escape_lines);
}

fn escape_lines(paragraph: &mut Paragraph) {
    // Others begin with the marker of their kind.
    let mut begins_line = paragraph.style.heading_level.is_none() && paragraph.style.list_info.is_none();
    for content in &mut paragraph.content {
        match content {
            InlineContent::LineBreak => begins_line = true,
            InlineContent::Text(run) if begins_line => {
                escape_line(&mut run.text);
                begins_line = run.text.is_empty();
            }
            _ => begins_line = false,
        }
    }
}

fn has_tables(page: &Page) -> bool {
    page.elements.iter().any(|block| matches!(block, Block::Table(_)))
}

/// Returns true for a page with invisible text that is not the text of its picture or outlines: it is beside text that is
/// painted, or on a page that shows nothing.
fn has_hidden_text(page: &Page) -> bool {
    if page.invisible_text_chars == 0 {
        return false;
    }
    match page.painted_text_chars.saturating_sub(page.margin_text_chars) {
        0 => page.image_op_count == 0 && page.fill_op_count < MIN_OUTLINES,
        painted => {
            let is_scan = page.image_coverage >= SCAN_COVERAGE
                && page.invisible_text_chars / MIN_INVISIBLE_SHARE >= painted;
            !is_scan
        }
    }
}

/// Returns true for a page with invisible text only, which may be the text of letters that are drawn as strokes, as in technical
/// plans.
fn is_stroked(page: &Page, stroke_count: usize) -> bool {
    page.painted_text_chars <= page.margin_text_chars
        && stroke_count / MIN_STROKES >= page.invisible_text_chars as usize
}

/// Returns true for a page whose text is in pictures, outlines or fonts without characters; a page number beside a
/// scan is not text.
fn needs_ocr(page: &Page, has_text: bool) -> bool {
    if has_text {
        return page.image_coverage >= SCAN_COVERAGE
            && page.invisible_text_chars == 0
            && page.painted_text_chars <= page.margin_text_chars;
    }
    page.image_op_count > 0
        || page.ocr_text_suppressed
        || page.suppressed_text_runs > 0
        || page.fill_op_count >= MIN_OUTLINES
}
