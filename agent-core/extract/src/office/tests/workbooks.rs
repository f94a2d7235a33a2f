//! Text of spreadsheets: number formats, merged cells, and cells whose text is not seen.

use super::*;
use crate::fixtures::xlsx_parts;

/// Returns the text of a workbook's first sheet by its content.
fn sheet_text(content: &str) -> String {
    let mut parts = xlsx_parts();
    put(
        &mut parts,
        "xl/worksheets/sheet1.xml",
        &format!("<worksheet xmlns=\"{SHEET}\">{content}</worksheet>"),
    );
    let styles = "<numFmts><numFmt numFmtId=\"164\" formatCode=\";;;\"/><numFmt numFmtId=\"165\" formatCode=\"0&quot; \
        days&quot;\"/><numFmt numFmtId=\"166\" formatCode=\"#,##0.00_d\\ &quot;USD&quot;\"/></numFmts><fonts><font/><font><color \
        rgb=\"FFFFFFFF\"/></font><font><sz val=\"1\"/></font><font><sz val=\"11\"/><color theme=\"4\" tint=\"-0.25\"/></font>\
        <font><color rgb=\"FF030201\"/></font></fonts><fills><fill><patternFill patternType=\"none\"/></fill><fill><patternFill \
        patternType=\"solid\"><fgColor rgb=\"FF000000\"/></patternFill></fill><fill><patternFill patternType=\"solid\"><fgColor \
        theme=\"4\" tint=\"-0.25\"/></patternFill></fill><fill><patternFill patternType=\"gray125\"><fgColor theme=\"4\" \
        tint=\"-0.25\"/></patternFill></fill></fills><cellXfs><xf/><xf numFmtId=\"14\"/>\
        <xf numFmtId=\"10\"/><xf numFmtId=\"20\"/><xf numFmtId=\"164\"/><xf fontId=\"1\" fillId=\"0\"/>\
        <xf fontId=\"1\" fillId=\"1\"/><xf fontId=\"2\" fillId=\"0\"/><xf fontId=\"3\" fillId=\"2\"/><xf fontId=\"4\" fillId=\"1\"/>\
        <xf fontId=\"3\" fillId=\"0\"/><xf fontId=\"3\" fillId=\"3\"/><xf numFmtId=\"165\"/><xf numFmtId=\"166\"/></cellXfs>";
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
fn texts_in_formats_of_numbers_make_no_dates() {
    let rows = format!(
        "<sheetData><row r=\"1\">{}{}</row><row r=\"2\"><c r=\"A2\" s=\"12\"><v>5</v></c><c r=\"B2\" \
         s=\"13\"><v>1250.5</v></c></row></sheetData>",
        text_cell("A1", 0, "a"),
        text_cell("B1", 0, "b")
    );
    assert_eq!(sheet_text(&rows), "## R&D\n\na: 5; b: 1250.5");
}

#[test]
fn shared_texts_keep_their_numbers_and_characters() {
    let mut parts = xlsx_parts();
    let cell = |reference: &str, index: u32| format!("<c r=\"{reference}\" t=\"s\"><v>{index}</v></c>");
    let rows = format!(
        "<row r=\"1\">{}{}</row><row r=\"2\">{}{}</row><row r=\"3\">{}<c r=\"B3\" t=\"str\"><v>x_x0041_</v></c></row>",
        cell("A1", 0),
        cell("B1", 2),
        cell("A2", 3),
        cell("B2", 1),
        cell("A3", 4)
    );
    let sheet = format!("<worksheet xmlns=\"{SHEET}\"><sheetData>{rows}</sheetData></worksheet>");
    put(&mut parts, "xl/worksheets/sheet1.xml", &sheet);
    let texts = "<si><t>Name</t></si><si/><si><t>Note</t></si><si><t>one_x000D_\ntwo &lt;_x0026_</t></si>\
        <si><r><t>a_x005F_x000D_b</t></r><r><t>_xD83D_ _x12_ _x</t></r></si>";
    put(&mut parts, "xl/sharedStrings.xml", &format!("<sst xmlns=\"{SHEET}\">{texts}</sst>"));
    let text = extracted(MediaType::Xlsx, &parts).document.text;
    let expected = "## Days\n\nName: one two <&\nName: a_x000D_b_xD83D_ _x12_ _x; Note: xA\n";
    assert!(text.starts_with(expected), "{text}");
}

#[test]
fn superscripts_in_cells_are_separated_from_numbers() {
    let run = |properties: &str, text: &str| {
        format!("<r><rPr>{properties}<sz val=\"11\"/></rPr><t xml:space=\"preserve\">{text}</t></r>")
    };
    let (raised, lowered) = ("<vertAlign val=\"superscript\"/>", "<vertAlign val=\"subscript\"/>");
    let runs = [
        "<r><t>10</t></r>".to_owned(),
        run(raised, "6 "),
        run("<vertAlign val=\"baseline\"/>", "m"),
        run(raised, "-2"),
        run("", ", the 1"),
        run(raised, "st"),
        run("", " of CO"),
        run(lowered, "2"),
        run(&format!("{raised}<sz val=\"1\"/>"), "7").replace("<sz val=\"11\"/>", ""),
    ]
    .concat();
    let mut parts = xlsx_parts();
    let rows = format!(
        "<row r=\"1\">{}{}</row><row r=\"2\"><c r=\"A2\" t=\"s\"><v>0</v></c><c r=\"B2\" t=\"inlineStr\"><is>{runs}</is></c></row>",
        text_cell("A1", 0, "Shared"),
        text_cell("B1", 0, "Inline")
    );
    let sheet = format!("<worksheet xmlns=\"{SHEET}\"><sheetData>{rows}</sheetData></worksheet>");
    put(&mut parts, "xl/worksheets/sheet1.xml", &sheet);
    put(&mut parts, "xl/sharedStrings.xml", &format!("<sst xmlns=\"{SHEET}\"><si>{runs}</si></sst>"));
    let text = extracted(MediaType::Xlsx, &parts).document.text;
    let expected = "10⁶ m⁻², the 1st of CO2";
    assert!(text.contains(&format!("Shared: {expected}; Inline: {expected}\n")), "{text}");
}

#[test]
fn merged_values_are_repeated_in_each_row() {
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
fn formulas_that_were_never_calculated_are_read_themselves() {
    let row = |number: u32, cells: &str| format!("<row r=\"{number}\">{cells}</row>");
    let content = [
        row(
            1,
            &["A1", "B1", "C1", "D1", "E1"].map(|cell| text_cell(cell, 0, &format!("in {cell}"))).concat(),
        ),
        row(
            2,
            "<c r=\"A2\"><f>SUM(A3:A9)</f><v></v></c><c r=\"B2\" s=\"13\"><f>IF(A2&gt;1,&quot;x&quot;,2)</f></c>\
             <c r=\"C2\" t=\"str\"><f>\"\"</f><v></v></c><c r=\"D2\" s=\"4\"><f>SECRET()</f><v/></c>\
             <c r=\"E2\"><f t=\"shared\" si=\"0\"/><v></v></c>",
        ),
        row(3, "<c r=\"A3\"><f>1+2</f><v>3</v></c><c r=\"B3\"><f>1/0</f><v>4</v></c>"),
    ];
    let content = format!("<sheetData>{}</sheetData>", content.concat());
    assert_eq!(
        sheet_text(&content),
        "## R&D\n\nin A1: =SUM(A3:A9); in B1: =IF(A2>1,\"x\",2)\nin A1: 3; in B1: 4",
        "an empty text is the value of a formula, and a hidden one is not read"
    );
}

#[test]
fn columns_below_a_merged_header_are_named_by_both_rows() {
    let row = |number: u32, cells: &str| format!("<row r=\"{number}\">{cells}</row>");
    let text = |reference: &str, text: &str| text_cell(reference, 0, text);
    let number = |reference: &str, number: u32| format!("<c r=\"{reference}\"><v>{number}</v></c>");
    let content = format!(
        "<sheetData>{}{}{}</sheetData><mergeCells><mergeCell ref=\"A1:A2\"/><mergeCell ref=\"B1:C1\"/></mergeCells>",
        row(1, &[text("A1", "Region"), text("B1", "Sold")].concat()),
        row(2, &[text("B2", "Q1"), text("C2", "Q2")].concat()),
        row(3, &[text("A3", "North"), number("B3", 5), number("C3", 6)].concat()),
    );
    assert_eq!(sheet_text(&content), "## R&D\n\nRegion: North; Sold Q1: 5; Sold Q2: 6");
}

#[test]
fn tables_below_rows_that_are_not_written_have_their_own_headers() {
    let row = |number: u32, texts: &[&str]| {
        let cell = |(index, text): (usize, &&str)| {
            text_cell(&format!("{}{number}", ["A", "B", "C"][index]), 0, text)
        };
        let cells: String = texts.iter().enumerate().map(cell).collect();
        format!("<row r=\"{number}\">{cells}</row>")
    };
    let prices = [row(3, &["Article", "Price", "Stock"]), row(4, &["Chair", "49", "3"])].concat();
    let managers = [row(6, &["Region", "Manager"]), row(7, &["North", "Ada"])].concat();
    assert_eq!(
        sheet_text(&format!("<sheetData>{prices}{managers}</sheetData>")),
        "## R&D\n\nArticle: Chair; Price: 49; Stock: 3\nRegion: North; Manager: Ada"
    );
    // A hidden row is not an empty one.
    let hidden = row(5, &["secret", "secret"]).replace("<row ", "<row hidden=\"1\" ");
    let text = sheet_text(&format!("<sheetData>{prices}{hidden}{managers}</sheetData>"));
    assert!(text.ends_with("Article: North; Price: Ada") && !text.contains("secret"), "{text}");
}

#[test]
fn groups_of_columns_are_named_beside_an_empty_corner() {
    let row = |number: u32, cells: &str| format!("<row r=\"{number}\">{cells}</row>");
    let text = |reference: &str, text: &str| text_cell(reference, 0, text);
    let number = |reference: &str, number: u32| format!("<c r=\"{reference}\"><v>{number}</v></c>");
    let content = format!(
        "<sheetData>{}{}{}{}</sheetData><mergeCells><mergeCell ref=\"B1:C1\"/><mergeCell ref=\"D1:E1\"/></mergeCells>",
        row(1, &[number("B1", 2023), number("D1", 2024)].concat()),
        row(2, &[text("B2", "Q1"), text("C2", "Q2"), text("D2", "Q1"), text("E2", "Q2")].concat()),
        row(3, &text("A3", "Region")),
        row(
            4,
            &[text("A4", "North"), number("B4", 1), number("C4", 2), number("D4", 3), number("E4", 4)]
                .concat()
        ),
    );
    assert_eq!(
        sheet_text(&content),
        "## R&D\n\nRegion: North; 2023 Q1: 1; 2023 Q2: 2; 2024 Q1: 3; 2024 Q2: 4"
    );
}
