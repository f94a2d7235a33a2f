//! Grid of the cells of a PDF page that are painted.

use std::ops::RangeInclusive;

use unpdf::parser::backend::PageBox;

/// Columns of the grid.
const COLUMNS: usize = 128;
/// Rows of the grid, which keep a line apart from the rule below it.
const ROWS: usize = 512;
/// Maximum number of parts of a path that are kept apart. The last one contains all that follow.
const MAX_PATH_PARTS: usize = 4_096;

/// A position on a page or in another coordinate system.
pub(super) type Point = (f32, f32);

/// A transformation of coordinates (ISO 32000-1, section 8.3.3).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Matrix(pub(super) [f32; 6]);

impl Matrix {
    /// The identity transformation.
    pub(super) const IDENTITY: Self = Self([1.0, 0.0, 0.0, 1.0, 0.0, 0.0]);

    /// Returns a transformation that moves the origin.
    pub(super) fn translation(x: f32, y: f32) -> Self {
        Self([1.0, 0.0, 0.0, 1.0, x, y])
    }

    /// Returns the composition: this transformation, then another.
    pub(super) fn then(self, next: Self) -> Self {
        let [a, b, c, d, e, f] = self.0;
        let [next_a, next_b, next_c, next_d, ..] = next.0;
        let (x, y) = next.apply((e, f));
        Self([
            a * next_a + b * next_c,
            a * next_b + b * next_d,
            c * next_a + d * next_c,
            c * next_b + d * next_d,
            x,
            y,
        ])
    }

    /// Transforms a position.
    pub(super) fn apply(self, (x, y): Point) -> Point {
        let [a, b, c, d, e, f] = self.0;
        (a * x + c * y + e, b * x + d * y + f)
    }

    /// Returns true if rectangles stay parallel to the edges of the page.
    fn keeps_rectangles(self) -> bool {
        let [a, b, c, d, ..] = self.0.map(f32::abs);
        let none = a.max(b).max(c).max(d) * 1e-4;
        (b <= none && c <= none) || (a <= none && d <= none)
    }

    /// Returns the length of a horizontal unit.
    pub(super) fn horizontal_scale(self) -> f32 {
        self.0[0].hypot(self.0[1])
    }

    /// Returns the length of a vertical unit.
    pub(super) fn vertical_scale(self) -> f32 {
        self.0[2].hypot(self.0[3])
    }
}

/// A rectangle parallel to the edges of the page.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bounds {
    left: f32,
    bottom: f32,
    right: f32,
    top: f32,
}

impl Bounds {
    /// The rectangle that contains every other one.
    pub(super) const EVERYWHERE: Self =
        Self { left: f32::NEG_INFINITY, bottom: f32::NEG_INFINITY, right: f32::INFINITY, top: f32::INFINITY };
    /// The empty rectangle, which contains no other one.
    pub(super) const NOWHERE: Self =
        Self { left: f32::INFINITY, bottom: f32::INFINITY, right: f32::NEG_INFINITY, top: f32::NEG_INFINITY };

    /// Returns the smallest rectangle around positions, and the whole plane if a coordinate is NaN.
    pub(super) fn around(points: impl IntoIterator<Item = Point>) -> Self {
        let mut bounds: Option<Self> = None;
        for (x, y) in points {
            if !x.is_finite() || !y.is_finite() {
                return Self::EVERYWHERE;
            }
            let point = Self { left: x, bottom: y, right: x, top: y };
            bounds = Some(bounds.map_or(point, |bounds| bounds.union(point)));
        }
        bounds.unwrap_or(Self::EVERYWHERE)
    }

    /// Returns the rectangle around a transformed rectangle, by two of its corners.
    pub(super) fn of_rectangle((left, bottom): Point, (right, top): Point, matrix: Matrix) -> Self {
        let corners = [(left, bottom), (right, bottom), (right, top), (left, top)];
        Self::around(corners.map(|corner| matrix.apply(corner)))
    }

    fn union(self, other: Self) -> Self {
        Self {
            left: self.left.min(other.left),
            bottom: self.bottom.min(other.bottom),
            right: self.right.max(other.right),
            top: self.top.max(other.top),
        }
    }

    /// Returns the intersection with another rectangle.
    pub(super) fn intersection(self, other: Self) -> Self {
        Self {
            left: self.left.max(other.left),
            bottom: self.bottom.max(other.bottom),
            right: self.right.min(other.right),
            top: self.top.min(other.top),
        }
    }

    /// Returns true if another rectangle is wholly in this one.
    pub(super) fn contains(self, other: Self) -> bool {
        self.left <= other.left
            && self.bottom <= other.bottom
            && self.right >= other.right
            && self.top >= other.top
    }

    /// Returns true if a part of another rectangle is in this one.
    pub(super) fn overlaps(self, other: Self) -> bool {
        self.left <= other.right
            && self.bottom <= other.top
            && self.right >= other.left
            && self.top >= other.bottom
    }

    /// Returns the rectangle with a border around it.
    pub(super) fn with_border(self, width: f32) -> Self {
        Self {
            left: self.left - width,
            bottom: self.bottom - width,
            right: self.right + width,
            top: self.top + width,
        }
    }
}

/// A path under construction, in the coordinates of the page.
#[derive(Debug, Default)]
pub(super) struct Path {
    start: Option<Point>,
    current: Option<Point>,
    /// Rectangles around the parts, which contain the filled areas.
    shapes: Vec<Bounds>,
    /// Rectangles around the lines and curves.
    edges: Vec<Bounds>,
    /// Number of lines and curves.
    edge_count: usize,
    /// The rectangle that the whole path is, if it was added as one that is parallel to the edges of the page.
    rectangle: Option<Bounds>,
}

impl Path {
    /// Begins a part.
    pub(super) fn begin(&mut self, point: Point) {
        (self.start, self.current, self.rectangle) = (Some(point), Some(point), None);
        push(&mut self.shapes, Bounds::around([point]));
    }

    /// Appends a rectangle by two of its corners, which are transformed.
    pub(super) fn add_rectangle(&mut self, (left, bottom): Point, (right, top): Point, matrix: Matrix) {
        let is_first = self.shapes.is_empty();
        let corners = [(left, bottom), (right, bottom), (right, top), (left, top)];
        let corners = corners.map(|corner| matrix.apply(corner));
        self.begin(corners[0]);
        corners[1..].iter().for_each(|&corner| self.extend(&[corner]));
        self.close();
        let is_finite = corners.iter().all(|(x, y)| x.is_finite() && y.is_finite());
        if is_first && is_finite && matrix.keeps_rectangles() {
            self.rectangle = Some(Bounds::around(corners));
        }
    }

    /// Appends a line or curve by its control points and its end.
    pub(super) fn extend(&mut self, points: &[Point]) {
        let Some(&end) = points.last() else { return };
        let edge = Bounds::around(self.current.iter().chain(points).copied());
        push(&mut self.edges, edge);
        self.edge_count += 1;
        self.rectangle = None;
        match self.shapes.last_mut() {
            Some(shape) => *shape = shape.union(edge),
            None => self.shapes.push(edge),
        }
        self.current = Some(end);
    }

    /// Appends a line to the beginning of the part.
    pub(super) fn close(&mut self) {
        if let Some(start) = self.start {
            self.extend(&[start]);
        }
    }

    /// Returns the rectangle that the whole path is, if it is one that is parallel to the edges of the page.
    pub(super) fn rectangle(&self) -> Option<Bounds> {
        self.rectangle.or_else(|| self.rectangle_of_lines())
    }

    /// Returns the rectangle whose sides are the lines of the only part, in any direction. A fill closes the part.
    fn rectangle_of_lines(&self) -> Option<Bounds> {
        let [shape] = self.shapes[..] else { return None };
        let sides = [
            Bounds { right: shape.left, ..shape },
            Bounds { left: shape.right, ..shape },
            Bounds { top: shape.bottom, ..shape },
            Bounds { bottom: shape.top, ..shape },
        ];
        let closing_line = Bounds::around(self.current.into_iter().chain(self.start));
        let edges = self.edges.iter().copied().chain([closing_line]);
        let lines = edges.filter(|edge| edge.left < edge.right || edge.bottom < edge.top);
        let lines: Vec<Bounds> = lines.take(sides.len() + 1).collect();
        let is_rectangle = lines.len() == sides.len() && sides.iter().all(|side| lines.contains(side));
        is_rectangle.then_some(shape)
    }

    /// Returns the rectangle around the path, which is everything for one without parts.
    pub(super) fn bounds(&self) -> Bounds {
        self.shapes.iter().copied().reduce(Bounds::union).unwrap_or(Bounds::EVERYWHERE)
    }

    /// Returns the rectangles around the filled areas.
    pub(super) fn shapes(&self) -> &[Bounds] {
        &self.shapes
    }

    /// Returns the number of lines and curves.
    pub(super) fn edge_count(&self) -> usize {
        self.edge_count
    }

    /// Returns true for a path with curves, or with lines that are not parallel to the edges of the page.
    pub(super) fn has_slanted_edges(&self) -> bool {
        self.edges.iter().any(|edge| edge.left < edge.right && edge.bottom < edge.top)
    }

    /// Returns the rectangles around the stroked lines, without their width.
    pub(super) fn edges(&self) -> &[Bounds] {
        &self.edges
    }
}

/// Appends a rectangle, or extends the last one if there are too many.
fn push(parts: &mut Vec<Bounds>, bounds: Bounds) {
    if parts.len() < MAX_PATH_PARTS {
        parts.push(bounds);
    } else if let Some(last) = parts.last_mut() {
        *last = last.union(bounds);
    }
}

/// The painted cells of a page. A cell that is painted in part is a painted one.
#[derive(Debug)]
pub(super) struct Canvas {
    origin: Point,
    /// Width and height of a cell.
    cell: (f32, f32),
    rows: [u128; ROWS],
}

impl Canvas {
    /// Creates a page without paint.
    pub(super) fn new(page: PageBox) -> Self {
        let cell = |length: f32, count: usize| (length / count as f32).max(f32::MIN_POSITIVE);
        Self {
            origin: (page.llx, page.lly),
            cell: (cell(page.urx - page.llx, COLUMNS), cell(page.ury - page.lly, ROWS)),
            rows: [0; ROWS],
        }
    }

    /// Paints a rectangle.
    pub(super) fn paint(&mut self, bounds: Bounds) {
        let (columns, rows) = self.cells(bounds);
        for row in &mut self.rows[rows] {
            *row |= columns;
        }
    }

    /// Paints the whole page.
    pub(super) fn paint_all(&mut self) {
        self.rows = [u128::MAX; ROWS];
    }

    /// Returns true if a part of a rectangle is painted.
    pub(super) fn is_painted(&self, bounds: Bounds) -> bool {
        let (columns, rows) = self.cells(bounds);
        self.rows[rows].iter().any(|row| row & columns != 0)
    }

    /// Returns the columns and rows of a rectangle. Areas outside of the page count as far as its edge.
    fn cells(&self, bounds: Bounds) -> (u128, RangeInclusive<usize>) {
        // The conversion saturates.
        let column = |x: f32| (((x - self.origin.0) / self.cell.0) as usize).min(COLUMNS - 1);
        let row = |y: f32| (((y - self.origin.1) / self.cell.1) as usize).min(ROWS - 1);
        let (first, last) = (column(bounds.left), column(bounds.right));
        let columns = (u128::MAX << first) & (u128::MAX >> (COLUMNS - 1 - last));
        (columns, row(bounds.bottom)..=row(bounds.top))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rectangle(left: f32, bottom: f32, right: f32, top: f32) -> Bounds {
        Bounds::of_rectangle((left, bottom), (right, top), Matrix::IDENTITY)
    }

    #[test]
    fn cells_are_painted_within_the_page() {
        let mut canvas = Canvas::new(PageBox::LETTER);
        assert!(!canvas.is_painted(Bounds::EVERYWHERE));
        canvas.paint(rectangle(100.0, 100.0, 200.0, 150.0));
        for (bounds, expected) in [
            (rectangle(150.0, 120.0, 151.0, 121.0), true),
            (rectangle(0.0, 0.0, 612.0, 792.0), true),
            (rectangle(90.0, 140.0, 110.0, 160.0), true),
            (rectangle(210.0, 120.0, 300.0, 121.0), false),
            (rectangle(150.0, 160.0, 151.0, 170.0), false),
        ] {
            assert_eq!(canvas.is_painted(bounds), expected, "{bounds:?}");
        }
        canvas.paint(rectangle(-500.0, 700.0, -400.0, 9_000.0));
        assert!(canvas.is_painted(rectangle(1.0, 750.0, 2.0, 751.0)));
        canvas.paint(Bounds::around([(f32::NAN, 1.0)]));
        assert!(canvas.is_painted(rectangle(300.0, 300.0, 301.0, 301.0)));
    }

    #[test]
    fn transformations_are_applied_in_their_order() {
        let moved = Matrix([2.0, 0.0, 0.0, 3.0, 10.0, 20.0]).then(Matrix::translation(1.0, 1.0));
        assert_eq!(moved.apply((1.0, 1.0)), (13.0, 24.0));
        assert_eq!((moved.horizontal_scale(), moved.vertical_scale()), (2.0, 3.0));
        let turned = Matrix([0.0, 1.0, -1.0, 0.0, 0.0, 0.0]);
        assert_eq!(Bounds::of_rectangle((0.0, 0.0), (2.0, 1.0), turned), rectangle(-1.0, 0.0, 0.0, 2.0));
    }

    #[test]
    fn paths_report_bounds_and_slanted_edges() {
        let mut path = Path::default();
        path.begin((0.0, 0.0));
        path.extend(&[(10.0, 0.0)]);
        assert!(!path.has_slanted_edges());
        path.extend(&[(20.0, 5.0), (15.0, 30.0), (10.0, 10.0)]);
        path.close();
        path.begin((50.0, 50.0));
        path.extend(&[(60.0, 50.0)]);
        assert_eq!(path.shapes(), [rectangle(0.0, 0.0, 20.0, 30.0), rectangle(50.0, 50.0, 60.0, 50.0)]);
        assert_eq!((path.edges().len(), path.edge_count()), (4, 4));
        assert!(path.has_slanted_edges());
        assert_eq!((path.rectangle(), path.bounds()), (None, rectangle(0.0, 0.0, 60.0, 50.0)));
        for number in 0..10_000 {
            path.begin((100.0, number as f32));
        }
        assert_eq!(path.shapes().len(), MAX_PATH_PARTS);
        assert_eq!(path.shapes().last().map(|last| last.top), Some(9_999.0));
    }

    #[test]
    fn rectangles_of_lines_are_recognized() {
        let path = |points: &[Point], is_closed: bool| {
            let mut path = Path::default();
            path.begin(points[0]);
            points[1..].iter().for_each(|&point| path.extend(&[point]));
            if is_closed {
                path.close();
            }
            path
        };
        let corners = [(1.0, 2.0), (11.0, 2.0), (11.0, 22.0), (1.0, 22.0)];
        let with_end = [corners[0], corners[3], corners[2], corners[1], corners[0]];
        let expected = Some(rectangle(1.0, 2.0, 11.0, 22.0));
        for is_closed in [false, true] {
            assert_eq!(path(&corners, is_closed).rectangle(), expected);
            assert_eq!(path(&with_end, is_closed).rectangle(), expected);
            let back_and_forth = [corners[0], corners[1], corners[2], corners[1]];
            for other in [&corners[..3], &corners[..2], &corners[..1], &back_and_forth[..]] {
                assert_eq!(path(other, is_closed).rectangle(), None, "{other:?}");
            }
        }
        let slanted = corners.map(|(x, y)| (x + y / 8.0, y));
        let notched = [corners[0], corners[1], corners[2], (6.0, 22.0), (6.0, 12.0), (1.0, 12.0)];
        assert_eq!((path(&slanted, true).rectangle(), path(&notched, true).rectangle()), (None, None));
        let mut two_parts = path(&corners, true);
        two_parts.begin((5.0, 5.0));
        assert_eq!(two_parts.rectangle(), None);
    }

    #[test]
    fn paths_that_are_one_rectangle_are_recognized() {
        let quarter_turn = Matrix([0.0, 1.0, -1.0, 0.0, 0.0, 0.0]);
        let slanted = Matrix([1.0, 0.2, 0.0, 1.0, 0.0, 0.0]);
        for (matrix, expected) in [
            (Matrix::IDENTITY, Some(rectangle(1.0, 2.0, 11.0, 22.0))),
            (quarter_turn, Some(rectangle(-22.0, 1.0, -2.0, 11.0))),
            (slanted, None),
            (Matrix([f32::NAN; 6]), None),
        ] {
            let mut path = Path::default();
            path.add_rectangle((11.0, 22.0), (1.0, 2.0), matrix);
            assert_eq!(path.rectangle(), expected, "{matrix:?}");
            path.extend(&[(5.0, 5.0)]);
            assert_eq!(path.rectangle(), None);
        }
        let mut path = Path::default();
        path.begin((0.0, 0.0));
        path.add_rectangle((1.0, 2.0), (11.0, 22.0), Matrix::IDENTITY);
        assert_eq!(path.rectangle(), None, "a part comes before");
        let (page, part) = (rectangle(0.0, 0.0, 100.0, 100.0), rectangle(90.0, 90.0, 110.0, 95.0));
        assert!(page.overlaps(part) && !page.contains(part) && page.contains(page.intersection(part)));
        assert!(Bounds::EVERYWHERE.contains(part) && !Bounds::NOWHERE.contains(part));
        assert!(!page.intersection(Bounds::NOWHERE).contains(part));
    }
}
