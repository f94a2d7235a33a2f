//! Office documents with what a reader of them does not see, and what readers of XML misread.

use super::*;
use crate::fixtures::{archive, docx_parts, pptx_parts, xlsx_parts};

type Parts = Vec<(String, Vec<u8>)>;

const WORD: &str = "http://schemas.openxmlformats.org/wordprocessingml/2006/main";
const SHEET: &str = "http://schemas.openxmlformats.org/spreadsheetml/2006/main";
const DRAWING: &str = "http://schemas.openxmlformats.org/drawingml/2006/main";
const SLIDES: &str = "http://schemas.openxmlformats.org/presentationml/2006/main";

fn put(parts: &mut Parts, name: &str, xml: &str) {
    match parts.iter_mut().find(|part| part.0 == name) {
        Some(part) => part.1 = xml.into(),
        None => parts.push((name.to_owned(), xml.into())),
    }
}

fn edit(parts: &mut [(String, Vec<u8>)], name: &str, from: &str, to: &str) {
    let part = parts.iter_mut().find(|part| part.0 == name).expect("the part exists");
    let xml = String::from_utf8(part.1.clone()).expect("UTF-8");
    assert!(xml.contains(from), "{from}");
    part.1 = xml.replacen(from, to, 1).into_bytes();
}

fn extracted(media_type: MediaType, parts: &[(String, Vec<u8>)]) -> Extraction {
    extract(media_type, &archive(parts), &ExtractionLimits::default()).unwrap()
}

/// Returns the text of a Word document by its body.
fn word_text(body: &str) -> String {
    word_text_beside(&[], body)
}

/// Returns the text of a Word document with further parts by its body.
fn word_text_beside(further_parts: &[(&str, &str)], body: &str) -> String {
    let mut parts = docx_parts();
    further_parts.iter().for_each(|(name, xml)| put(&mut parts, name, xml));
    let document = format!("<w:document xmlns:w=\"{WORD}\"><w:body>{body}</w:body></w:document>");
    put(&mut parts, "word/document.xml", &document);
    let styles = "<w:style w:type=\"character\" w:styleId=\"Secret\"><w:rPr><w:vanish/></w:rPr></w:style>\
        <w:style w:type=\"character\" w:styleId=\"Base\"><w:basedOn w:val=\"Secret\"/></w:style>\
        <w:style w:type=\"table\" w:styleId=\"Dark\"><w:tblStylePr w:type=\"firstRow\"><w:tcPr>\
        <w:shd w:val=\"clear\" w:fill=\"000000\"/></w:tcPr></w:tblStylePr></w:style></w:styles>";
    edit(&mut parts, "word/styles.xml", "</w:styles>", styles);
    extracted(MediaType::Docx, &parts).document.text
}

fn run(properties: &str, text: &str) -> String {
    format!("<w:r><w:rPr>{properties}</w:rPr><w:t>{text}</w:t></w:r>")
}

#[test]
fn hidden_runs_are_dropped() {
    for (properties, is_shown) in [
        ("<w:vanish/>", false),
        ("<w:vanish w:val=\"true\"/>", false),
        ("<w:vanish w:val=\"0\"/>", true),
        ("<w:color w:val=\"FFFFFF\"/>", false),
        ("<w:color w:val=\"fdfdfe\"/>", false),
        ("<w:color w:val=\"auto\"/>", true),
        ("<w:color w:val=\"C0C0C0\"/>", true),
        ("<w:color w:val=\"FFFFFF\"/><w:highlight w:val=\"black\"/>", true),
        ("<w:color w:val=\"FFFFFF\"/><w:shd w:val=\"clear\" w:color=\"auto\" w:fill=\"000000\"/>", true),
        ("<w:color w:val=\"FFFFFF\"/><w:shd w:val=\"clear\" w:color=\"auto\" w:fill=\"auto\"/>", false),
        ("<w:color w:val=\"FFFFFF\"/><w:shd w:val=\"clear\" w:fill=\"auto\" w:themeFill=\"text1\"/>", true),
        ("<w:color w:val=\"FFFFFF\"/><w:shd w:val=\"clear\" w:themeFill=\"text1\"/>", true),
        ("<w:color w:val=\"102030\"/><w:shd w:val=\"clear\" w:color=\"auto\" w:fill=\"102030\"/>", false),
        ("<w:color w:val=\"FFFFFF\"/><w:emboss/>", true),
        ("<w:color w:val=\"FFFFFF\"/><w:shadow w:val=\"0\"/>", false),
        ("<w:color w:val=\"FFFFFF\"/><w14:glow w14:rad=\"63500\"/>", true),
        ("<w:color w:val=\"FFFFFF\"/><w14:textOutline><w14:solidFill/></w14:textOutline>", true),
        ("<w:color w:val=\"FFFFFF\"/><w14:textOutline><w14:noFill/></w14:textOutline>", false),
        (
            "<w:color w:val=\"FFFFFF\"/><w14:textOutline><w14:solidFill/></w14:textOutline><w14:textFill><w14:noFill/></w14:textFill>",
            true,
        ),
        ("<w:color w:val=\"FFFFFF\"/><w14:textFill><w14:gradFill/></w14:textFill>", true),
        ("<w:color w:val=\"FFFFFF\"/><w14:textFill><w14:solidFill/></w14:textFill>", false),
        ("<w:sz w:val=\"2\"/>", false),
        ("<w:sz w:val=\"16\"/>", true),
        ("<w:rStyle w:val=\"Secret\"/>", false),
        ("<w:rStyle w:val=\"Base\"/>", false),
        ("<w:rStyle w:val=\"Base\"/><w:vanish w:val=\"false\"/>", true),
        ("<w:rPrChange w:id=\"1\"><w:rPr><w:vanish/></w:rPr></w:rPrChange>", true),
    ] {
        let text = word_text(&format!("<w:p>{}{}</w:p>", run("", "seen "), run(properties, "x")));
        assert!(text.starts_with("seen") && text.contains('x') == is_shown, "{properties}: {text}");
    }
}

#[test]
fn colors_of_themes_are_those_of_the_theme() {
    let theme = "<a:theme><a:clrScheme><a:dk1><a:sysClr val=\"windowText\" lastClr=\"000000\"/></a:dk1><a:lt1><a:sysClr \
        val=\"window\" lastClr=\"FFFFFF\"/></a:lt1></a:clrScheme></a:theme>";
    let theme = ("word/theme/theme1.xml", theme);
    let usual = "<w:settings><w:clrSchemeMapping w:bg1=\"light1\" w:t1=\"dark1\"/></w:settings>";
    let exchanged = usual.replace("light1", "dark2");
    let shading = |fill: &str| {
        format!("<w:shd w:val=\"clear\" w:color=\"auto\" w:fill=\"auto\" w:themeFill=\"{fill}\"/>")
    };
    for (properties, settings, is_shown) in [
        // The value is not what is seen.
        ("<w:color w:val=\"000000\" w:themeColor=\"background1\"/>".to_owned(), usual, false),
        ("<w:color w:themeColor=\"light1\" w:themeShade=\"FF\"/>".to_owned(), usual, false),
        ("<w:color w:val=\"FFFFFF\" w:themeColor=\"text1\"/>".to_owned(), usual, true),
        (
            "<w:color w:val=\"808080\" w:themeColor=\"background1\" w:themeShade=\"80\"/>".to_owned(),
            usual,
            true,
        ),
        (format!("<w:color w:val=\"FFFFFF\"/>{}", shading("background1")), usual, false),
        (format!("<w:color w:val=\"FFFFFF\"/>{}", shading("text1")), usual, true),
        (format!("<w:color w:val=\"000000\"/>{}", shading("text1")), usual, false),
        ("<w:color w:val=\"000000\" w:themeColor=\"background1\"/>".to_owned(), exchanged.as_str(), true),
    ] {
        let body = format!("<w:p>{}{}</w:p>", run("", "seen "), run(&properties, "x"));
        let text = word_text_beside(&[theme, ("word/settings.xml", settings)], &body);
        assert!(text.starts_with("seen") && text.contains('x') == is_shown, "{properties}: {text}");
    }
}

#[test]
fn white_text_counts_by_what_is_behind_it() {
    let white = run("<w:color w:val=\"FFFFFF\"/>", "x");
    let dark = "<w:shd w:val=\"clear\" w:color=\"auto\" w:fill=\"1F3864\"/>";
    let table = |table: &str, cell: &str| {
        format!(
            "<w:tbl><w:tblPr>{table}</w:tblPr><w:tr><w:tc><w:tcPr>{cell}</w:tcPr><w:p>{white}</w:p></w:tc>\
             <w:tc><w:p>{}</w:p></w:tc></w:tr></w:tbl>",
            run("", "seen")
        )
    };
    let text_box = "<w:p><w:r><w:pict><w:txbxContent>";
    for (body, is_shown) in [
        (format!("<w:p><w:pPr>{dark}</w:pPr>{white}</w:p>"), true),
        (table("", ""), false),
        (table("", dark), true),
        (table("<w:tblStyle w:val=\"Dark\"/>", ""), true),
        (format!("{text_box}<w:p>{white}</w:p></w:txbxContent></w:pict></w:r></w:p>"), true),
        // A shape is seen, whatever the size and color of text beside it.
        (
            format!(
                "<w:p><w:r><w:rPr><w:sz w:val=\"2\"/></w:rPr><w:pict><w:txbxContent><w:p>{}</w:p></w:txbxContent>\
                 </w:pict></w:r></w:p>",
                run("", "x")
            ),
            true,
        ),
        (format!("<w:p><w:anchor behindDoc=\"1\"/></w:p><w:p>{white}</w:p>"), true),
    ] {
        let text = word_text(&format!("<w:p>{}</w:p>{body}", run("", "seen")));
        assert_eq!(text.contains('x'), is_shown, "{body}: {text}");
    }
}

#[test]
fn fields_of_hidden_runs_stay_whole() {
    let field = |kind: &str| format!("<w:fldChar w:fldCharType=\"{kind}\"/>");
    let body = format!(
        "<w:p><w:r><w:rPr><w:vanish/></w:rPr>{}<w:t>x</w:t></w:r><w:r><w:instrText>PAGE</w:instrText></w:r>\
         <w:r>{}</w:r>{}<w:r>{}</w:r></w:p><w:tbl><w:tr><w:trPr><w:hidden/></w:trPr><w:tc><w:p>{}</w:p></w:tc></w:tr><w:tr><w:tc><w:p>{}</w:p></w:tc></w:tr></w:tbl>",
        field("begin"),
        field("separate"),
        run("", "page 7"),
        field("end"),
        run("", "x"),
        run("", "row"),
    );
    let text = word_text(&body);
    assert!(text.contains("page 7") && text.contains("row"), "{text}");
    assert!(!text.contains('x') && !text.contains("PAGE"), "{text}");
}

#[test]
fn tracked_changes_are_read_as_accepted() {
    let change = "<w:pPrChange w:id=\"1\"><w:pPr><w:pStyle w:val=\"Heading1\"/></w:pPr></w:pPrChange>";
    let body = format!(
        "<w:p><w:pPr><w:pStyle w:val=\"Normal\"/>{change}</w:pPr><w:del w:id=\"2\"><w:r><w:delText>old</w:delText></w:r>\
         </w:del><w:ins w:id=\"3\">{}</w:ins></w:p><w:p><w:moveFrom w:id=\"4\">{moved}</w:moveFrom></w:p>\
         <w:p><w:moveTo w:id=\"5\">{moved}</w:moveTo></w:p>",
        run("", "new"),
        moved = run("", "moved"),
    );
    assert_eq!(word_text(&body), "new\n\nmoved");
}

#[test]
fn lines_of_a_paragraph_stay_apart() {
    let line_break = "<w:r><w:br/></w:r>";
    let page_break = "<w:r><w:br w:type=\"page\"/></w:r>";
    let numbering = "<w:numPr><w:ilvl w:val=\"0\"/><w:numId w:val=\"1\"/></w:numPr>";
    let body = format!(
        "<w:p><w:pPr><w:pStyle w:val=\"Heading1\"/>{numbering}</w:pPr>{}{line_break}{}</w:p><w:p>{}{line_break}{}{page_break}{}\
         </w:p><w:tbl><w:tr><w:tc><w:p>{}{line_break}{}</w:p></w:tc></w:tr></w:tbl>",
        run("", "Two"),
        run("", "lines"),
        run("", "one"),
        run("", "two"),
        run("", "three"),
        run("", "four"),
        run("", "five"),
    );
    let mut parts = docx_parts();
    let document = format!("<w:document xmlns:w=\"{WORD}\"><w:body>{body}</w:body></w:document>");
    put(&mut parts, "word/document.xml", &document);
    let levels = "<w:abstractNum w:abstractNumId=\"0\"><w:lvl w:ilvl=\"0\"><w:numFmt w:val=\"decimal\"/></w:lvl></w:abstractNum>\
        <w:num w:numId=\"1\"><w:abstractNumId w:val=\"0\"/></w:num>";
    put(&mut parts, "word/numbering.xml", &format!("<w:numbering xmlns:w=\"{WORD}\">{levels}</w:numbering>"));
    let text = extracted(MediaType::Docx, &parts).document.text;
    assert_eq!(text, "# Two lines\n\none\ntwo\nthree\n\n| four<br>five |\n| --- |");
}

#[test]
fn paragraphs_of_a_note_stay_apart() {
    let mut parts = docx_parts();
    let footnotes = format!(
        "<w:footnotes xmlns:w=\"{WORD}\"><w:footnote w:id=\"2\"><w:p>{}</w:p><w:p>{}<w:r><w:br/></w:r>{}{}</w:p></w:footnote>\
         </w:footnotes>",
        run("", "First."),
        run("", "Second."),
        run("", "Third."),
        run("<w:vanish/>", "secret"),
    );
    put(&mut parts, "word/footnotes.xml", &footnotes);
    let text = extracted(MediaType::Docx, &parts).document.text;
    assert!(text.ends_with("[^2]: First. Second. Third."), "{text}");
}

#[test]
fn formulas_are_read_on_a_line() {
    let formula = |content: &str| format!("<m:oMath>{content}</m:oMath>");
    let text =
        |properties: &str, text: &str| format!("<m:r><w:rPr>{properties}</w:rPr><m:t>{text}</m:t></m:r>");
    let power = |base: &str, exponent: &str| {
        format!("<m:sSup><m:e>{}</m:e><m:sup>{}</m:sup></m:sSup>", text("", base), text("", exponent))
    };
    let fraction = format!(
        "<m:f><m:num>{}</m:num><m:den>{}</m:den></m:f>",
        text("", "a&lt;b"),
        text("<w:rStyle w:val=\"Secret\"/>", "x")
    );
    let body = format!(
        "<w:p>{}{}{}</w:p><w:p><m:oMathPara>{}{}</m:oMathPara></w:p><w:tbl><w:tr><w:tc><w:p>{}</w:p></w:tc></w:tr></w:tbl>",
        run("", "It is "),
        formula(&format!("{}{}", power("c", "2"), text("<w:vanish/>", "x"))),
        run("", " here."),
        formula(&power("d", "n+1")),
        formula(&format!("{fraction}{}", text("<w:color w:val=\"FFFFFF\"/>", "x"))),
        formula(&power("e", "3")),
    );
    assert_eq!(word_text(&body), "It is c^2 here.\n\nd^(n+1) (a<b)/\n\n| e^3 |\n| --- |");
}

/// Returns the text of a workbook's first sheet by its content.
fn sheet_text(content: &str) -> String {
    let mut parts = xlsx_parts();
    put(
        &mut parts,
        "xl/worksheets/sheet1.xml",
        &format!("<worksheet xmlns=\"{SHEET}\">{content}</worksheet>"),
    );
    let styles = "<numFmts><numFmt numFmtId=\"164\" formatCode=\";;;\"/></numFmts><fonts><font/><font><color \
        rgb=\"FFFFFFFF\"/></font><font><sz val=\"1\"/></font><font><sz val=\"11\"/><color theme=\"4\" tint=\"-0.25\"/></font>\
        <font><color rgb=\"FF030201\"/></font></fonts><fills><fill><patternFill patternType=\"none\"/></fill><fill><patternFill \
        patternType=\"solid\"><fgColor rgb=\"FF000000\"/></patternFill></fill><fill><patternFill patternType=\"solid\"><fgColor \
        theme=\"4\" tint=\"-0.25\"/></patternFill></fill><fill><patternFill patternType=\"gray125\"><fgColor theme=\"4\" \
        tint=\"-0.25\"/></patternFill></fill></fills><cellXfs><xf/><xf numFmtId=\"14\"/>\
        <xf numFmtId=\"10\"/><xf numFmtId=\"20\"/><xf numFmtId=\"164\"/><xf fontId=\"1\" fillId=\"0\"/>\
        <xf fontId=\"1\" fillId=\"1\"/><xf fontId=\"2\" fillId=\"0\"/><xf fontId=\"3\" fillId=\"2\"/><xf fontId=\"4\" fillId=\"1\"/>\
        <xf fontId=\"3\" fillId=\"0\"/><xf fontId=\"3\" fillId=\"3\"/></cellXfs>";
    put(&mut parts, "xl/styles.xml", &format!("<styleSheet xmlns=\"{SHEET}\">{styles}</styleSheet>"));
    edit(&mut parts, "xl/workbook.xml", "sheetId=\"2\"", "sheetId=\"2\" state=\"veryHidden\"");
    edit(&mut parts, "xl/workbook.xml", "name=\"Days\"", "name=\"R&amp;D\"");
    let extraction = extracted(MediaType::Xlsx, &parts);
    assert_eq!(extraction.pages, Some(1), "the second sheet is hidden");
    extraction.document.text
}

fn text_cell(reference: &str, style: u32, text: &str) -> String {
    format!("<c r=\"{reference}\" s=\"{style}\" t=\"inlineStr\"><is><t>{text}</t></is></c>")
}

#[test]
fn numbers_of_sheets_are_read_as_they_are_shown() {
    let header = ["A1", "B1", "C1", "D1"].map(|cell| text_cell(cell, 0, &format!("in {cell}"))).concat();
    let content = format!(
        "<sheetData><row r=\"1\">{header}</row><row r=\"2\"><c r=\"A2\" s=\"1\"><v>44197</v></c><c r=\"B2\" s=\"2\">\
         <f>1/4</f><v>0.25</v></c><c r=\"C2\" s=\"3\"><v>0.5</v></c><c r=\"D2\"><v>0.30000000000000004</v></c></row>\
         <row r=\"3\"><c r=\"A3\" s=\"1\"><v>1e18</v></c><c r=\"D3\"><v>7</v></c></row></sheetData>"
    );
    assert_eq!(
        sheet_text(&content),
        "## R&D\n\nin A1: 2021-01-01; in B1: 25.00%; in C1: 12:00; in D1: 0.3\nin A1: 1e18; in D1: 7"
    );
}

#[test]
fn merged_values_are_those_of_each_row() {
    let header = ["A1", "B1"].map(|cell| text_cell(cell, 0, &format!("in {cell}"))).concat();
    let content = format!(
        "<sheetData><row r=\"1\">{header}</row><row r=\"2\">{}{}</row><row r=\"3\"><c r=\"B3\" t=\"e\"><v>#N/A</v></c></row>\
         <row r=\"4\">{}</row></sheetData><mergeCells><mergeCell ref=\"A2:A3\"/></mergeCells>",
        text_cell("A2", 0, "North"),
        text_cell("B2", 0, "one"),
        text_cell("B4", 0, "two"),
    );
    let expected = "## R&D\n\nin A1: North; in B1: one\nin A1: North; in B1: #N/A\nin B1: two";
    assert_eq!(sheet_text(&content), expected);
}

#[test]
fn hidden_cells_are_dropped() {
    let row = |number: u32, attributes: &str, text: &str, style: u32| {
        let cells = ["A", "B", "C"].map(|column| match column {
            "B" => text_cell(&format!("B{number}"), style, text),
            _ => text_cell(&format!("{column}{number}"), 0, &format!("{column}{number}")),
        });
        format!("<row r=\"{number}\" {attributes}>{}</row>", cells.concat())
    };
    let rows = [
        row(1, "", "B1", 0),
        row(2, "hidden=\"1\"", "B2", 0),
        row(3, "", "hidden", 4),
        row(4, "", "hidden", 5),
        row(5, "", "B5", 6),
        row(6, "hidden=\"1\" outlineLevel=\"1\"", "B6", 0),
    ];
    let sheet = |before: &str, after: &str| {
        sheet_text(&format!("{before}<sheetData>{}</sheetData>{after}", rows.concat()))
    };
    let line = |number: u32, cells: &str| {
        let cells: Vec<_> = cells.chars().map(|column| format!("{column}1: {column}{number}")).collect();
        cells.join("; ")
    };
    let shown = [line(3, "AC"), line(4, "AC"), line(5, "ABC"), line(6, "ABC")].join("\n");
    assert_eq!(sheet("", ""), format!("## R&D\n\n{shown}"));
    // A filter hides rows that its reader can show.
    let filtered = sheet("", "<autoFilter ref=\"A1:C6\"><filterColumn colId=\"0\"/></autoFilter>");
    assert!(filtered.contains(&line(2, "ABC")), "{filtered}");
    let filtered = sheet("<sheetPr filterMode=\"1\"/>", "");
    assert!(filtered.contains(&line(2, "ABC")), "{filtered}");
    let columns = sheet("<cols><col min=\"2\" max=\"2\" hidden=\"1\"/></cols>", "");
    assert!(columns.contains(&line(5, "AC")) && !columns.contains('B'), "{columns}");
    // A value that is merged with a column that is shown is seen there.
    let merged = sheet(
        "<cols><col min=\"2\" max=\"2\" hidden=\"1\"/></cols>",
        "<mergeCells count=\"1\"><mergeCell ref=\"B5:C5\"/></mergeCells>",
    );
    assert!(merged.contains("B5") && !merged.contains("B6"), "{merged}");
    let columns =
        "<cols><col min=\"3\" max=\"2\" hidden=\"1\"/><col min=\"99999\" max=\"99999\" hidden=\"1\"/></cols>";
    assert_eq!(sheet(columns, ""), format!("## R&D\n\n{shown}"));
}

#[test]
fn text_of_cells_that_is_not_seen_is_dropped() {
    let cells = |row: u32, cells: [(u32, &str); 3]| {
        let cells = ["A", "B", "C"].iter().zip(cells);
        let cells = cells.map(|(column, (style, text))| text_cell(&format!("{column}{row}"), style, text));
        format!("<row r=\"{row}\">{}</row>", cells.collect::<String>())
    };
    let header = cells(1, [(0, "a"), (0, "b"), (0, "c")]);
    // Of a point, in the color of the theme that the fill has, and nearly in that of the fill.
    let hidden = cells(2, [(7, "secret"), (8, "secret"), (9, "secret")]);
    // Without that fill, in a pattern, and on black.
    let shown = cells(3, [(10, "plain"), (11, "pattern"), (6, "white")]);
    let rows = format!("<sheetData>{header}{hidden}{shown}</sheetData>");
    assert_eq!(sheet_text(&rows), "## R&D\n\na: plain; b: pattern; c: white");
    // Rules may give cells other colors, and no other size.
    for rules in ["<conditionalFormatting/>", "<extLst><ext><x14:conditionalFormattings/></ext></extLst>"] {
        let text = sheet_text(&format!("{rows}{rules}"));
        assert_eq!(text, "## R&D\n\nb: secret; c: secret\na: plain; b: pattern; c: white", "{rules}");
    }
}

#[test]
fn numbers_of_white_may_stand_for_other_colors() {
    let rows = format!(
        "<row r=\"1\">{}{}</row><row r=\"2\">{}{}</row>",
        text_cell("A1", 0, "a"),
        text_cell("B1", 0, "b"),
        text_cell("A2", 1, "in the palette"),
        text_cell("B2", 2, "in the theme"),
    );
    let palette = "<colors><indexedColors><rgbColor rgb=\"00000000\"/></indexedColors></colors>";
    let theme = |background: &str| {
        format!(
            "<a:theme><a:clrScheme><a:lt1><a:srgbClr val=\"{background}\"/></a:lt1></a:clrScheme></a:theme>"
        )
    };
    for (colors, theme, is_shown) in
        [("", theme("FFFFFF"), false), (palette, theme("FFFFFF"), true), ("", theme("202020"), true)]
    {
        let mut parts = xlsx_parts();
        let sheet = format!("<worksheet xmlns=\"{SHEET}\"><sheetData>{rows}</sheetData></worksheet>");
        put(&mut parts, "xl/worksheets/sheet1.xml", &sheet);
        put(&mut parts, "xl/theme/theme1.xml", &theme);
        let styles = format!(
            "<styleSheet xmlns=\"{SHEET}\"><fonts><font/><font><color indexed=\"9\"/></font><font><color theme=\"0\"/></font></fonts>\
             <fills><fill><patternFill patternType=\"none\"/></fill></fills><cellXfs><xf/><xf fontId=\"1\" fillId=\"0\"/>\
             <xf fontId=\"2\" fillId=\"0\"/></cellXfs>{colors}</styleSheet>"
        );
        put(&mut parts, "xl/styles.xml", &styles);
        let text = extracted(MediaType::Xlsx, &parts).document.text;
        assert_eq!(text.contains("in the palette"), is_shown, "{text}");
        assert_eq!(text.contains("in the theme"), is_shown, "{text}");
    }
}

#[test]
fn parts_of_the_text_of_a_cell_that_are_not_seen_are_dropped() {
    let run = |properties: &str, text: &str| format!("<r><rPr>{properties}</rPr><t>{text}</t></r>");
    let white = "<color rgb=\"FFFFFFFF\"/><sz val=\"11\"/>";
    let text = |start: &str| {
        format!("{}{}{}", run("", start), run(white, " white"), run("<sz val=\"1\"/>", " secret"))
    };
    let inline = |reference: &str, style: u32| {
        format!("<c r=\"{reference}\" s=\"{style}\" t=\"inlineStr\"><is>{}</is></c>", text(reference))
    };
    let style = |fill: u32| format!("<xf fillId=\"{fill}\"/>");
    let shared = |index: u32| format!("<c r=\"A{0}\" t=\"s\"><v>{index}</v></c>", index + 1);
    let extract = |fills: u32, after: &str| {
        let mut parts = xlsx_parts();
        let rows = format!(
            "<row r=\"1\">{}{}</row><row r=\"2\">{}{}</row>",
            shared(0),
            inline("B1", 0),
            shared(1),
            inline("B2", fills)
        );
        let sheet = format!("<worksheet xmlns=\"{SHEET}\"><sheetData>{rows}</sheetData>{after}</worksheet>");
        put(&mut parts, "xl/worksheets/sheet1.xml", &sheet);
        let strings = format!("<sst xmlns=\"{SHEET}\"><si>{}</si><si>{}</si></sst>", text("A1"), text("A2"));
        put(&mut parts, "xl/sharedStrings.xml", &strings);
        let dark =
            "<fill><patternFill patternType=\"solid\"><fgColor rgb=\"FF000000\"/></patternFill></fill>";
        let styles: String = (0..=fills).map(style).collect();
        let styles = format!(
            "<styleSheet xmlns=\"{SHEET}\"><fonts><font/></fonts><fills><fill><patternFill patternType=\"none\"/></fill>{dark}</fills>\
             <cellXfs>{styles}</cellXfs></styleSheet>"
        );
        put(&mut parts, "xl/styles.xml", &styles);
        extracted(MediaType::Xlsx, &parts).document.text
    };
    assert!(extract(0, "").starts_with("## Days\n\nA1: A2; B1: B2\n"), "{}", extract(0, ""));
    // A text in a list may be that of the dark cell, which shows its own.
    let with_dark_cell = "## Days\n\nA1 white: A2 white; B1: B2 white\n";
    assert!(extract(1, "").starts_with(with_dark_cell), "{}", extract(1, ""));
    let with_rules = extract(0, "<conditionalFormatting/>");
    assert!(with_rules.contains("B2 white") && !with_rules.contains("secret"), "{with_rules}");
}

#[test]
fn shapes_that_are_hidden_or_there_twice_are_dropped() {
    let shape = |attributes: &str, text: &str| {
        format!(
            "<p:sp><p:nvSpPr><p:cNvPr id=\"9\" name=\"s\" {attributes}/><p:cNvSpPr/><p:nvPr/></p:nvSpPr><p:spPr/><p:txBody>\
             <a:bodyPr/><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:txBody></p:sp>"
        )
    };
    let shapes = format!(
        "<p:grpSp><p:nvGrpSpPr><p:cNvPr id=\"8\" name=\"g\"/></p:nvGrpSpPr>{}{}</p:grpSp><mc:AlternateContent><mc:Choice>{}\
         </mc:Choice><mc:Fallback>{}</mc:Fallback></mc:AlternateContent></p:spTree>",
        shape("hidden=\"1\"", "secret"),
        shape("", "grouped"),
        shape("", "formula"),
        shape("", "formula"),
    );
    let mut parts = pptx_parts();
    edit(&mut parts, "ppt/slides/slide1.xml", "</p:spTree>", &shapes);
    let text = extracted(MediaType::Pptx, &parts).document.text;
    assert!(text.contains("grouped") && !text.contains("secret"), "{text}");
    assert_eq!(text.matches("formula").count(), 1, "{text}");
}

/// Returns the properties of text in a color.
fn in_color(color: &str) -> String {
    format!("<a:rPr><a:solidFill><a:srgbClr val=\"{color}\"/></a:solidFill></a:rPr>")
}

#[test]
fn text_of_slides_that_is_not_seen_is_dropped() {
    let fill = "<a:solidFill><a:srgbClr val=\"FFFFFF\"/></a:solidFill>";
    let text = |properties: &str, text: &str| format!("<a:p><a:r>{properties}<a:t>{text}</a:t></a:r></a:p>");
    let shape = |properties: &str, paragraphs: &str| {
        format!("<p:sp><p:spPr>{properties}</p:spPr><p:txBody><a:bodyPr/>{paragraphs}</p:txBody></p:sp>")
    };
    let cell = |paragraph: &str, properties: &str| {
        format!("<a:tc><a:txBody>{paragraph}</a:txBody><a:tcPr>{properties}</a:tcPr></a:tc>")
    };
    let white = in_color("FFFFFF");
    let shapes = [
        shape("", &text("<a:rPr sz=\"100\"/>", "secret")),
        shape("", &text("<a:rPr><a:noFill/></a:rPr>", "secret")),
        shape("", &text(&white, "on a dark slide")),
        shape(&format!("<a:prstGeom prst=\"rect\"/>{fill}"), &text(&white, "secret")),
        shape(&format!("<a:prstGeom prst=\"rect\"/>{fill}"), &text(&in_color("000000"), "on white")),
        format!(
            "<p:graphicFrame><a:graphic><a:graphicData><a:tbl><a:tr>{}{}{}</a:tr></a:tbl></a:graphicData></a:graphic>\
             </p:graphicFrame>",
            cell(&text(&white, "secret"), fill),
            cell(&text(&white, "in a style"), ""),
            cell(&text("", "plain"), fill),
        ),
        "</p:spTree>".to_owned(),
    ];
    let mut parts = pptx_parts();
    edit(&mut parts, "ppt/slides/slide1.xml", "</p:spTree>", &shapes.concat());
    let text = extracted(MediaType::Pptx, &parts).document.text;
    assert!(!text.contains("secret"), "{text}");
    for seen in ["on a dark slide", "on white", "in a style", "plain"] {
        assert!(text.contains(seen), "{seen}: {text}");
    }
}

/// Returns the text of a slide by its background and shapes, and by the map of colors and the shapes of its master.
fn text_on_background(background: &str, shapes: &str, color_map: &str, master_shapes: &str) -> String {
    let relations = |kind: &str, target: &str| {
        format!(
            "<Relationships xmlns=\"http://schemas.openxmlformats.org/package/2006/relationships\"><Relationship Id=\"rId1\" \
             Target=\"{target}\" Type=\"http://schemas.openxmlformats.org/officeDocument/2006/relationships/{kind}\"/></Relationships>"
        )
    };
    let master = format!(
        "<p:sldMaster><p:cSld><p:bg><p:bgRef idx=\"1001\"><a:schemeClr val=\"bg1\"/></p:bgRef></p:bg><p:spTree>{master_shapes}</p:spTree>\
         </p:cSld><p:clrMap {color_map}/></p:sldMaster>"
    );
    let theme = "<a:theme><a:themeElements><a:clrScheme><a:dk1><a:srgbClr val=\"000000\"/></a:dk1><a:lt1><a:srgbClr val=\"FFFFFF\"/></a:lt1>\
        </a:clrScheme><a:fmtScheme><a:bgFillStyleLst><a:solidFill><a:schemeClr val=\"phClr\"/></a:solidFill></a:bgFillStyleLst>\
        </a:fmtScheme></a:themeElements></a:theme>";
    let mut parts = pptx_parts();
    for (name, xml) in [
        ("ppt/slides/_rels/slide1.xml.rels", relations("slideLayout", "../slideLayouts/slideLayout1.xml")),
        (
            "ppt/slideLayouts/slideLayout1.xml",
            "<p:sldLayout><p:cSld><p:spTree/></p:cSld></p:sldLayout>".to_owned(),
        ),
        (
            "ppt/slideLayouts/_rels/slideLayout1.xml.rels",
            relations("slideMaster", "../slideMasters/slideMaster1.xml"),
        ),
        ("ppt/slideMasters/slideMaster1.xml", master),
        ("ppt/slideMasters/_rels/slideMaster1.xml.rels", relations("theme", "../theme/theme1.xml")),
        ("ppt/theme/theme1.xml", theme.to_owned()),
    ] {
        put(&mut parts, name, &xml);
    }
    edit(&mut parts, "ppt/slides/slide1.xml", "<p:cSld>", &format!("<p:cSld>{background}"));
    edit(&mut parts, "ppt/slides/slide1.xml", "</p:spTree>", &format!("{shapes}</p:spTree>"));
    extracted(MediaType::Pptx, &parts).document.text
}

#[test]
fn text_of_the_color_of_the_slide_is_dropped_where_nothing_else_is_behind_it() {
    let area = |x: u32, y: u32| {
        format!("<a:xfrm><a:off x=\"{x}\" y=\"{y}\"/><a:ext cx=\"200\" cy=\"50\"/></a:xfrm>")
    };
    let text = |properties: &str| {
        format!(
            "<p:sp><p:spPr>{}<a:noFill/></p:spPr><p:txBody><a:bodyPr/><a:p><a:r>{properties}<a:t>secret</a:t></a:r></a:p></p:txBody>\
             </p:sp>",
            area(100, 100)
        )
    };
    let white = text(&in_color("FFFFFF"));
    let named = text("<a:rPr><a:solidFill><a:schemeClr val=\"bg1\"/></a:solidFill></a:rPr>");
    let picture = |x: u32| format!("<p:pic><p:blipFill/><p:spPr>{}</p:spPr></p:pic>", area(x, 120));
    let gradient = format!("<p:sp><p:spPr>{}<a:gradFill/></p:spPr></p:sp>", area(50, 80));
    let style = "<p:sp><p:spPr/><p:style><a:fillRef idx=\"1\"/></p:style></p:sp>";
    let solid = |color: &str| format!("<p:bg><p:bgPr><a:solidFill>{color}</a:solidFill></p:bgPr></p:bg>");
    let dark = solid("<a:srgbClr val=\"102030\"/>");
    let named_dark = solid("<a:schemeClr val=\"tx1\"/>");
    let usual = "bg1=\"lt1\" tx1=\"dk1\"";
    for (background, shapes, color_map, master_shapes, is_shown) in [
        ("", white.clone(), usual, "", false),
        ("", named.clone(), usual, "", false),
        ("", white.clone(), "bg1=\"dk1\" tx1=\"lt1\"", "", true),
        // Pictures elsewhere, behind the text, and in front of it.
        ("", picture(400) + &white, usual, "", false),
        ("", picture(200) + &white, usual, "", true),
        ("", white.clone() + &picture(200), usual, "", false),
        ("", gradient + &white, usual, "", true),
        ("", style.to_owned() + &white, usual, "", true),
        // A group has coordinates of its own.
        ("", format!("{}<p:grpSp>{white}</p:grpSp>", picture(400)), usual, "", true),
        ("", format!("<p:grpSp>{white}</p:grpSp>"), usual, "", false),
        // Too many shapes to be compared, and too many around one.
        ("", (400..1_425).map(picture).collect::<String>() + &white, usual, "", true),
        ("", "<p:grpSp>".repeat(17) + &white + &"</p:grpSp>".repeat(17), usual, "", true),
        ("", white.clone(), usual, "<p:pic/>", true),
        (dark.as_str(), white.clone(), usual, "", true),
        (dark.as_str(), text(&in_color("102030")), usual, "", false),
        (named_dark.as_str(), text(&in_color("000000")), usual, "", false),
        ("<p:bg><p:bgPr><a:blipFill/></p:bgPr></p:bg>", white, usual, "", true),
    ] {
        let text = text_on_background(background, &shapes, color_map, master_shapes);
        assert!(text.contains("Leave policy"), "{text}");
        assert_eq!(text.contains("secret"), is_shown, "{background} {shapes} {color_map}: {text}");
    }
}

#[test]
fn formulas_of_slides_are_read_on_a_line() {
    let run = |text: &str| format!("<m:r><a:rPr/><m:t>{text}</m:t></m:r>");
    let formula = format!(
        "<mc:AlternateContent><mc:Choice><p:sp><p:spPr/><p:txBody><a:p><a:r><a:t>area </a:t></a:r><a14:m><m:oMathPara><m:oMath>\
         <m:sSup><m:e>{}</m:e><m:sup>{}</m:sup></m:sSup></m:oMath></m:oMathPara></a14:m></a:p></p:txBody></p:sp></mc:Choice>\
         </mc:AlternateContent></p:spTree>",
        run("r"),
        run("2"),
    );
    let mut parts = pptx_parts();
    edit(&mut parts, "ppt/slides/slide1.xml", "</p:spTree>", &formula);
    let text = extracted(MediaType::Pptx, &parts).document.text;
    assert!(text.contains("area r^2"), "{text}");
}

#[test]
fn charts_are_tables_in_the_order_of_their_shapes() {
    let frame = |attributes: &str, id: u32| {
        format!(
            "<p:graphicFrame><p:nvGraphicFramePr><p:cNvPr id=\"{id}\" name=\"c\" {attributes}/></p:nvGraphicFramePr><a:graphic>\
             <a:graphicData><c:chart r:id=\"rId{id}\"/></a:graphicData></a:graphic></p:graphicFrame>"
        )
    };
    let point = |text: &str| format!("<c:pt idx=\"0\"><c:v>{text}</c:v></c:pt>");
    let mut parts = pptx_parts();
    let frames = [frame("", 3), frame("hidden=\"1\"", 2), frame("", 1), "</p:spTree>".to_owned()];
    edit(&mut parts, "ppt/slides/slide1.xml", "</p:spTree>", &frames.concat());
    let mut relations = String::new();
    for (number, region) in (1..).zip(["North", "secret", "South"]) {
        let chart = format!(
            "<c:chart><c:ser><c:tx>{}</c:tx><c:cat>{}</c:cat><c:val>{}</c:val></c:ser></c:chart>",
            point("Sales"),
            point(region),
            point("7"),
        );
        put(&mut parts, &format!("ppt/charts/chart{number}.xml"), &chart);
        relations += &format!(
            "<Relationship Id=\"rId{number}\" Target=\"../charts/chart{number}.xml\" \
             Type=\"http://schemas.openxmlformats.org/officeDocument/2006/relationships/chart\"/>"
        );
    }
    let relations = format!(
        "<Relationships xmlns=\"http://schemas.openxmlformats.org/package/2006/relationships\">{relations}</Relationships>"
    );
    put(&mut parts, "ppt/slides/_rels/slide1.xml.rels", &relations);
    let table = |region: &str| format!("| Category | Sales |\n| --- | --- |\n| {region} | 7 |");
    let text = extracted(MediaType::Pptx, &parts).document.text;
    let first_slide = text.split("\n\n# ").next().unwrap_or_default();
    assert!(first_slide.ends_with(&format!("{}\n\n{}", table("South"), table("North"))), "{text}");
}

#[test]
fn hidden_slides_are_empty_pages() {
    let mut parts = pptx_parts();
    edit(&mut parts, "ppt/slides/slide2.xml", "<p:sld ", "<p:sld show=\"0\" ");
    let notes = "<p:notes><p:cSld><p:spTree><p:sp><p:nvSpPr><p:nvPr><p:ph type=\"body\"/></p:nvPr></p:nvSpPr><p:txBody><a:p><a:r><a:t>To be said.</a:t></a:r></a:p></p:txBody></p:sp>\
        </p:spTree></p:cSld></p:notes>";
    put(&mut parts, "ppt/notesSlides/notesSlide2.xml", notes);
    let relations = "<Relationships xmlns=\"http://schemas.openxmlformats.org/package/2006/relationships\"><Relationship Id=\"rId1\" \
        Target=\"../notesSlides/notesSlide2.xml\" \
        Type=\"http://schemas.openxmlformats.org/officeDocument/2006/relationships/notesSlide\"/></Relationships>";
    put(&mut parts, "ppt/slides/_rels/slide2.xml.rels", relations);
    let extraction = extracted(MediaType::Pptx, &parts);
    assert_eq!(extraction.document.text, "# Leave policy\n\nEmployees have 30 days of leave.");
    // Later slides keep their numbers.
    assert_eq!((extraction.pages, extraction.needs_ocr.as_slice()), (Some(3), &[3][..]));
    // Without the attribute, the slide and its notes are read.
    edit(&mut parts, "ppt/slides/slide2.xml", "show=\"0\"", "show=\"1\"");
    let text = extracted(MediaType::Pptx, &parts).document.text;
    assert!(text.contains("Requests") && text.contains("To be said."), "{text}");
}

#[test]
fn notes_are_those_of_their_slide() {
    let shape = |kind: &str, text: &str| {
        format!(
            "<p:sp><p:nvSpPr><p:cNvPr id=\"2\" name=\"s\"/><p:cNvSpPr/><p:nvPr><p:ph type=\"{kind}\"/></p:nvPr></p:nvSpPr>\
             <p:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:txBody></p:sp>"
        )
    };
    let mut parts = pptx_parts();
    let notes = format!(
        "<p:notes xmlns:p=\"{SLIDES}\" xmlns:a=\"{DRAWING}\"><p:cSld><p:spTree>{}{}</p:spTree></p:cSld></p:notes>",
        shape("body", "Show the form."),
        shape("sldNum", "number"),
    );
    // The first notes of a presentation are often those of a later slide.
    put(&mut parts, "ppt/notesSlides/notesSlide1.xml", &notes);
    let relation = "<Relationship Id=\"rId1\" Target=\"../notesSlides/notesSlide1.xml\" \
        Type=\"http://schemas.openxmlformats.org/officeDocument/2006/relationships/notesSlide\"/>";
    let relations = format!(
        "<Relationships xmlns=\"http://schemas.openxmlformats.org/package/2006/relationships\">{relation}</Relationships>"
    );
    put(&mut parts, "ppt/slides/_rels/slide2.xml.rels", &relations);
    let document = extracted(MediaType::Pptx, &parts).document;
    assert_eq!(document.text.matches("Show the form.").count(), 1, "{}", document.text);
    let second = document.page_starts[1] as usize..document.page_starts[2] as usize;
    assert!(document.text[second].contains("Show the form."), "{}", document.text);
    assert!(!document.text.contains("number"), "{}", document.text);
    // Notes of one slide are not copied for another, which would be a way past the limits on the archive.
    put(&mut parts, "ppt/slides/_rels/slide3.xml.rels", &relations);
    let document = extracted(MediaType::Pptx, &parts).document;
    assert_eq!(document.text.matches("Show the form.").count(), 1, "{}", document.text);
}
