//! A panel: two axes, lines over them, and a legend beside them.
//!
//! I1. The points of a line are horizontally at least as far apart as the line is wide. Closer points are
//! replaced by one point at their mean. So nothing is drawn beyond the data: the inner edge of a corner
//! is `width / 2 / tan(half its angle)` from the corner, and where two strokes turn back that is at most
//! the length of the shorter stroke, as neither is steeper than its length over the width. Through closer
//! points, a renderer that does not cut off joins would draw spikes many times as long as the strokes.

use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind};
use plotters::element::{Circle, PathElement, Rectangle, Text, TriangleMarker};
use plotters::series::{DashedLineSeries, LineSeries};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, IntoFont, RGBColor, ShapeStyle, TextStyle, WHITE};
use plotters_backend::DrawingBackend;
use std::ops::Range;

/// The font: that of the viewer in an SVG, the bundled one in a PNG.
pub(super) const FAMILY: &str = "sans-serif";

const INK: RGBColor = RGBColor(0x33, 0x33, 0x33);
const GRID: RGBColor = RGBColor(0xe2, 0xe2, 0xe2);
/// Blue, vermillion, green, orange, purple, sky blue, grey, black: those of Okabe and Ito, without
/// yellow, which is too light for a line.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x80, 0x80, 0x80),
    RGBColor(0x00, 0x00, 0x00),
];
/// In pixels.
const LEGEND: u32 = 170;
const ROW: i32 = 22;

pub(super) struct Panel {
    pub(super) height: u32,
    pub(super) title: &'static str,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) lines: Vec<Line>,
}

#[derive(Clone)]
pub(super) struct Axis {
    /// The label, with the unit.
    pub(super) label: String,
    pub(super) from: f64,
    pub(super) to: f64,
    /// Positions and labels of the ticks.
    pub(super) ticks: Vec<(f64, String)>,
}

pub(super) struct Line {
    pub(super) name: String,
    /// Stretches of connected points, with gaps between them.
    pub(super) stretches: Vec<Vec<(f64, f64)>>,
    pub(super) look: Look,
}

/// The look of a line: colour, stroke, and marks for a line of few points. A point by
/// itself always has a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) colour: usize,
    pub(super) dashed: bool,
    pub(super) marked: bool,
}

impl Look {
    /// The look of the `nth` line.
    pub(super) fn nth(nth: usize) -> Look {
        Look { colour: nth % (COLOURS.len() - 1), dashed: nth % 2 == 1, marked: false }
    }

    /// The look of the reference line: black and wide, so that it is visible below an equal line.
    pub(super) const MEASURE: Look = Look { colour: COLOURS.len() - 1, dashed: false, marked: false };

    pub(super) fn marked(self) -> Look {
        Look { marked: true, ..self }
    }

    fn style(self) -> ShapeStyle {
        COLOURS[self.colour].stroke_width(if self.colour == Look::MEASURE.colour { 5 } else { 2 })
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Size {
    Title,
    Heading,
    Small,
}

fn style(size: Size) -> TextStyle<'static> {
    let pixels = match size {
        Size::Title => 20,
        Size::Heading => 16,
        Size::Small => 14,
    };
    (FAMILY, pixels).into_font().color(&INK)
}

/// Draws a line of text that begins at a point.
pub(super) fn text<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    what: &str,
    size: Size,
    at: (i32, i32),
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    area.draw(&Text::new(what.to_owned(), at, style(size)))
}

/// The width of a line of text, in pixels.
pub(super) fn width<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    what: &str,
    size: Size,
) -> Result<u32, DrawingAreaErrorKind<B::ErrorType>> {
    Ok(area.estimate_text_size(what, &style(size))?.0)
}

impl Axis {
    /// An axis from 0 to a round number, at least `most` and `least`. It has three to eight steps of 1, 2
    /// or 5 times a power of ten.
    pub(super) fn linear(
        label: impl Into<String>,
        most: f64,
        least: f64,
        format: impl Fn(f64) -> String,
    ) -> Axis {
        let most = if most.is_finite() { most.max(least) } else { least };
        let rough = most / 8.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|times| times * power).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(10.0 * power);
        let steps = (most / step - 1e-9).ceil();
        let ticks = (0..=steps as u32).map(|at| f64::from(at) * step).map(|at| (at, format(at))).collect();
        Axis { label: label.into(), from: 0.0, to: steps * step, ticks }
    }

    /// An axis between two numbers for points at `x.log2()`, with ticks at powers of two. If none lies
    /// between them, the two numbers are the ticks.
    pub(super) fn doubling(
        label: impl Into<String>,
        from: f64,
        to: f64,
        format: impl Fn(f64) -> String,
    ) -> Axis {
        let (from, to) = (from.log2(), to.log2());
        let room = (0.03 * (to - from)).max(0.1);
        // With more than a dozen ticks, labels would overlap.
        let step = ((to - from) / 12.0).ceil().max(1.0);
        let first = (from / step).ceil();
        let ticks = (0..13).map(|nth| (first + f64::from(nth)) * step).take_while(|at| *at <= to + room);
        let mut ticks: Vec<f64> = ticks.collect();
        // A tick in the margin only is not between the two numbers.
        if !ticks.iter().any(|at| *at <= to) {
            ticks = vec![from];
            // Labels closer than this would overlap.
            ticks.extend(Some(to).filter(|to| to - from > 0.05));
        }
        let ticks = ticks.into_iter().map(|at| (at, format(at.exp2()))).collect();
        Axis { label: label.into(), from: from - room, to: to + room, ticks }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (first, last): (i32, i32)) -> i32 {
        let part = (value - self.from) / (self.to - self.from);
        first + (part * f64::from(last - first)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.iter().map(|(at, _)| *at).collect()
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, at: &f64) -> String {
        self.ticks.iter().find(|(tick, _)| tick == at).map_or(String::new(), |(_, label)| label.clone())
    }
}

type Chart<'a, B> = ChartContext<'a, B, Cartesian2d<Axis, Axis>>;

impl Panel {
    pub(super) fn on<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let (plot, legend) = area.split_horizontally(area.dim_in_pixel().0 - LEGEND);
        text(&plot, self.title, Size::Heading, (16, 6))?;
        let mut chart = ChartBuilder::on(&plot)
            .margin_top(34)
            .margin_bottom(8)
            .margin_left(12)
            .margin_right(16)
            .x_label_area_size(48)
            .y_label_area_size(72)
            .build_cartesian_2d(self.x.clone(), self.y.clone())?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .bold_line_style(GRID)
            .axis_style(INK)
            .label_style(style(Size::Small))
            .axis_desc_style(style(Size::Small))
            .x_desc(&self.x.label)
            .y_desc(&self.y.label)
            .draw()?;
        self.lines.iter().try_for_each(|line| line.on(&mut chart))?;
        for (row, line) in (0..).zip(&self.lines) {
            let y = 44 + row * ROW;
            let sample = |from| PathElement::new([(from, y), (from + 11, y)], line.look.style());
            legend.draw(&sample(4))?;
            legend.draw(&sample(if line.look.dashed { 21 } else { 15 }))?;
            if line.look.marked {
                mark(&legend, line.look, (15, y))?;
            }
            let beside = style(Size::Small).pos(Pos::new(HPos::Left, VPos::Center));
            legend.draw(&Text::new(line.name.clone(), (40, y), beside))?;
        }
        Ok(())
    }
}

impl Line {
    fn on<B: DrawingBackend>(
        &self,
        chart: &mut Chart<'_, B>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let stroke = self.look.style();
        for stretch in &self.stretches {
            let points =
                apart(stretch, stroke.stroke_width, |point| chart.plotting_area().map_coordinate(point).0);
            let points = points.into_iter();
            if self.look.dashed {
                chart.draw_series(DashedLineSeries::new(points, 8, 4, stroke))?;
            } else {
                chart.draw_series(LineSeries::new(points, stroke))?;
            }
            // A point by itself has no line, so it gets a mark.
            if self.look.marked || stretch.len() == 1 {
                let plot = chart.plotting_area();
                let pixels = plot.get_base_pixel();
                let whole = plot.strip_coord_spec();
                for point in stretch {
                    let (x, y) = plot.map_coordinate(point);
                    mark(&whole, self.look, (x - pixels.0, y - pixels.1))?;
                }
            }
        }
        Ok(())
    }
}

/// Thins the points of a line so that their pixels are at least `width` apart (I1). Points closer than
/// that to the first of a group are replaced by the mean of the group.
fn apart(points: &[(f64, f64)], width: u32, pixel: impl Fn(&(f64, f64)) -> i32) -> Vec<(f64, f64)> {
    let mut apart = Vec::new();
    let mut rest = points;
    while let Some(first) = rest.first() {
        let end = pixel(first) + width as i32;
        let near = rest.iter().position(|point| pixel(point) >= end).unwrap_or(rest.len());
        let (these, others) = rest.split_at(near.max(1));
        let sum: f64 = these.iter().map(|(_, y)| y).sum();
        apart.push((first.0, sum / these.len() as f64));
        rest = others;
    }
    apart
}

fn mark<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    look: Look,
    at: (i32, i32),
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let filled = COLOURS[look.colour].filled();
    match look.colour % 3 {
        0 => area.draw(&Circle::new(at, 4, filled)),
        1 => area.draw(&TriangleMarker::new(at, 6, filled)),
        _ => area.draw(&Rectangle::new([(at.0 - 4, at.1 - 4), (at.0 + 4, at.1 + 4)], filled)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Drawing, png, svg};
    use super::*;

    /// The fill of a tier that is nearly full, with more samples than pixels.
    fn noisy(samples: u32) -> Vec<(f64, f64)> {
        let mut random = 1u32;
        let mut next = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(random >> 16) / 65_536.0
        };
        // Mostly full, sometimes far from it.
        (0..samples).map(|at| (f64::from(at), 100.0 - 25.0 * next().powi(3))).collect()
    }

    fn drawn(look: Look, points: Vec<(f64, f64)>) -> Drawing {
        let line = Line { name: "tier".to_owned(), stretches: vec![points], look };
        let last = line.stretches[0].last().expect("points").0;
        let panel = Panel {
            height: 250,
            title: "",
            x: Axis { label: "x".to_owned(), from: 0.0, to: last, ticks: Vec::new() },
            y: Axis::linear("y", 100.0, 100.0, |percent| format!("{percent}")),
            lines: vec![line],
        };
        Drawing { trace: "t".to_owned(), title: "many".to_owned(), panels: vec![panel] }
    }

    /// I1: no corner extends beyond the axis, or below the lowest sample, by more than the line's width.
    #[test]
    fn line_of_many_samples_stays_in_its_panel() {
        for (samples, look) in [300, 700, 1500, 4096]
            .into_iter()
            .flat_map(|of| [Look::nth(0), Look::nth(1), Look::MEASURE].map(|look| (of, look)))
        {
            let file = png(&drawn(look, noisy(samples))).expect("drawn");
            let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().expect("a PNG");
            let mut pixels = vec![0; reader.output_buffer_size().expect("small")];
            let width = reader.next_frame(&mut pixels).expect("all rows").width as usize;
            let RGBColor(red, green, blue) = COLOURS[look.colour];
            let coloured = pixels.chunks_exact(3).enumerate().filter(|(at, pixel)| {
                // The legend has the same colour.
                at % width < width - LEGEND as usize && **pixel == [red, green, blue]
            });
            let rows: Vec<usize> = coloured.map(|(at, _)| at / width).collect();
            // Below the title and the margin of the panel, above the labels of the axis.
            let (top, bottom) = (44 + 34, 44 + 250 - 8 - 48);
            let width = 2 * look.style().stroke_width as usize;
            let (highest, lowest) = (rows.iter().min().expect("a line"), rows.iter().max().expect("a line"));
            assert!(*highest >= top - width, "{samples} samples, {look:?}: row {highest}");
            let least = bottom - (bottom - top) * 3 / 4;
            assert!(*lowest <= least + width, "{samples} samples, {look:?}: row {lowest}");
        }
    }

    #[test]
    fn line_has_no_more_points_than_columns() {
        let svg = String::from_utf8(svg(&drawn(Look::nth(0), noisy(4096))).expect("drawn")).expect("UTF-8");
        let points = svg.split("<polyline ").filter_map(|line| line.split("points=\"").nth(1));
        let most =
            points.map(|points| points.split('"').next().map_or(0, |all| all.split_whitespace().count()));
        assert!((100..=365).contains(&most.max().expect("a line")), "{}", svg.len());
    }

    #[test]
    fn points_closer_than_the_line_width_become_their_mean() {
        let points = [(0.0, 1.0), (0.9, 2.0), (1.9, 3.0), (2.0, 4.0), (7.0, 5.0), (8.0, 7.0)];
        let thinned = |width| apart(&points, width, |(x, _)| *x as i32);
        assert_eq!(thinned(2), [(0.0, 2.0), (2.0, 4.0), (7.0, 6.0)]);
        assert_eq!(thinned(0), points, "each");
        assert!(apart(&[], 2, |_| 0).is_empty());
    }
}
