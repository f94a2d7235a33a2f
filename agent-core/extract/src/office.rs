//! Word, Excel and PowerPoint documents in Office Open XML.

mod cell_style;
mod chart;
mod color;
mod diagram;
mod formula;
mod header_rows;
mod merged_cells;
mod number_format;
mod parts;
mod presentation;
mod relations;
mod slide_layout;
mod slide_text;
mod symbol;
#[cfg(test)]
mod tests;
mod theme;
mod word;
mod word_comments;
mod word_numbering;
mod word_properties;
mod word_styles;
mod workbook;
mod workbook_xml;
mod xml;

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::ControlFlow;

use agent_retrieval::document::TextFormat;
use agent_retrieval::extract::{ExtractError, ExtractedDocument};
use quick_xml::escape::unescape;
use undoc::docx::DocxParser;
use undoc::pptx::PptxParser;
use undoc::render::{RenderOptions, render_section_to_string};
use undoc::xlsx::XlsxParser;
use undoc::{Block, ErrorKind, FormatType, Paragraph, ParseEvent, Section, SectionStreamOptions, Table};

use self::header_rows::{join_header_rows, take_title};
use self::merged_cells::{MergedCells, split_merged_rows};
use self::parts::OfficeParts;
use crate::archive;
use crate::escapes::{escape_cell, escape_line};
use crate::limits::ExtractionLimits;
use crate::media_type::MediaType;
use crate::rows::push_rows;
use crate::sniff::is_encrypted_office;
use crate::text_builder::TextBuilder;

/// Blocks of a text document that are rendered at once: a copy of them is.
const BLOCKS_AT_ONCE: usize = 256;

pub(crate) fn extract(
    media_type: MediaType,
    bytes: &[u8],
    limits: &ExtractionLimits,
) -> Result<ExtractedDocument, ExtractError> {
    if is_encrypted_office(bytes) {
        return Err(ExtractError::Encrypted);
    }
    archive::check(bytes, limits)?;
    let mut reader = SectionReader::new(media_type, limits);
    let options = SectionStreamOptions { lenient: true, extract_resources: false };
    let mut failure = None;
    let receive = |event: ParseEvent<'_>| match reader.accept(event) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            failure = Some(error);
            ControlFlow::Break(())
        }
    };
    let bytes = shown_parts(media_type, bytes)?;
    let outcome = match media_type {
        MediaType::Xlsx => {
            XlsxParser::from_bytes(bytes).and_then(|mut parser| parser.for_each_section(options, receive))
        }
        MediaType::Pptx => {
            PptxParser::from_bytes(bytes).and_then(|mut parser| parser.for_each_section(options, receive))
        }
        _ => DocxParser::from_bytes(bytes).and_then(|mut parser| parser.for_each_section(options, receive)),
    };
    match (outcome, failure) {
        (_, Some(error)) => Err(error),
        (Err(error), None) => Err(convert_error(&error)),
        (Ok(()), None) => reader.finish(),
    }
}

/// Returns a document without content that its readers do not see, in the form that the libraries read.
fn shown_parts(media_type: MediaType, bytes: &[u8]) -> Result<Vec<u8>, ExtractError> {
    let mut parts = OfficeParts::open(bytes)?;
    match media_type {
        MediaType::Xlsx => workbook::rewrite_as_shown(&mut parts),
        MediaType::Pptx => presentation::rewrite_as_shown(&mut parts),
        _ => word::rewrite_as_shown(&mut parts),
    }
    Ok(parts.finish()?.unwrap_or_else(|| bytes.to_vec()))
}

/// Converts an error, without the text of the document that its message may contain.
fn convert_error(error: &undoc::Error) -> ExtractError {
    ExtractError::Malformed(match error.kind() {
        ErrorKind::Encrypted => return ExtractError::Encrypted,
        ErrorKind::ZipArchive => "not a valid zip archive".to_owned(),
        ErrorKind::MissingComponent => "a part of the Office document is missing".to_owned(),
        ErrorKind::XmlParse | ErrorKind::Encoding => {
            "a part of the Office document is not valid XML".to_owned()
        }
        _ => "not a valid Office document".to_owned(),
    })
}

/// Collects the text of the sections: those of a text document, slides or sheets.
struct SectionReader {
    builder: TextBuilder,
    format: FormatType,
    options: RenderOptions,
    title: Option<String>,
    needs_ocr: Vec<u32>,
    sections: u32,
    failed_sections: u32,
}

impl SectionReader {
    fn new(media_type: MediaType, limits: &ExtractionLimits) -> Self {
        Self {
            builder: TextBuilder::new(limits),
            format: match media_type {
                MediaType::Xlsx => FormatType::Xlsx,
                MediaType::Pptx => FormatType::Pptx,
                _ => FormatType::Docx,
            },
            options: RenderOptions {
                include_images: false,
                max_heading_level: 6,
                escape_special_chars: false,
                preserve_line_breaks: true,
                ..RenderOptions::new()
            },
            title: None,
            needs_ocr: Vec::new(),
            sections: 0,
            failed_sections: 0,
        }
    }

    fn accept(&mut self, event: ParseEvent<'_>) -> Result<(), ExtractError> {
        match event {
            ParseEvent::DocumentStart { metadata, .. } => {
                self.title = metadata.title.clone();
                Ok(())
            }
            ParseEvent::SectionParsed(section) => self.push_section(section),
            ParseEvent::SectionFailed { .. } => {
                self.failed_sections += 1;
                self.begin_section()
            }
            ParseEvent::DocumentEnd | ParseEvent::ResourceExtracted { .. } => Ok(()),
        }
    }

    fn begin_section(&mut self) -> Result<(), ExtractError> {
        self.sections += 1;
        if self.format == FormatType::Docx {
            // A section of a text document is not a page.
            self.builder.end_paragraph();
            return Ok(());
        }
        self.builder.begin_page()
    }

    fn push_section(&mut self, section: &Section) -> Result<(), ExtractError> {
        self.begin_section()?;
        match self.format {
            FormatType::Xlsx => self.push_sheet(section)?,
            _ => self.push_blocks(section)?,
        }
        let has_picture = section.content.iter().any(|block| matches!(block, Block::Image { .. }));
        let has_text = self.builder.page_text().contains(char::is_alphanumeric);
        if self.format == FormatType::Pptx && has_picture && !has_text {
            self.needs_ocr.push(self.builder.pages());
        }
        Ok(())
    }

    /// Appends a sheet, whose rows keep the names of their columns.
    fn push_sheet(&mut self, section: &Section) -> Result<(), ExtractError> {
        let (tables, content): (Vec<_>, Vec<_>) =
            section.content.iter().partition(|block| matches!(block, Block::Table(_)));
        let name = section.name.as_deref().unwrap_or_default();
        let name = unescape(name).unwrap_or(Cow::Borrowed(name));
        if !name.trim().is_empty() && !section.content.is_empty() {
            self.builder.push(&format!("## {name}\n\n"))?;
        }
        for block in tables {
            if let Block::Table(table) = block {
                push_rows(&mut self.builder, cells(table).map(Ok))?;
                self.builder.end_paragraph();
            }
        }
        let content = content.into_iter().cloned().collect();
        self.push_markdown(&Section { content, ..Section::new(0) })
    }

    /// Appends the blocks and notes of a slide or text document. The name of a slide is its number.
    fn push_blocks(&mut self, section: &Section) -> Result<(), ExtractError> {
        for blocks in section.content.chunks(BLOCKS_AT_ONCE) {
            let mut content = Vec::with_capacity(blocks.len());
            for block in blocks {
                let mut block = block.clone();
                if let Block::Table(table) = &mut block {
                    content.extend(take_title(table).map(Block::Paragraph));
                }
                content.push(block);
            }
            content.iter_mut().for_each(keep_lines_apart);
            self.push_markdown(&Section { content, ..Section::new(0) })?;
        }
        let notes = section.notes.clone();
        self.push_markdown(&Section { notes, ..Section::new(0) })
    }

    fn push_markdown(&mut self, section: &Section) -> Result<(), ExtractError> {
        // With another index than 0, a rule precedes the section's name.
        let markdown = render_section_to_string(section, 0, self.format, &self.options, &HashMap::new());
        self.builder.push(&markdown)
    }

    fn finish(self) -> Result<ExtractedDocument, ExtractError> {
        if self.sections == self.failed_sections {
            return Err(ExtractError::Malformed("no part of the Office document can be read".to_owned()));
        }
        let extraction = self.builder.finish(self.title.as_deref(), TextFormat::Markdown);
        Ok(ExtractedDocument { needs_ocr: self.needs_ocr, ..extraction })
    }
}

/// Keeps the lines of a block apart, since the renderer would join their words. Keeps numbered headings as headings, and the
/// cells of tables apart, each row with its own.
fn keep_lines_apart(block: &mut Block) {
    match block {
        Block::Paragraph(paragraph) => {
            keep_paragraph_lines_apart(paragraph);
            escape_lines(paragraph);
        }
        Block::Table(table) => {
            split_merged_rows(table);
            join_header_rows(table);
            let cells = table.rows.iter_mut().flat_map(|row| &mut row.cells);
            for paragraph in cells.flat_map(|cell| &mut cell.content) {
                keep_paragraph_lines_apart(paragraph);
                paragraph.runs.iter_mut().for_each(|run| escape_cell(&mut run.text));
            }
        }
        _ => {}
    }
}

/// Escapes the lines of a paragraph that would be headings.
fn escape_lines(paragraph: &mut Paragraph) {
    let mut begins_line = !paragraph.heading.is_heading();
    for run in &mut paragraph.runs {
        if begins_line && !run.style.code {
            escape_line(&mut run.text);
        }
        begins_line = run.line_break || (begins_line && run.text.is_empty());
    }
}

fn keep_paragraph_lines_apart(paragraph: &mut Paragraph) {
    let is_heading = paragraph.heading.is_heading();
    if is_heading {
        paragraph.list_info = None;
    }
    for run in &mut paragraph.runs {
        run.line_break |= std::mem::take(&mut run.page_break);
        // A heading is one line.
        if is_heading && std::mem::take(&mut run.line_break) {
            run.text.push(' ');
        }
    }
}

/// Returns the rows of a table with each cell at its column. A short value that is merged over several rows is that of each.
fn cells(table: &Table) -> impl Iterator<Item = Vec<String>> {
    let mut merged = MergedCells::new();
    table.rows.iter().zip(table.cell_columns()).map(move |(row, columns)| {
        let mut cells = vec![String::new(); columns.last().map_or(0, |last| last + 1)];
        for (column, value) in merged.continue_row() {
            if cells.len() <= column {
                cells.resize(column + 1, String::new());
            }
            cells[column] = value;
        }
        for (cell, column) in row.cells.iter().zip(columns) {
            let value = cell.plain_text();
            merged.add(cell, column, || value.clone());
            if let Some(slot) = cells.get_mut(column) {
                *slot = value;
            }
        }
        cells
    })
}
