use agent_retrieval::chunk::{Chunker, StructuralChunker};
use agent_retrieval::extract::ExtractedDocument;
use unpdf::{Table, TableCell, TableRow};

use super::{LastTable, are_numbers};
use crate::fixtures::PdfBuilder;
use crate::limits::ExtractionLimits;

const HEADER: [&str; 3] = ["Region", "Sold", "Returned"];
/// The left edges of the columns, and the right edge of the last.
const COLUMNS: [u32; 4] = [60, 200, 330, 460];

/// A page with a ruled table.
#[derive(Clone, Copy)]
struct TablePage<'t> {
    /// Lines of text with their distances from the lower edge.
    lines: &'t [(u32, &'t str)],
    columns: [u32; 4],
    first: Option<[&'t str; 3]>,
    /// Numbers of the rows below it.
    rows: (u32, u32),
}

impl TablePage<'_> {
    fn content(&self) -> String {
        let mut rows: Vec<[String; 3]> = Vec::new();
        rows.extend(self.first.map(|cells| cells.map(str::to_owned)));
        let row = |number: u32| [format!("Area {number}"), format!("{number}7"), format!("{number}3")];
        rows.extend((self.rows.0..self.rows.1).map(row));
        let lines: String = self.lines.iter().map(|(y, text)| shown("F1", 60, *y, text)).collect();
        lines + &ruled_table(self.columns, &rows, "F1")
    }
}

fn shown(font: &str, x: u32, y: u32, text: &str) -> String {
    format!("BT /{font} 9 Tf {x} {y} Td ({text}) Tj ET\n")
}

/// Returns the content of a page for a table whose first row has a separate font.
fn ruled_table(columns: [u32; 4], rows: &[[String; 3]], first_font: &str) -> String {
    let mut content = String::new();
    let mut y = 680;
    let mut font = first_font;
    for cells in rows {
        content.push_str(&format!("60 {} m {} {} l S\n", y + 20, columns[3], y + 20));
        for (x, cell) in columns.into_iter().zip(cells) {
            content.push_str(&shown(font, x + 4, y + 6, cell));
        }
        font = "F1";
        y -= 20;
    }
    content.push_str(&format!("60 {} m {} {} l S\n", y + 20, columns[3], y + 20));
    for x in columns {
        content.push_str(&format!("{x} 700 m {x} {} l S\n", y + 20));
    }
    content
}

fn extracted(pages: &[TablePage<'_>]) -> ExtractedDocument {
    let mut pdf = PdfBuilder::new();
    for page in pages {
        pdf.page(page.content().as_bytes(), "");
    }
    super::super::extract(&pdf.build(), &ExtractionLimits::default()).expect("a document")
}

fn count(extraction: &ExtractedDocument, row: &str) -> usize {
    extraction.document.text.matches(row).count()
}

#[test]
fn rows_on_the_next_page_are_below_the_header_of_the_table() {
    let head = |page: &'static str| [(760, "Annual report"), (40, page)];
    let (first, second, third) = (head("Page 1 of 3"), head("Page 2 of 3"), head("Page 3 of 3"));
    let page = TablePage { lines: &first, columns: COLUMNS, first: Some(HEADER), rows: (0, 8) };
    let pages = [
        page,
        TablePage { lines: &second, first: None, rows: (8, 16), ..page },
        TablePage { lines: &third, first: None, rows: (16, 24), ..page },
    ];
    let extraction = extracted(&pages);
    let text = &extraction.document.text;
    assert_eq!(count(&extraction, "| Region | Sold | Returned |\n| --- | --- | --- |\n"), 3, "{text}");
    for number in 0..24 {
        assert_eq!(count(&extraction, &format!("| Area {number} | {number}7 | {number}3 |")), 1, "{text}");
    }
    let chunks = StructuralChunker::new(120, 0).chunk(&extraction.document);
    let within: Vec<_> = chunks.iter().filter(|chunk| text[chunk.start..].starts_with("| Area")).collect();
    assert!(within.len() > 3, "{text}");
    for chunk in within {
        assert_eq!(chunk.heading.as_deref(), Some("| Region | Sold | Returned |"), "{chunk:?}");
    }
}

#[test]
fn a_header_that_the_document_repeats_is_not_doubled() {
    let page = TablePage { lines: &[], columns: COLUMNS, first: Some(HEADER), rows: (0, 8) };
    let pages =
        [page, TablePage { rows: (8, 16), ..page }, TablePage { first: None, rows: (16, 24), ..page }];
    let extraction = extracted(&pages);
    assert_eq!(count(&extraction, "| Region | Sold | Returned |"), 3, "{}", extraction.document.text);
}

#[test]
fn another_table_keeps_its_own_rows() {
    let page = TablePage { lines: &[], columns: COLUMNS, first: Some(HEADER), rows: (0, 8) };
    let next = TablePage { first: None, rows: (8, 16), ..page };
    let others = [
        // Text between the tables, below the first and above the second.
        [TablePage { lines: &[(120, "Sources: our own figures.")], ..page }, next],
        [page, TablePage { lines: &[(740, "Costs of each area")], ..next }],
        // Other columns, and other names of the same columns.
        [page, TablePage { columns: [60, 260, 360, 460], ..next }],
        [page, TablePage { first: Some(["Branch", "Lost", "Found"]), ..next }],
        [page, TablePage { first: Some(["Region", "Lost", "Found"]), ..next }],
    ];
    for pages in others {
        let extraction = extracted(&pages);
        assert_eq!(count(&extraction, "| Region | Sold | Returned |"), 1, "{}", extraction.document.text);
    }
}

#[test]
fn a_header_that_is_not_seen_is_not_repeated() {
    let header = ["Region", "secret", "Returned"];
    let page = TablePage { lines: &[], columns: COLUMNS, first: Some(header), rows: (0, 8) };
    let mut pdf = PdfBuilder::new();
    let content = page.content();
    pdf.page(content.replace("(secret) Tj", "3 Tr (secret) Tj 0 Tr").as_bytes(), "");
    pdf.page(TablePage { first: None, rows: (8, 16), ..page }.content().as_bytes(), "");
    let extraction = super::super::extract(&pdf.build(), &ExtractionLimits::default()).expect("a document");
    assert_eq!(count(&extraction, "secret"), 0, "{}", extraction.document.text);
}

#[test]
fn bars_in_cells_end_no_cell() {
    let header = ["m|w", "Sold", "Returned"];
    let page = TablePage { lines: &[], columns: COLUMNS, first: Some(header), rows: (0, 8) };
    let extraction = extracted(&[page, TablePage { first: None, rows: (8, 16), ..page }]);
    assert_eq!(count(&extraction, "| m\\|w | Sold | Returned |\n"), 2, "{}", extraction.document.text);
}

#[test]
fn a_header_in_bold_type_is_that_of_another_table() {
    let table = |rows: [[&str; 3]; 4], font: &str| {
        ruled_table(COLUMNS, &rows.map(|row| row.map(str::to_owned)), font)
    };
    let managers = [
        ["Region", "Manager", "City"],
        ["North", "Ada", "Bonn"],
        ["South", "Bob", "Rome"],
        ["West", "Eve", "Oslo"],
    ];
    let makers = [
        ["Article", "Maker", "Color"],
        ["Chair", "Oak", "red"],
        ["Table", "Ash", "blue"],
        ["Lamp", "Elm", "green"],
    ];
    let text = |font: &str| {
        let mut pdf = PdfBuilder::new();
        pdf.page(table(managers, "F2").as_bytes(), "");
        pdf.page(table(makers, font).as_bytes(), "");
        super::super::extract(&pdf.build(), &ExtractionLimits::default()).expect("a document").document.text
    };
    let other = text("F2");
    assert_eq!(other.matches("| Region | Manager | City |").count(), 1, "{other}");
    assert!(
        other.contains("| Article | Maker | Color |\n| --- | --- | --- |\n| Chair | Oak | red |"),
        "{other}"
    );
    // Rows of the same table are not in bold type.
    let same = text("F1");
    assert_eq!(same.matches("| Region | Manager | City |").count(), 2, "{same}");
}

#[test]
fn numbers_that_are_aligned_to_the_right_move_the_edges_of_their_columns() {
    let column = |rows: &[TableRow]| are_numbers(1, rows);
    let row = |cells: [&str; 2]| TableRow::new(cells.map(TableCell::text).to_vec());
    let table = |rows: &[[&str; 2]], widths: [f32; 2]| {
        let mut table = Table::new();
        rows.iter().for_each(|cells| table.add_row(row(*cells)));
        table.column_widths = Some(widths.to_vec());
        table
    };
    let page = |table: &Table| LastTable {
        header: table.rows[0].clone(),
        column_widths: table.column_widths.clone().unwrap_or_default(),
        has_numbers: vec![false, column(&table.rows[1..])],
        heads: Vec::new(),
        feet: Vec::new(),
    };
    let numbers = page(&table(&[["Area", "Sold"], ["North", "7"]], [120.0, 20.0]));
    assert!(numbers.has_columns_of(&table(&[["South", "1,200"], ["West", "1,300"]], [95.0, 45.0])));
    assert!(!numbers.has_columns_of(&table(&[["South", "Ada"], ["West", "Bob"]], [95.0, 45.0])));
    assert!(!numbers.has_columns_of(&table(&[["South", "1"], ["West", "2"]], [60.0, 45.0])));
    let words = page(&table(&[["Area", "Name"], ["North", "Ada"]], [120.0, 20.0]));
    assert!(words.has_columns_of(&table(&[["South", "Bob"], ["West", "Eve"]], [110.0, 60.0])));
}
