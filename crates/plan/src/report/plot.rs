//! Pictures as SVG whose text is text: lines over a logarithmic axis, and groups of bars.
//!
//! Invariant: the same numbers give the same picture; no font is read.
//!
//! Does not know what the pictures show.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use wattkeep_bench::chart::short;

const WIDTH: u32 = 860;
const HEIGHT: u32 = 340;
const FONT: &str = "Inter, Helvetica, Arial, sans-serif";
const INK: RGBColor = RGBColor(31, 41, 55);
const GREY: RGBColor = RGBColor(107, 114, 128);
const GRID: RGBColor = RGBColor(229, 231, 235);

/// Colours of series, told apart by lightness, too.
const COLOURS: [RGBColor; 4] =
    [RGBColor(37, 99, 235), RGBColor(234, 88, 12), RGBColor(5, 150, 105), RGBColor(124, 58, 237)];
const MARK: RGBColor = RGBColor(220, 38, 38);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

/// A named series.
pub(super) struct Series<T> {
    pub(super) name: String,
    pub(super) values: Vec<T>,
}

/// What is drawn around the values.
pub(super) struct Frame<'a> {
    pub(super) x: &'a str,
    pub(super) y: &'a str,
}

/// Lines over a logarithmic axis; `marks` are places on it with a name.
pub(super) fn lines(frame: &Frame<'_>, series: &[Series<(f64, f64)>], marks: &[(f64, &str)]) -> String {
    svg(|root| {
        let points = || series.iter().flat_map(|series| &series.values);
        let from = points().map(|(x, _)| *x).fold(f64::INFINITY, f64::min).max(1.0);
        let to = points().map(|(x, _)| *x).fold(from, f64::max).max(from * 1.01);
        let top = points().map(|(_, y)| *y).fold(0.0, f64::max);
        let top = if top > 0.0 { top * 1.12 } else { 1.0 };
        let mut chart = ChartBuilder::on(root)
            .margin_top(34)
            .margin_right(28)
            .margin_left(10)
            .margin_bottom(6)
            .y_label_area_size(74)
            .x_label_area_size(44)
            .build_cartesian_2d((from..to).log_scale(), 0.0..top)?;
        chart
            .configure_mesh()
            .max_light_lines(0)
            .bold_line_style(GRID)
            .axis_style(GREY.mix(0.6))
            .label_style((FONT, 13).into_font().color(&INK))
            .axis_desc_style((FONT, 14).into_font().color(&INK))
            .x_label_formatter(&|x| short(*x))
            .y_label_formatter(&|y| short(*y))
            .x_desc(frame.x)
            .y_desc(frame.y)
            .draw()?;
        for (series, colour) in series.iter().zip(COLOURS.iter().cycle()) {
            chart.draw_series(LineSeries::new(series.values.iter().copied(), colour.stroke_width(2)))?;
        }
        for (row, (at, name)) in (0_i32..).zip(marks.iter().filter(|(at, _)| (from..=to).contains(at))) {
            chart.draw_series(LineSeries::new([(*at, 0.0), (*at, top)], MARK.stroke_width(1)))?;
            // On the side that has room.
            let left = (at / from).ln() > 0.7 * (to / from).ln();
            let (shift, side) = if left { (-5, HPos::Right) } else { (5, HPos::Left) };
            let style = (FONT, 13).into_font().color(&MARK).pos(Pos::new(side, VPos::Top));
            let text = Text::new((*name).to_owned(), (shift, 4 + 16 * row), style);
            let label = EmptyElement::at((*at, top)) + text;
            chart.draw_series([label])?;
        }
        legend(root, series.iter().map(|series| series.name.as_str()))
    })
}

/// Groups of bars, one bar of each series in each group.
pub(super) fn bars(frame: &Frame<'_>, groups: &[String], series: &[Series<f64>]) -> String {
    svg(|root| {
        let top = series.iter().flat_map(|series| &series.values).fold(0.0_f64, |top, value| top.max(*value));
        let top = if top > 0.0 { top * 1.12 } else { 1.0 };
        let mut chart = ChartBuilder::on(root)
            .margin_top(34)
            .margin_right(28)
            .margin_left(10)
            .margin_bottom(6)
            .y_label_area_size(74)
            .x_label_area_size(44)
            .build_cartesian_2d(0.0..groups.len().max(1) as f64, 0.0..top)?;
        // A name in the middle of its group: labels at halves.
        let name = |x: f64| {
            let place = (x - 0.5).round();
            let at_middle = (x - 0.5 - place).abs() < 0.01 && place >= 0.0;
            if at_middle { groups.get(place as usize).cloned().unwrap_or_default() } else { String::new() }
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .max_light_lines(0)
            .bold_line_style(GRID)
            .axis_style(GREY.mix(0.6))
            .label_style((FONT, 13).into_font().color(&INK))
            .axis_desc_style((FONT, 14).into_font().color(&INK))
            .x_labels(groups.len() * 2 + 1)
            .x_label_formatter(&|x| name(*x))
            .y_label_formatter(&|y| short(*y))
            .x_desc(frame.x)
            .y_desc(frame.y)
            .draw()?;
        let width = 0.8 / series.len().max(1) as f64;
        for (place, (series, colour)) in series.iter().zip(COLOURS.iter().cycle()).enumerate() {
            let bar = |(group, value): (usize, &f64)| {
                let left = group as f64 + 0.1 + width * place as f64;
                Rectangle::new([(left, 0.0), (left + width * 0.92, *value)], colour.filled())
            };
            chart.draw_series(series.values.iter().enumerate().map(bar))?;
        }
        legend(root, series.iter().map(|series| series.name.as_str()))
    })
}

fn svg(draw: impl for<'a> Fn(&Area<'a>) -> Drawn<'a>) -> String {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        let drawn = root.fill(&WHITE).and_then(|()| draw(&root)).and_then(|()| root.present());
        drawn.expect("drawing into memory does not fail");
    }
    svg
}

fn legend<'a, 'n>(root: &Area<'a>, names: impl Iterator<Item = &'n str>) -> Drawn<'a> {
    let mut x = 92;
    for (name, colour) in names.zip(COLOURS.iter().cycle()) {
        root.draw(&Rectangle::new([(x, 12), (x + 18, 22)], colour.filled()))?;
        root.draw(&Text::new(name.to_owned(), (x + 25, 11), (FONT, 13).into_font().color(&INK)))?;
        // No font is read, so the width is a guess, on the wide side.
        x += 52 + 7 * name.chars().count() as i32;
    }
    Ok(())
}
