//! Text of word processor documents: hidden runs, colors, fields, tracked changes and formulas.

use super::*;

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
fn superscripts_are_separated_from_numbers() {
    let script = |kind: &str| format!("<w:vertAlign w:val=\"{kind}\"/>");
    let (raised, lowered) = (script("superscript"), script("subscript"));
    let text = word_text(&format!(
        "<w:p>{}</w:p>",
        [
            run("", "10"),
            run(&raised, "6 "),
            run("", "m"),
            run(&format!("<w:b w:val=\"0\"/>{raised}"), "2"),
            run("", ", the 1"),
            run(&raised, "st"),
            run("", " of H"),
            run(&lowered, "2"),
            run(&script("baseline"), "O"),
            run(&format!("<w:vanish/>{raised}"), "7"),
        ]
        .concat()
    ));
    assert_eq!(text, "10⁶ m², the 1st of H2O");
}

#[test]
fn superscripts_of_styles_are_not_digits_of_numbers() {
    let script = |kind: &str| format!("<w:rPr><w:vertAlign w:val=\"{kind}\"/></w:rPr>");
    let style = |kind: &str, id: &str, base: &str, properties: &str| {
        format!(
            "<w:style w:type=\"{kind}\" w:styleId=\"{id}\"><w:basedOn w:val=\"{base}\"/>{properties}</w:style>"
        )
    };
    let styles = [
        style("character", "Raised", "None", &script("superscript")),
        style("character", "Mark", "Raised", ""),
        style("character", "Flat", "Raised", &script("baseline")),
        style("paragraph", "Marks", "None", &script("superscript")),
        style("paragraph", "Notes", "Marks", ""),
    ];
    let styles = format!("<w:styles xmlns:w=\"{WORD}\">{}</w:styles>", styles.concat());
    let of_style = |id: &str, text: &str| run(&format!("<w:rStyle w:val=\"{id}\"/>"), text);
    let body = [
        "<w:p>".to_owned(),
        run("", "10"),
        of_style("Raised", "6 "),
        run("", "m"),
        of_style("Mark", "2"),
        run("", ", the 1"),
        of_style("Mark", "st"),
        run("", " of "),
        of_style("Flat", "3"),
        run("<w:rStyle w:val=\"Mark\"/><w:vertAlign w:val=\"baseline\"/>", "4"),
        run("<w:rStyle w:val=\"Mark\"/><w:vertAlign w:val=\"subscript\"/>", "5"),
        "</w:p><w:p><w:pPr><w:pStyle w:val=\"Notes\"/></w:pPr>".to_owned(),
        run("", "7"),
        of_style("Flat", "8"),
        "</w:p>".to_owned(),
    ];
    let text = word_text_beside(&[("word/styles.xml", &styles)], &body.concat());
    assert_eq!(text, "10⁶ m², the 1st of 345\n\n⁷8");
}

#[test]
fn bars_in_cells_of_tables_end_no_cell() {
    let cell = |text: &str| format!("<w:tc><w:p>{}</w:p></w:tc>", run("", text));
    let row = |cells: [&str; 2]| format!("<w:tr>{}</w:tr>", cells.map(cell).concat());
    let table = format!("<w:tbl>{}{}</w:tbl>", row(["Sex (m|w|d)", "Count"]), row(["m", "1|2"]));
    assert_eq!(word_text(&table), "| Sex (m\\|w\\|d) | Count |\n| --- | --- |\n| m | 1\\|2 |");
}

#[test]
fn diagrams_are_read_as_their_texts() {
    let point = |text: &str| {
        format!("<dgm:pt modelId=\"{text}\"><dgm:t><a:p><a:r><a:t>{text}</a:t></a:r></a:p></dgm:t></dgm:pt>")
    };
    let data = format!(
        "<dgm:dataModel><dgm:ptLst>{}{}</dgm:ptLst></dgm:dataModel>",
        point("Plan"),
        point("Do &amp; check")
    );
    let relations = "<Relationships xmlns=\"http://schemas.openxmlformats.org/package/2006/relationships\"><Relationship Id=\"rId1\" \
        Target=\"styles.xml\" Type=\"http://schemas.openxmlformats.org/officeDocument/2006/relationships/styles\"/><Relationship Id=\"rId7\" \
        Target=\"diagrams/data1.xml\" \
        Type=\"http://schemas.openxmlformats.org/officeDocument/2006/relationships/diagramData\"/></Relationships>";
    let drawing = "<w:drawing><wp:inline><a:graphic><a:graphicData><dgm:relIds r:dm=\"rId7\"/></a:graphicData></a:graphic></wp:inline></w:drawing>";
    let body = format!("<w:p>{}<w:r>{drawing}</w:r></w:p>", run("", "before"));
    let parts = [("word/diagrams/data1.xml", data.as_str()), ("word/_rels/document.xml.rels", relations)];
    let text = word_text_beside(&parts, &body);
    assert!(text.starts_with("before") && text.contains("Plan; Do & check"), "{text}");
}

#[test]
fn symbols_readings_and_deleted_rows() {
    let symbol = |font: &str, code: &str| format!("<w:sym w:font=\"{font}\" w:char=\"{code}\"/>");
    let dose = format!(
        "<w:p><w:r><w:t>10</w:t><w:t xml:space=\"preserve\"> </w:t>{}<w:t xml:space=\"preserve\">g </w:t>{}</w:r>\
         <w:r><w:rPr><w:vanish/></w:rPr>{}</w:r></w:p>",
        symbol("Symbol", "F06D"),
        symbol("Wingdings", "F0FE"),
        symbol("Symbol", "F061")
    );
    assert_eq!(word_text(&dose), "10 \u{b5}g ☑");
    let ruby = |reading: &str, base: &str| {
        format!(
            "<w:r><w:ruby><w:rt><w:r><w:t>{reading}</w:t></w:r></w:rt><w:rubyBase><w:r><w:t>{base}</w:t></w:r>\
             </w:rubyBase></w:ruby></w:r>"
        )
    };
    assert_eq!(word_text(&format!("<w:p>{}{}</w:p>", ruby("とう", "東"), ruby("きょう", "京"))), "東京");
    let row = |properties: &str, text: &str| {
        format!("<w:tr><w:trPr>{properties}</w:trPr><w:tc><w:p>{text}</w:p></w:tc></w:tr>")
    };
    let former = "<w:del w:id=\"2\"><w:r><w:delText>old</w:delText></w:r></w:del>";
    let rows = [row("", &run("", "a")), row("<w:del w:id=\"1\"/>", former), row("", &run("", "b"))];
    let table = format!("<w:tbl>{}</w:tbl>", rows.concat());
    assert_eq!(word_text(&table), "| a |\n| --- |\n| b |");
}

#[test]
fn theme_colors_are_resolved() {
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
fn white_text_is_hidden_only_on_a_white_background() {
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
         <w:r>{}</w:r>{}<w:r><w:rPr><w:vanish/></w:rPr><w:sym w:font=\"Symbol\" w:char=\"F061\"/>{}</w:r></w:p><w:tbl><w:tr><w:trPr><w:hidden/></w:trPr><w:tc><w:p>{}</w:p></w:tc></w:tr><w:tr><w:tc><w:p>{}</w:p></w:tc></w:tr></w:tbl>",
        field("begin"),
        field("separate"),
        run("", "page 7"),
        field("end"),
        run("", "x"),
        run("", "row"),
    );
    let text = word_text(&body);
    assert!(text.contains("page 7") && text.contains("row"), "{text}");
    assert!(!text.contains('x') && !text.contains('α') && !text.contains("PAGE"), "{text}");
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
fn lines_of_a_paragraph_stay_separate() {
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
fn paragraphs_of_a_note_stay_separate() {
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

#[test]
fn merged_cells_repeat_their_value_in_each_row() {
    let cell = |properties: &str, text: &str| {
        format!("<w:tc><w:tcPr>{properties}</w:tcPr><w:p>{}</w:p></w:tc>", run("", text))
    };
    let row = |cells: &[String]| format!("<w:tr>{}</w:tr>", cells.concat());
    let long = "long ".repeat(50);
    for further in ["<w:vMerge/>", "<w:vMerge w:val=\"continue\"/>"] {
        let first = "<w:vMerge w:val=\"restart\"/>";
        let rows = [
            row(&[cell("", "Region"), cell("", "City"), cell("", "Note")]),
            row(&[cell(first, "North"), cell("", "Kiel"), cell(first, long.trim())]),
            row(&[cell(further, ""), cell("", "Bremen"), cell(further, "")]),
            row(&[cell(further, ""), cell("", "Emden"), cell("", "last")]),
            row(&[cell("<w:gridSpan w:val=\"2\"/>", "all"), cell("", "end")]),
        ];
        let expected = format!(
            "| Region | City | Note |\n| --- | --- | --- |\n| North | Kiel | {} |\n| North | Bremen |  |\n| North | Emden | last |\n| all |  | end |",
            long.trim()
        );
        assert_eq!(word_text(&format!("<w:tbl>{}</w:tbl>", rows.concat())), expected, "{further}");
    }
}

#[test]
fn numbers_of_headings_and_clauses_are_read_as_they_are_shown() {
    let level = |number: usize, properties: &str| {
        format!("<w:lvl w:ilvl=\"{number}\"><w:start w:val=\"1\"/>{properties}</w:lvl>")
    };
    let list = |number: usize, levels: &[String]| {
        format!("<w:abstractNum w:abstractNumId=\"{number}\">{}</w:abstractNum>", levels.concat())
    };
    let lists = [
        list(
            1,
            &[
                level(0, "<w:numFmt w:val=\"decimal\"/><w:lvlText w:val=\"%1.\"/>"),
                level(1, "<w:numFmt w:val=\"decimal\"/><w:lvlText w:val=\"%1.%2\"/>"),
            ],
        ),
        list(2, &[level(0, "<w:numFmt w:val=\"bullet\"/><w:lvlText w:val=\"•\"/>")]),
        "<w:num w:numId=\"1\"><w:abstractNumId w:val=\"1\"/></w:num>".to_owned(),
        "<w:num w:numId=\"2\"><w:abstractNumId w:val=\"2\"/></w:num>".to_owned(),
    ];
    let numbering = format!("<w:numbering xmlns:w=\"{WORD}\">{}</w:numbering>", lists.concat());
    let in_list = |list: u32, level: u32| {
        format!("<w:numPr><w:ilvl w:val=\"{level}\"/><w:numId w:val=\"{list}\"/></w:numPr>")
    };
    let paragraph =
        |properties: &str, text: &str| format!("<w:p><w:pPr>{properties}</w:pPr>{}</w:p>", run("", text));
    let heading = "<w:pStyle w:val=\"Heading1\"/>";
    let deleted = "<w:rPr><w:del w:id=\"1\"/></w:rPr>";
    let body = [
        paragraph(&format!("{heading}{}", in_list(1, 0)), "Scope"),
        paragraph(&in_list(1, 1), "Parties"),
        format!(
            "<w:p><w:pPr>{}{deleted}</w:pPr><w:del w:id=\"2\">{}</w:del></w:p>",
            in_list(1, 1),
            run("", "gone")
        ),
        paragraph(&in_list(1, 1), "Fees"),
        paragraph(&format!("{heading}{}", in_list(1, 0)), "Term"),
        paragraph(&in_list(1, 0), "plain"),
        paragraph(&in_list(2, 0), "point"),
        paragraph(&format!("{heading}{}", in_list(0, 0)), "Annex"),
        format!("<w:tbl><w:tr><w:tc>{}</w:tc></w:tr></w:tbl>", paragraph(&in_list(1, 0), "cell")),
    ];
    let text = word_text_beside(&[("word/numbering.xml", &numbering)], &body.concat());
    assert_eq!(
        text,
        "# 1. Scope\n\n1.1 Parties\n\n1.2 Fees\n\n# 2. Term\n\n3. plain\n- point\n\n# Annex\n\n| 4. cell |\n| --- |"
    );
}

#[test]
fn numbers_of_styles_are_read() {
    let numbering = format!(
        "<w:numbering xmlns:w=\"{WORD}\"><w:abstractNum w:abstractNumId=\"1\"><w:lvl w:ilvl=\"0\"><w:start w:val=\"1\"/>\
         <w:lvlText w:val=\"§ %1\"/></w:lvl></w:abstractNum><w:num w:numId=\"1\"><w:abstractNumId w:val=\"1\"/></w:num></w:numbering>"
    );
    let mut parts = docx_parts();
    put(&mut parts, "word/numbering.xml", &numbering);
    let list = "<w:pPr><w:numPr><w:numId w:val=\"1\"/></w:numPr><w:outlineLvl w:val=\"0\"/></w:pPr>";
    edit(&mut parts, "word/styles.xml", "<w:pPr><w:outlineLvl w:val=\"0\"/></w:pPr>", list);
    let text = extracted(MediaType::Docx, &parts).document.text;
    assert!(text.starts_with("# § 1 Leave policy\n"), "{text}");
}

#[test]
fn comments_are_placed_at_the_text_that_they_refer_to() {
    let comments = format!(
        "<w:comments xmlns:w=\"{WORD}\"><w:comment w:id=\"7\"><w:p>{}{}</w:p></w:comment></w:comments>",
        run("", "Since May?"),
        run("<w:vanish/>", "secret"),
    );
    let reference = |id: u32| format!("<w:r><w:commentReference w:id=\"{id}\"/></w:r>");
    let body =
        format!("<w:p>{}{}{}{}</w:p>", run("", "It is 5 %"), reference(7), reference(8), run("", " now."));
    let text = word_text_beside(&[("word/comments.xml", &comments)], &body);
    assert_eq!(text, "It is 5 % [Comment: Since May?] now.");
}

#[test]
fn two_header_rows_name_the_columns_together() {
    let cell = |(properties, text): &(&str, &str)| {
        format!("<w:tc><w:tcPr>{properties}</w:tcPr><w:p>{}</w:p></w:tc>", run("", text))
    };
    let row = |cells: &[(&str, &str)]| format!("<w:tr>{}</w:tr>", cells.iter().map(cell).collect::<String>());
    let (group, first, next) = ("<w:gridSpan w:val=\"2\"/>", "<w:vMerge w:val=\"restart\"/>", "<w:vMerge/>");
    let table = |rows: &[String]| format!("<w:tbl>{}</w:tbl>", rows.concat());
    let groups = row(&[(first, "Region"), (group, "Sold"), (group, "Returned")]);
    let years = row(&[(next, ""), ("", "2023"), ("", "2024"), ("", "2023"), ("", "2024")]);
    let values = row(&[("", "North"), ("", "1"), ("", "2"), ("", "3"), ("", "4")]);
    assert_eq!(
        word_text(&table(&[groups, years, values])),
        "| Region | Sold 2023 | Sold 2024 | Returned 2023 | Returned 2024 |\n| --- | --- | --- | --- | --- |\n\
         | North | 1 | 2 | 3 | 4 |"
    );
    // A row of values below a name that is merged over their columns.
    let names = row(&[("", "Name"), (group, "Contact")]);
    let ada = row(&[("", "Ada"), ("", "London"), ("", "Ring twice")]);
    let text = word_text(&table(&[names, ada.clone(), ada]));
    assert_eq!(text.matches("| Ada | London | Ring twice |").count(), 2, "{text}");
}

#[test]
fn lines_of_text_are_no_headings() {
    let paragraph = |runs: &str| format!("<w:p>{runs}</w:p>");
    let text = word_text(
        &[
            paragraph(&run("", "# systemctl restart")),
            paragraph(&format!("{}<w:r><w:br/></w:r>{}", run("", "#1 and"), run("", "## two"))),
        ]
        .concat(),
    );
    assert_eq!(text, "\\# systemctl restart\n\n#1 and\n\\## two");
}

#[test]
fn a_title_above_the_columns_of_a_table_is_not_its_header() {
    let row = |cells: &[(&str, &str)]| {
        let cell = |(properties, text): &(&str, &str)| {
            format!("<w:tc><w:tcPr>{properties}</w:tcPr><w:p>{}</w:p></w:tc>", run("", text))
        };
        format!("<w:tr>{}</w:tr>", cells.iter().map(cell).collect::<String>())
    };
    let title = row(&[("<w:gridSpan w:val=\"2\"/>", "Prices")]);
    let (header, chair) = (row(&[("", "Article"), ("", "Price")]), row(&[("", "Chair"), ("", "49")]));
    let text = word_text(&format!("<w:tbl>{title}{header}{chair}</w:tbl>"));
    assert_eq!(text, "Prices\n\n| Article | Price |\n| --- | --- |\n| Chair | 49 |");
}
