//! Extraction of pages.

use super::*;

fn markdown(html: &str) -> String {
    extract(html.as_bytes(), &ExtractionLimits::default()).unwrap().document.text
}

#[test]
fn structure_is_kept() {
    let html = "<!doctype html><html><head><title>Leave &amp; absence</title><style>p{}</style></head><body>\
        <h1>Leave</h1><p>All <b>employees</b> have 30&nbsp;days.<ul><li>full time<li>part time</ul>\
        <table><tr><th>Years</th><th>Days</th></tr><tr><td>1</td><td>30</td></tr></table>\
        <pre><code>if a_b &lt; *c {\n  x[0]\n}</code></pre></body></html>";
    let document = extract(html.as_bytes(), &ExtractionLimits::default()).unwrap().document;
    assert_eq!(document.title, "Leave & absence");
    assert_eq!(document.format, TextFormat::Markdown);
    let expected = "# Leave\n\nAll **employees** have 30\u{a0}days.\n\n- full time\n- part time\n\n\
        | Years | Days |\n| --- | --- |\n| 1 | 30 |\n\n```\nif a_b < *c {\n  x[0]\n}\n```";
    assert_eq!(document.text, expected);
}

#[test]
fn invisible_content_is_dropped() {
    let html = "<nav><a href=/>Home</a></nav><script>alert(1)</script><!-- ignore --><p>seen</p>\
        <p hidden>h1</p><p aria-hidden=true>h2</p><div style='Display : None'>h3</div><p style='font-size:0'>h4</p>\
        <div role=navigation>h5</div><noscript>h6</noscript><template>h7</template><svg><text>h8</text></svg>\
        <style>h9</style><p style='opacity:0.5'>faint</p><button>Accept</button>\
        <p style='color:red;font-size: 0px'>h10</p><p style='opacity:0.0 !important'>h11</p>\
        <p style='visibility:collapse'>h12</p><p style='opacity:0%;'>h13</p>";
    assert_eq!(markdown(html), "seen\n\nfaint");
}

#[test]
fn text_is_not_escaped() {
    assert_eq!(markdown("<p>snake_case *p = a[0] &lt;b&gt; C:\\dir</p>"), "snake_case *p = a[0] <b> C:\\dir");
    assert_eq!(markdown("<p>1. one</p><p># two</p><p>- three</p>"), "1. one\n\n\\# two\n\n- three");
    assert_eq!(markdown("a\u{f003c}b"), "ab");
}

#[test]
fn links_and_pictures_are_text() {
    let html = "<p><a href=https://x.example/a_b>Docs</a>, <a href=/local>local</a>, <a href='javascript:x'>no</a>, \
        <a href=https://x.example>https://x.example</a> <img src='data:image/png;base64,AAAA' alt='a chart'><img src=a></p>";
    assert_eq!(markdown(html), "[Docs](https://x.example/a_b), local, no, https://x.example a chart");
}

#[test]
fn nesting_is_limited() {
    let nested = |depth: usize| format!("{}text", "<div>".repeat(depth));
    assert_eq!(markdown(&nested(200)), "text");
    let error = extract(nested(5_000).as_bytes(), &ExtractionLimits::default()).unwrap_err();
    assert_eq!(error, ExtractError::LimitExceeded("the nesting of elements".to_owned()));
}

#[test]
fn text_that_styles_hide_is_dropped() {
    for hidden in [
        "<p style='color:#fff'>x</p>",
        "<p style='color: White; background: #FFFFFF'>x</p>",
        "<p style='color:rgb(254, 254, 254)'>x</p>",
        "<p style='color:hsl(0 0% 100%)'>x</p>",
        "<div style='background:#112233'><p style='color:#112233'>x</p></div>",
        "<font color='#ffffff'>x <b>y</b></font>",
        "<p style='color:transparent'>x</p><p style='color:rgba(0,0,0,0)'>y</p>",
        "<div style='font-size:0'>x<b style='font-size:2em'>y</b></div>",
        "<p style='font-size:1px'>x</p><p style='font:0/0 a'>y</p>",
        "<p style='position:absolute;left:-9999px'>x</p>",
        "<p style='position:fixed;inset:-100vh auto auto 0'>x</p>",
        "<p style='margin:0 0 0 -10000px'>x</p><p style='margin-top:-10000px'>y</p>",
        "<h2 style='text-indent:-9999px'>x</h2>",
        "<p style='clip-path:inset(100%)'>x</p><p style='clip-path:inset(0 100% 0 0)'>y</p>",
        "<p style='position:absolute;clip:rect(0,0,0,0)'>x</p>",
        "<p style='position:absolute;clip:rect(1px 1px 1px 1px)'>x</p>",
        "<p style='width:1px;height:1px;overflow:hidden'>x</p>",
        "<p style='transform:scale(0)'>x</p><p style='filter:opacity(0)'>y</p>",
        "<p style='transform:rotate(3deg) scaleY(0)'>x</p><p style='scale:1 0'>y</p>",
        "<p style='transform:scale(0, 1)'>x</p><p style='transform:scale3d(1,0,1)'>y</p>",
        "<p style='color:oklch(100% 0 0)'>x</p><p style='color:lab(100 0 0)'>y</p>",
        "<p style='color:hwb(120 100% 0%)'>x</p><p style='color:color(srgb 1 1 .99)'>y</p>",
        "<p style='visibility:hidden'><b>x</b><img src=a alt=x></p>",
        "<p style='/* ; */color:red;color/**/:#fff'>x</p>",
        "<style>.x{display:none}</style><p class='a x'>x</p>",
        "<style>#x { color: #fff }</style><p id=x>x</p>",
        "<style>p.x, div.x {font-size:0 !important}</style><p class=x style='font-size:12px'>x</p>",
        "<style>body{background:#111} .x{color:#111}</style><p class=x>x</p>",
        "<script>run()</script><style>.x{color:#000}</style><p class=x style='color:#fff;background:#fff'>x</p>",
        "<style>*{padding:0;flex:none}</style><p style='height:0;overflow:hidden'>x</p><p style='margin-left:-9999px'>y</p>",
        "<div style='-webkit-text-fill-color:#fff;text-shadow:none'><p style='color:#000'>x</p></div>",
        "<style media=screen>.x{display:none}</style><p class=x>x</p>",
        "<style>a{color:inherit}</style><p style='color:#fff'><a href=/a>x</a></p>",
        "<style>.x{color:#fff;margin:-1px}</style><p class=x>x</p>",
        "<ul><li style='color:#fff'>x</li><li><code style='opacity:0.01'>y</code></li></ul>",
        "<p style='transform:translate(-9999px)'>x</p><p style='transform:translateY(-10000px)'>y <b>z</b></p>",
        "<div style='transform:translateX(-999em)'><p style='transform:translate3d(9px,0,0)'>x</p></div>",
        "<p style='translate:-9999px 0'>x</p><span style='position:absolute;transform:translateX(-9999px)'>y</span>",
        "<style>.x{transform:translatex(-10000px)}</style><p class=x>x <img src=a alt=y></p>",
        "<p style='clip-path:polygon(0 0, 0px 0, 0 0)'>x</p><p style='clip-path:polygon(1px 0,1px 9px,1px 5px)'>y</p>",
        "<span style='display:inline-block;transform:scale(0)'>x</span>",
        "<a style='display:block;text-indent:-9999px'>x</a>",
        "<div style='display:flex'><span style='transform:scale(0)'>x</span></div>",
        "<p style='transform:translateX(-100vw)'>x</p><div style='translate:-200dvw'>y <b>z</b></div>",
        "<div style='transform:translate(-60vw)'><p style='transform:translate3d(-60vw,0,0)'>x</p></div>",
        "<span style='display:inline-block;transform:translateX(-150svw)'>x</span>",
        "<p style='transform:translateY(-999vh)'>x</p><p style='position:absolute;top:-100lvh'>y</p>",
        "<p style='text-indent:9999px;white-space:pre;overflow:clip'>x</p>",
        "<p style='text-indent:100%;white-space:nowrap;overflow:hidden'>y</p>",
        "<p><span style='float:left;width:0;overflow:hidden'>x</span></p>",
    ] {
        assert_eq!(markdown(&format!("<p>seen</p>{hidden}")), "seen", "{hidden}");
    }
}

#[test]
fn text_that_may_be_seen_is_kept() {
    for shown in [
        "<p style='color:#fff;background:#000'>shown</p>",
        "<div style='background-color:navy'><p style='color:white'>shown</p></div>",
        "<div style='background:tomato'><p style='color:white'>shown</p></div>",
        "<div bgcolor='#000000'><font color='#ffffff'>shown</font></div>",
        "<div style='background:url(a.png)'><p style='color:#fff'>shown</p></div>",
        "<div style='background:linear-gradient(#000,#111)'><p style='color:#fff'>shown</p></div>",
        "<div style='font-size:0'><span style='font-size:16px'>shown</span></div>",
        "<div style='visibility:hidden'>x<p style='visibility:visible'>shown</p></div>",
        "<div style='text-indent:-9999px'>x<p style='text-indent:0'>shown</p></div>",
        "<p style='left:-9999px'>shown</p>",
        "<p style='position:absolute;color:#fff'>shown</p>",
        "<p style='color:#fff;text-shadow:0 0 2px #000'>shown</p>",
        "<p style='color:transparent;background:linear-gradient(red,blue);-webkit-background-clip:text'>shown</p>",
        "<div style='color:#fff'>x<a href='/a'>shown</a></div>",
        "<p style='color:transparent;-webkit-text-stroke:1px #000'>shown</p>",
        "<p style='color:#fff;mix-blend-mode:difference'>shown</p>",
        "<p style='color:#fff;filter:drop-shadow(0 0 2px #000)'>shown</p>",
        "<div style='-webkit-text-fill-color:#000'><p style='color:#fff'>shown</p></div>",
        "<p style='color:var(--ink)'>shown</p>",
        "<p style='color:oklch(60% 0 0)'>shown</p>",
        "<p style='color:hwb(120 40% 40%)'>shown</p>",
        "<p style='color:color(srgb .5 .5 .5)'>shown</p>",
        "<p style='color:lab(100 0 0 / 0.5)'>shown</p>",
        "<p style='transform:scale(0.5)'>shown</p>",
        "<p style='transform:scale3d(1,1,0)'>shown</p>",
        "<p style='transform:scaleX(-1)'>shown</p>",
        "<p style='color:#555;--note:\";color:#fff\"'>shown</p>",
        "<p style='clip-path:inset(10%)'>shown</p>",
        "<div style='overflow:hidden;height:20px'>shown</div>",
        "<style>body{background:#000}</style><p style='color:#fff'>shown</p>",
        "<style>.dark .x{background:#000}</style><p class=x style='color:#fff'>shown</p>",
        "<style>.x{color:#fff}.x.y{color:#000}</style><p class='x y'>shown</p>",
        "<link rel=stylesheet href=a.css><p style='color:#fff'>shown</p>",
        "<style>.x{display:none}.open .x{display:block}</style><p class=x>shown</p>",
        "<style>@media print{.x{display:none}}</style><p class=x>shown</p>",
        "<style>.x{display:none}.x:target{display:block}</style><p class=x id=x>shown</p>",
        "<style>.x{display:none}</style><p onclick='toggle()'></p><p class=x>shown</p>",
        "<style>.x{opacity:0;transition:opacity 1s}</style><p class=x>shown</p>",
        "<style>.x{display:none}</style><p class=x style='display:block'>shown</p>",
        // Columns beside others, and bars that are wider than the page.
        "<div style='float:left;margin-left:-100%'>shown</div>",
        "<style>.x{margin:0 -9999px;padding:0 9999px}</style><div class=x>shown</div>",
        // Boxes that are larger than their size.
        "<div style='flex:1;width:0;overflow:hidden'>shown</div>",
        "<div style='width:1px;min-width:100%;overflow:hidden'>shown</div>",
        "<div style='height:0;padding-bottom:50%;overflow:hidden'><p style='position:absolute'>shown</p></div>",
        "<div style='display:table-cell;max-width:0;overflow:hidden'>shown</div>",
        "<p style='opacity:0;animation:appear 1s forwards'>shown</p>",
        // Slides, of which one is seen, and elements that are moved within the page, or back to it.
        "<div style='width:12210px;transform:translate3d(-9990px,0,0)'><p>shown</p></div>",
        "<div style='display:flex;transform:translateX(-9990px)'><p>shown</p></div>",
        "<div style='height:100%;transform:translate3d(0,-9450px,0)'><div style='height:945px'>shown</div></div>",
        "<script>run()</script><div style='transform:translateX(-9990px)'><p>shown</p></div>",
        "<p style='transform:translate(-50%,-50%);top:50%;left:50%;position:absolute'>shown</p>",
        "<p style='transform:translateX(-90vw)'>shown</p>",
        "<p style='transform:translateY(-100vh)'>shown</p>",
        "<p style='transform:translateX(-100vw) translateX(100vw)'>shown</p>",
        "<div style='transform:translateX(-100vw)'><p style='transform:translateX(50vw)'>shown</p></div>",
        "<div style='width:300vw;transform:translateX(-200vw)'><p style='float:left;width:100vw'>shown</p></div>",
        "<div style='transform:translateX(-200vw)'><div style='width:300vw'>shown</div></div>",
        "<div style='display:flex'><div style='transform:translateX(-100vw)'>shown</div></div>",
        "<div style='transform:translateX(-100vw);float:left'>shown</div>",
        "<div style='transform:translateX(-100vw)'><p style='position:absolute;left:100vw'>shown</p></div>",
        "<p style='text-indent:50%;white-space:nowrap;overflow:hidden'>shown</p>",
        "<p style='text-indent:100%;overflow:hidden'>shown</p>",
        "<p style='text-indent:9999px;white-space:nowrap'>shown</p>",
        "<p style='transform:translateX(9999px)'>shown</p>",
        "<p style='transform:rotate(180deg) translateX(-9999px)'>shown</p>",
        "<p style='transform:translateX(-9999px) translateX(9999px)'>shown</p>",
        "<div style='transform:translateX(-9999px)'><p style='transform:translateX(9999px)'>shown</p></div>",
        "<div style='transform:translateX(-9999px)'><p style='position:relative;left:9999px'>shown</p></div>",
        "<p style='position:absolute;left:9999px;transform:translateX(-9999px)'>shown</p>",
        "<p style='transform:translateX(-9999px);animation:appear 1s forwards'>shown</p>",
        "<style>.x{transform:translateX(-9999px)}.open .x{transform:none}</style><p class=x>shown</p>",
        "<p style='clip-path:polygon(0 0,100% 0,100% 100%)'>shown</p>",
        // Sizes, indents, upper margins and transformations have no effect within a line.
        "<p><span style='margin-top:-9999px'>shown</span></p>",
        "<p><span style='transform:translateX(-9999px)'>shown</span></p>",
        "<p><span style='transform:scale(0)'>shown</span></p>",
        "<p><span style='text-indent:-9999px'>shown</span></p>",
        "<p><span style='width:0;height:0;overflow:hidden'>shown</span></p>",
        // The element behind a text does not always contain it.
        "<div style='position:fixed;inset:0;background:#123;z-index:-1'></div><p style='color:#fff'>shown</p>",
        "<style>#x{position:absolute;z-index:-1}</style><div style='position:relative;background:#fff'><div id=x></div>\
         <p style='color:#fff'>shown</p></div>",
        "<div></div><p style='margin-top:-80px;color:#fff'>shown</p>",
        "<style>.x{grid-area:1/1}.y{color:#fff}</style><div class=x></div><p class='x y'>shown</p>",
        "<div background=a.png bgcolor='#ffffff'><p style='color:#fff'>shown</p></div>",
        "<div style='background:#0000ee;color:#fff'><a href=/a style='color:inherit'>shown</a></div>",
        "<div style='background:#000'><mark style='background:none;color:#ff0'>shown</mark></div>",
        // Rules for printed pages and others.
        "<style>@media screen, print{.x{background:#000}}</style><p class=x style='color:#fff'>shown</p>",
        "<style media='screen, print'>.x{background:#000}</style><p class=x style='color:#fff'>shown</p>",
        "<style media='(max-width: 600px)'>.x{display:none}</style><p class=x>shown</p>",
        "<style media=print>.x{display:none}</style><p class=x>shown</p>",
    ] {
        assert_eq!(markdown(shown), "shown", "{shown}");
    }
}

#[test]
fn hidden_cells_keep_their_columns() {
    let text = markdown("<table><tr><th>A<th>B<tr><td style='color:#fff'>x<td>2</table>");
    assert!(text.contains("B") && text.contains('2') && !text.contains('x'), "{text}");
    let bars: Vec<usize> = text.lines().map(|line| line.matches('|').count()).collect();
    assert_eq!(bars, [3; 3], "{text}");
}

#[test]
fn tables_keep_the_text_of_all_cells_at_their_columns() {
    for (table, expected) in [
        // Header cells beside others, and several rows of them.
        ("<tr><th>Name<td>Ada<tr><th>Born<td>1815", "| Name | Ada |\n| --- | --- |\n| Born | 1815 |"),
        (
            "<thead><tr><th colspan=2>Group<th>C<tr><th>A<th>B<th></thead><tr><td>1<td>2<td>3",
            "| Group A | Group B | C |\n| --- | --- | --- |\n| 1 | 2 | 3 |",
        ),
        ("<tr><th><th>2023<tr><th>Sales<td>5", "|  | 2023 |\n| --- | --- |\n| Sales | 5 |"),
        // Merged cells.
        (
            "<tr><th>A<th>B<th>C<tr><td rowspan=2>v<td>1<td>2<tr><td>3<td>4<tr><td colspan=2>5<td>6",
            "| A | B | C |\n| --- | --- | --- |\n| v | 1 | 2 |\n| v | 3 | 4 |\n| 5 |  | 6 |",
        ),
        // Values without header cells.
        ("<tr><td>a|b<td><p>1<p>2<tr><td>c<td>3<br>4", "| a\\|b | 1 2 |\n| --- | --- |\n| c | 3 4 |"),
        // A table within a cell, and one for layout.
        ("<tr><th>A<tr><td>x<table><tr><th>b<tr><td>1</table>", "| A |\n| --- |\n| x b 1 |"),
        (
            "<tr><td>left<td><ul><li>x</ul><tr><td><table><tr><th>A<tr><td>1</table><td>right",
            "left\n\n- x\n\n| A |\n| --- |\n| 1 |\n\nright",
        ),
        ("<caption>Title</caption><tr><th>A<tr><td>1", "Title\n| A |\n| --- |\n| 1 |"),
    ] {
        assert_eq!(markdown(&format!("<table>{table}</table>")), expected, "{table}");
    }
}

#[test]
fn merged_and_long_cells_do_not_multiply_the_text() {
    let long = "x".repeat(100_000);
    let rows = "<tr><td>1<td>2".repeat(1_000);
    let text = markdown(&format!("<table><tr><th>A<th>{long}{rows}</table>"));
    assert!(text.len() < 150_000, "{}", text.len());
    let columns = "<td rowspan=65534>value".repeat(999);
    let rows = "<tr><td>1".repeat(5_000);
    let text = markdown(&format!("<table><tr><th>A<tr>{columns}{rows}</table>"));
    assert!(text.matches("1 |").count() >= 5_000 && text.len() < 500_000, "{}", text.len());
    let row = format!("<tr>{}", "<td colspan=64>1".repeat(100));
    let text = markdown(&format!("<table><tr><th>A{}</table>", row.repeat(100)));
    assert!(text.matches("1 |").count() == 10_000 && text.len() < 150_000, "{}", text.len());
    let rows = "<tr><td>1".repeat(1_000);
    let text = markdown(&format!("<table><thead><tr><td>{long}</thead>{rows}</table>"));
    assert!(text.len() < 150_000, "{}", text.len());
}

#[test]
fn superscripts_and_formulas_keep_their_meaning() {
    for (html, expected) in [
        ("<p>10<sup>6</sup> m<sup>-2</sup>, 1<sup>st</sup>, H<sub>2</sub>O", "10⁶ m⁻², 1st, H2O"),
        ("<p>5 m<sup>2 </sup>of floor", "5 m² of floor"),
        (
            "<math><mi>x</mi><mo>=</mo><mfrac><mn>1</mn><mrow><mi>a</mi><mo>+</mo><mn>2</mn></mrow></mfrac></math>",
            "x=1/(a+2)",
        ),
        (
            "<math><semantics><msup><mi>x</mi><mn>2</mn></msup><annotation encoding='application/x-tex'>x^2</annotation></semantics></math>",
            "x^2",
        ),
        ("<math><msqrt><mn>2</mn></msqrt><mo>+</mo><msub><mi>x</mi><mi>i</mi></msub></math>", "√(2)+x_i"),
        ("<ruby>東<rp>(</rp><rt>とう</rt><rp>)</rp></ruby><ruby>京<rt>きょう</rt></ruby>", "東京"),
    ] {
        assert_eq!(markdown(html), expected, "{html}");
    }
}

#[test]
fn cells_are_as_large_as_their_text() {
    let cell = "<td style='max-width:0;overflow:hidden;text-overflow:ellipsis'>shown";
    let text = markdown(&format!("<table><tr><th>A<tr>{cell}</table>"));
    assert!(text.contains("shown"), "{text}");
    // The color of a column is behind its cells.
    let column = "<colgroup><col style='background:#123'></colgroup>";
    let text = markdown(&format!("<table bgcolor=white>{column}<tr><td style='color:#fff'>shown</table>"));
    assert!(text.contains("shown"), "{text}");
}

#[test]
fn several_header_rows_name_the_columns_together() {
    let row = |tag: &str, cells: &[&str]| {
        let cells: String = cells.iter().map(|cell| format!("<{tag}{cell}</{tag}>")).collect();
        format!("<tr>{cells}</tr>")
    };
    let groups = row("th", &[" rowspan=2>Region", " colspan=2>Sold", ">Returned"]);
    let years = row("th", &[">2023", ">2024", ">2024"]);
    let values = row("td", &[">North", ">1", ">2", ">3"]);
    let expected = "| Region | Sold 2023 | Sold 2024 | Returned 2024 |\n| --- | --- | --- | --- |\n| North | 1 | 2 | 3 |";
    assert_eq!(markdown(&format!("<table><thead>{groups}{years}</thead>{values}</table>")), expected);
    // The name of the rows is below those of the columns, as pandas writes it.
    let groups = row("th", &[">", " colspan=2>Sold", ">Returned"]);
    let years = row("th", &[">", ">2023", ">2024", ">2024"]);
    let index = row("th", &[">Region", ">", ">", ">"]);
    assert_eq!(markdown(&format!("<table>{groups}{years}{index}{values}</table>")), expected);
    // One header row, and header cells alone.
    let names = row("th", &[">A", ">B"]);
    let values = row("td", &[">1", ">2"]);
    assert_eq!(markdown(&format!("<table>{names}{values}</table>")), "| A | B |\n| --- | --- |\n| 1 | 2 |");
    assert_eq!(markdown(&format!("<table>{names}{names}</table>")), "| A | B |\n| --- | --- |\n| A | B |");
}

#[test]
fn merged_names_of_columns_are_repeated_up_to_the_limit() {
    let name = "n".repeat(150);
    let cells = format!("<th colspan=64>{name}</th>").repeat(500);
    let html = format!("<table><tr>{cells}</tr><tr><th>a</th></tr><tr><td>1</td></tr></table>");
    let text = markdown(&html);
    // Repeated without a limit, they would have 4.8 MB.
    assert!(text.len() < 1_500_000, "{} bytes of {}", text.len(), html.len());
    assert!(text.contains("| 1 |"), "{} bytes", text.len());
}

#[test]
fn quotations_have_their_marks() {
    assert_eq!(markdown("<p>He said <q>yes, <b>please</b></q>.<q> </q></p>"), "He said “yes, **please**”.");
}

#[test]
fn items_of_ordered_lists_have_the_numbers_that_are_shown() {
    for (list, expected) in [
        ("<ol type=a start=3><li>x<li>y</ol>", "c. x\nd. y"),
        ("<ol type=I><li>x<li>y<li value=49>z</ol>", "I. x\nII. y\nXLIX. z"),
        ("<ol reversed><li>x<li>y</ol>", "2. x\n1. y"),
        ("<ol><li>x<li value=7>y<li>z</ol>", "1. x\n7. y\n8. z"),
        ("<ol type=A start=26><li>x<li>y<li>z<li value=703>a</ol>", "Z. x\nAA. y\nAB. z\nAAA. a"),
        ("<ol type=i start=-1><li>x<li>y</ol>", "-1. x\n0. y"),
        ("<ol type=a><li><p>x<p>y<li>z</ol>", "a. x\n\n   y\nb. z"),
        ("<ol><li>x<ol type=a><li>y</ol></ol>", "1. x\n   a. y"),
        ("<ol start=4><li>x<li>y</ol>", "4. x\n5. y"),
    ] {
        assert_eq!(markdown(list), expected, "{list}");
    }
    let last = "<ol reversed start=-9223372036854775808><li>x<li>y</ol>";
    assert!(markdown(last).ends_with("y"), "{}", markdown(last));
}

#[test]
fn lines_of_text_and_code_are_no_headings() {
    for (html, expected) in [
        ("<p># systemctl restart</p><p>#1 and # 2</p>", "\\# systemctl restart\n\n#1 and # 2"),
        ("<ul><li>a<p>## b</p></ul>", "- a\n\n  \\## b"),
        // Preformatted text is code, without markup.
        (
            "<pre># install\napt install <b>vpn</b><br># start</pre>",
            "```\n# install\napt install vpn\n# start\n```",
        ),
        ("<pre class=language-sh><div>ls</div><div># end</div></pre>", "```sh\nls\n# end\n```"),
        ("<pre><code class='x language-c++'>\n  a\n</code></pre>", "```c++\n  a\n```"),
        ("<pre><code class='language-```'>a</code></pre>", "```\na\n```"),
        ("<pre> \n</pre><p>b</p>", "b"),
        // A fence is longer than those in the text.
        ("<pre>```sh\nls\n```</pre><p># b</p>", "````\n```sh\nls\n```\n````\n\n\\# b"),
        ("<ul><li><pre>a\n  b</pre></ul>", "- ```\n  a\n    b\n  ```"),
        ("<table><tr><th>A<tr><td><pre>a\nb</pre></table>", "| A |\n| --- |\n| a b |"),
    ] {
        assert_eq!(markdown(html), expected, "{html}");
    }
}

#[test]
fn terms_are_above_their_definitions() {
    let html = "<p>Terms:</p><dl><dt>Notice<dd>Three months.<dt>Trial<dt>Probation<dd><p>Six months.<p>Or less.</dd>\
        <div><dt>Leave<dd>30 days<ul><li>full time</ul></div></dl><p>End.";
    let expected = "Terms:\n\nNotice\n: Three months.\n\nTrial\nProbation\n: Six months.\n\n  Or less.\n\n\
        Leave\n: 30 days\n\n  - full time\n\nEnd.";
    assert_eq!(markdown(html), expected);
    assert_eq!(markdown("<dl><dd hidden>a<dt> </dl><dl><dd>b</dl>"), ": b");
}

#[test]
fn texts_around_details_and_figures_are_read() {
    let html = "<details><summary>How?</summary>So.</details><figure><img src=a alt=Pump><figcaption>Figure 3</figcaption></figure>\
        <table><caption>Fees</caption><tr><th>A<th>B<tr><td>1<td>2</table>";
    let expected = "How?\n\nSo.\n\nPump\n\nFigure 3\n\nFees\n| A | B |\n| --- | --- |\n| 1 | 2 |";
    assert_eq!(markdown(html), expected);
}

#[test]
fn deletions_and_boxes_of_tasks_keep_their_meaning() {
    for (html, expected) in [
        (
            "<p>Now <s>99 EUR</s> 79 EUR, <del>old </del>new<strike></strike>",
            "Now ~~99 EUR~~ 79 EUR, ~~old~~ new",
        ),
        ("<del><p>a</p></del>", "a"),
        (
            "<ul><li><input type=checkbox checked> a<li><label><input type=CheckBox>b</label><li><p><input type=checkbox> c</ul>",
            "- [x] a\n- [ ] b\n- [ ] c",
        ),
        ("<ul><li><input value=x>a</ul><p><input type=checkbox>b</p>", "- a\n\nb"),
    ] {
        assert_eq!(markdown(html), expected, "{html}");
    }
}

#[test]
fn marks_of_places_are_no_text() {
    assert_eq!(markdown("<h2><a href='#x'>#</a> Leave<a href='#x'>¶</a></h2>"), "## Leave");
    assert_eq!(markdown("<p>See <a href='#n1'>1</a>, <a href='/c'>#</a><a href='#r1'>↩︎</a></p>"), "See 1, #");
}

#[test]
fn rows_in_the_head_of_a_table_name_the_columns_without_header_cells() {
    let head = "<tr><td rowspan=2>Region</td><td colspan=2>Sold</td></tr><tr><td>new</td><td>used</td></tr>";
    let values = "<tbody><tr><td>North</td><td>1</td><td>2</td></tr></tbody>";
    let expected = "| Region | Sold new | Sold used |\n| --- | --- | --- |\n| North | 1 | 2 |";
    assert_eq!(markdown(&format!("<table><thead>{head}</thead>{values}</table>")), expected);
    let single = "<table><thead><tr><td>A</td><td>B</td></tr></thead><tbody><tr><td>1</td><td>2</td></tr></tbody></table>";
    assert_eq!(markdown(single), "| A | B |\n| --- | --- |\n| 1 | 2 |");
}

#[test]
fn headings_have_one_line() {
    let html = "<h1>Leave<br>policy</h1><h2><div>a</div> <div>b</div></h2><h3> <br></h3>c";
    assert_eq!(markdown(html), "# Leave policy\n\n## a b\n\nc");
}

#[test]
fn titles_above_a_table_without_header_cells_are_not_its_header() {
    let table = |rows: &[&str]| {
        let cells = |row: &&str| {
            let cells: String = row.split('|').map(|cell| format!("<td>{cell}</td>")).collect();
            format!("<tr>{cells}</tr>")
        };
        format!("<table>{}</table>", rows.iter().map(cells).collect::<String>())
    };
    for (rows, expected) in [
        (
            &["Prices 2024||", "valid from|2024-03-01|", "Article|Price|Stock", "Chair|49.9|3"][..],
            "Prices 2024\nvalid from; 2024-03-01\n| Article | Price | Stock |\n| --- | --- | --- |\n| Chair | 49.9 | 3 |",
        ),
        (
            &["|2023||2024|", "|Q1|Q2|Q1|Q2", "North|1|2|3|4"],
            "|  | 2023 Q1 | 2023 Q2 | 2024 Q1 | 2024 Q2 |\n| --- | --- | --- | --- | --- |\n| North | 1 | 2 | 3 | 4 |",
        ),
        (&["1|2", "3|4", "a|b", "5|6"], "| 1 | 2 |\n| --- | --- |\n| 3 | 4 |\n| a | b |\n| 5 | 6 |"),
    ] {
        assert_eq!(markdown(&table(rows)), expected, "{rows:?}");
    }
}

#[test]
fn lists_of_separate_levels_are_nested() {
    let list = |tag: &str, name: &str, items: &str| {
        let items: String = items.split(' ').map(|item| format!("<li><span>{item}</span></li>")).collect();
        format!("<{tag} class='c1 lst-kix_{name} start'>{items}</{tag}>")
    };
    let nested = |lists: &[(&str, &str, &str)]| {
        let lists: Vec<String> = lists.iter().map(|&(tag, name, items)| list(tag, name, items)).collect();
        markdown(&lists.join("\n"))
    };
    for (lists, expected) in [
        (
            &[("ul", "a-0", "Fruit"), ("ul", "a-1", "Apple Pear"), ("ul", "a-0", "Bread")][..],
            "<ul><li>Fruit<ul><li>Apple</li><li>Pear</li></ul></li><li>Bread</li></ul>",
        ),
        // Numbers go on below the inner list, and an inner list can be of another kind.
        (
            &[("ol", "a_1-0", "Boil"), ("ul", "a_1-1", "water"), ("ol", "a_1-0", "Stir Serve")],
            "<ol><li>Boil<ul><li>water</li></ul></li><li>Stir</li><li>Serve</li></ol>",
        ),
        // A level may be left out.
        (
            &[("ul", "a-0", "A"), ("ul", "a-2", "B"), ("ul", "a-1", "C")],
            "<ul><li>A<ul><li>B</li></ul><ul><li>C</li></ul></li></ul>",
        ),
        // Other lists, and levels that do not exist, stay.
        (&[("ul", "a-0", "A"), ("ul", "b-1", "B")], "<ul><li>A</li></ul><ul><li>B</li></ul>"),
        (&[("ul", "a-0", "A"), ("ul", "a-9", "B")], "<ul><li>A</li></ul><ul><li>B</li></ul>"),
    ] {
        assert_eq!(nested(lists), markdown(expected), "{lists:?}");
    }
    let (outer, inner) = (list("ul", "a-0", "A"), list("ul", "a-1", "B"));
    assert_eq!(markdown(&format!("{outer}<p>text</p>{inner}")), "- A\n\ntext\n\n- B");
}
