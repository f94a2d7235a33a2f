//! Charts of slides as tables: a row for each category, a column for each series.

use std::collections::{BTreeMap, BTreeSet};

use quick_xml::escape::{escape, unescape};
use quick_xml::events::{BytesStart, Event};

use super::xml::{XmlEvents, attribute};

/// Maximum number of cells of a table.
const MAX_CELLS: usize = 100_000;
/// Maximum nesting depth of elements of a chart that are read.
const MAX_DEPTH: usize = 32;
/// Name of the column with the categories.
const CATEGORIES: &str = "Category";

/// Texts or numbers by their positions.
type Points = BTreeMap<u32, String>;

/// The values of a chart.
#[derive(Debug, Default)]
struct Chart {
    title: String,
    series: Vec<Series>,
}

#[derive(Debug, Default)]
struct Series {
    name: String,
    categories: Points,
    values: Points,
}

/// Returns a chart as the table of a slide; `None` if it has no values.
pub(super) fn chart_table(xml: &str) -> Option<String> {
    Chart::read(xml).table()
}

impl Chart {
    fn read(xml: &str) -> Self {
        let mut chart = Self::default();
        let mut path: Vec<String> = Vec::new();
        let mut point = 0;
        let mut events = XmlEvents::new(xml);
        while let Some((event, range)) = events.next() {
            match event {
                Event::Start(element) if path.len() >= MAX_DEPTH => {
                    events.skip(&element);
                }
                Event::Start(element) => {
                    path.push(element.local_name().into_inner().to_owned());
                    chart.begin(&path, &element, &mut point);
                }
                Event::End(_) => {
                    path.pop();
                }
                Event::Text(_) | Event::GeneralRef(_) => {
                    if let Some(text) = chart.text_at(&path, point) {
                        let raw = &xml[range];
                        text.push_str(unescape(raw).as_deref().unwrap_or(raw));
                    }
                }
                _ => {}
            }
        }
        chart
    }

    /// Begins an element, which is the last of the path.
    fn begin(&mut self, path: &[String], element: &BytesStart<'_>, point: &mut u32) {
        match path.last().map(String::as_str) {
            Some("ser") => self.series.push(Series::default()),
            Some("pt") => {
                *point = attribute(element, "idx").and_then(|index| index.parse().ok()).unwrap_or_default();
            }
            Some("v" | "t") => {
                // The levels of a category, or the lines of a title.
                if let Some(text) = self.text_at(path, *point).filter(|text| !text.is_empty()) {
                    text.push(' ');
                }
            }
            _ => {}
        }
    }

    /// Returns the text to which the characters at a path belong.
    fn text_at(&mut self, path: &[String], point: u32) -> Option<&mut String> {
        path.last().filter(|last| matches!(last.as_str(), "v" | "t"))?;
        let below =
            |name: &str| path.iter().skip_while(|element| *element != name).nth(1).map(String::as_str);
        match below("ser") {
            Some("tx") => Some(&mut self.series.last_mut()?.name),
            Some("cat" | "xVal") => Some(self.series.last_mut()?.categories.entry(point).or_default()),
            Some("val" | "yVal") => Some(self.series.last_mut()?.values.entry(point).or_default()),
            // Axes have titles, too.
            None if below("chart") == Some("title") => Some(&mut self.title),
            _ => None,
        }
    }

    fn table(&self) -> Option<String> {
        let points: BTreeSet<u32> =
            self.series.iter().flat_map(|series| series.values.keys()).copied().collect();
        let categories =
            self.series.iter().map(|series| &series.categories).find(|found| !found.is_empty())?;
        if points.is_empty() {
            return None;
        }
        let title = self.title.trim();
        let corner = if title.is_empty() { CATEGORIES.to_owned() } else { format!("{CATEGORIES} ({title})") };
        let names = self.series.iter().map(|series| series.name.as_str());
        let mut table = format!("<a:tbl>{}", row([&*corner].into_iter().chain(names)));
        for point in points.into_iter().take(MAX_CELLS / (self.series.len() + 1)) {
            let text = |points: &Points| points.get(&point).cloned().unwrap_or_default();
            let cells: Vec<String> = [text(categories)]
                .into_iter()
                .chain(self.series.iter().map(|series| text(&series.values)))
                .collect();
            table.push_str(&row(cells.iter().map(String::as_str)));
        }
        table.push_str("</a:tbl>");
        Some(table)
    }
}

/// Returns a row of a slide's table.
pub(super) fn row<'c>(cells: impl Iterator<Item = &'c str>) -> String {
    let cell = |text: &str| {
        format!("<a:tc><a:txBody><a:p><a:r><a:t>{}</a:t></a:r></a:p></a:txBody></a:tc>", escape(text.trim()))
    };
    format!("<a:tr>{}</a:tr>", cells.map(cell).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(kind: &str, values: &[(u32, &str)]) -> String {
        let points: String = values
            .iter()
            .map(|(index, value)| format!("<c:pt idx=\"{index}\">\n<c:v>{value}</c:v></c:pt>"))
            .collect();
        format!(
            "<c:{kind}><c:numRef><c:f>Sheet1!$A$1</c:f><c:numCache>{points}</c:numCache></c:numRef></c:{kind}>"
        )
    }

    /// Returns the cells of a table, those of a row separated by `|`.
    fn cells(table: &str) -> Vec<String> {
        let rows = table.split("</a:tr>").filter(|row| row.contains("<a:tr>"));
        let text = |cell: &str| cell.split_once("</a:t>").map(|(text, _)| text.to_owned());
        rows.map(|row| row.split("<a:t>").filter_map(text).collect::<Vec<_>>().join("|")).collect()
    }

    #[test]
    fn the_series_of_a_chart_become_columns() {
        let series = |name: &str, categories: &[(u32, &str)], values: &[(u32, &str)]| {
            let parts = [points("tx", &[(0, name)]), points("cat", categories), points("val", values)];
            format!("<c:ser><c:idx val=\"0\"/>{}</c:ser>", parts.concat())
        };
        let regions = [(0, "R&amp;D"), (1, "South")];
        let xml = format!(
            "<c:chartSpace><c:chart><c:title><c:tx><c:rich><a:p><a:r><a:t>Sales</a:t></a:r></a:p></c:rich></c:tx></c:title>\
             <c:barChart>{}{}</c:barChart></c:chart></c:chartSpace>",
            series("2023", &regions, &[(0, "7"), (1, "8")]),
            series("2024", &regions, &[(1, "9.5")]),
        );
        let table = chart_table(&xml).unwrap();
        assert_eq!(cells(&table), ["Category (Sales)|2023|2024", "R&amp;D|7|", "South|8|9.5"]);
        assert_eq!(chart_table("<c:chartSpace/>"), None);
    }

    #[test]
    fn tables_are_bounded() {
        let values: Vec<(u32, &str)> = (0..2_000).map(|index| (index * 1_000_000, "1")).collect();
        let series = format!("<c:ser>{}{}</c:ser>", points("cat", &values), points("val", &values));
        let table = chart_table(&format!("<c:chart>{}</c:chart>", series.repeat(99))).unwrap();
        assert_eq!(cells(&table).len(), 1 + MAX_CELLS / 100);
    }
}
