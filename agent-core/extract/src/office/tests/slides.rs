//! Text of presentations: hidden shapes and slides, text in the color of its background, charts and notes.

use super::*;
use crate::fixtures::pptx_parts;

#[test]
fn hidden_and_duplicate_shapes_are_dropped() {
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
fn text_in_the_slides_background_color_is_dropped() {
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
fn superscripts_are_separated_from_numbers() {
    let mut parts = pptx_parts();
    let run = |properties: &str, text: &str| format!("<a:r><a:rPr{properties}/><a:t>{text}</a:t></a:r>");
    let runs = [
        run("", "10"),
        run(" baseline=\"30000\"", "6 "),
        run("", "and 1"),
        run(" baseline=\"30%\"", "st"),
        run("", " H"),
        run(" baseline=\"-25000\"", "2"),
    ];
    let shape = format!(
        "<p:sp><p:spPr/><p:txBody><a:bodyPr/><a:p>{}</a:p></p:txBody></p:sp></p:spTree>",
        runs.concat()
    );
    edit(&mut parts, "ppt/slides/slide1.xml", "</p:spTree>", &shape);
    let text = extracted(MediaType::Pptx, &parts).document.text;
    assert!(text.contains("10⁶ and 1st H2"), "{text}");
}

#[test]
fn diagrams_are_tables_of_their_texts() {
    let mut parts = pptx_parts();
    let frame = "<p:graphicFrame><p:nvGraphicFramePr><p:cNvPr id=\"9\" name=\"d\"/></p:nvGraphicFramePr><a:graphic><a:graphicData \
        uri=\"http://schemas.openxmlformats.org/drawingml/2006/diagram\"><dgm:relIds r:dm=\"rId1\" r:lo=\"rId2\"/></a:graphicData>\
        </a:graphic></p:graphicFrame></p:spTree>";
    edit(&mut parts, "ppt/slides/slide1.xml", "</p:spTree>", frame);
    let point = |text: &str| {
        format!("<dgm:pt modelId=\"{text}\"><dgm:t><a:p><a:r><a:t>{text}</a:t></a:r></a:p></dgm:t></dgm:pt>")
    };
    let data =
        format!("<dgm:dataModel><dgm:ptLst>{}{}</dgm:ptLst></dgm:dataModel>", point("Plan"), point("Do"));
    put(&mut parts, "ppt/diagrams/data1.xml", &data);
    let relations = "<Relationships xmlns=\"http://schemas.openxmlformats.org/package/2006/relationships\"><Relationship Id=\"rId1\" \
        Target=\"../diagrams/data1.xml\" \
        Type=\"http://schemas.openxmlformats.org/officeDocument/2006/relationships/diagramData\"/></Relationships>";
    put(&mut parts, "ppt/slides/_rels/slide1.xml.rels", relations);
    let text = extracted(MediaType::Pptx, &parts).document.text;
    let first_slide = text.split("\n\n# ").next().unwrap_or_default();
    assert!(first_slide.ends_with("| Plan |\n| --- |\n| Do |"), "{text}");
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
fn notes_belong_to_their_slide() {
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

#[test]
fn merged_cells_repeat_their_value_in_each_row() {
    let cell = |attributes: &str, text: &str| {
        format!("<a:tc{attributes}><a:txBody><a:p><a:r><a:t>{text}</a:t></a:r></a:p></a:txBody></a:tc>")
    };
    let row = |cells: &[String]| format!("<a:tr>{}</a:tr>", cells.concat());
    let rows = [
        row(&[cell("", "Region"), cell("", "City")]),
        row(&[cell(" rowSpan=\"2\"", "North"), cell("", "Kiel")]),
        row(&[cell(" vMerge=\"1\"", ""), cell("", "Bremen")]),
    ];
    let frame = format!(
        "<p:graphicFrame><a:graphic><a:graphicData><a:tbl>{}</a:tbl></a:graphicData></a:graphic></p:graphicFrame></p:spTree>",
        rows.concat()
    );
    let mut parts = pptx_parts();
    edit(&mut parts, "ppt/slides/slide1.xml", "</p:spTree>", &frame);
    let text = extracted(MediaType::Pptx, &parts).document.text;
    assert!(text.contains("| North | Kiel |\n| North | Bremen |"), "{text}");
}
