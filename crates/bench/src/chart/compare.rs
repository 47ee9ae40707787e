//! Draws comparisons: bars of several schemes, and curves over a setting, panel below panel.
//!
//! Does not know what is compared.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::panel::{self, Area, Drawn, FONT, GREY, GRID, Shape, caption_row, short};
use super::{BLUE, ChartError, GREEN, INK, ORANGE, VIOLET};

/// Bars of several schemes.
#[derive(Clone, Debug)]
pub struct Bars {
    /// What the axis counts.
    pub label: String,
    /// Names of a scheme's bars.
    pub series: Vec<String>,
    /// Each scheme's name and its bars, as many as there are series.
    pub schemes: Vec<(String, Vec<f64>)>,
    /// A scheme's bars stand on one another; beside one another otherwise.
    pub stacked: bool,
}

/// Curves over one setting.
#[derive(Clone, Debug)]
pub struct Curves {
    /// What the axis counts.
    pub label: String,
    /// What is set.
    pub setting: String,
    /// Each curve's name and points.
    pub curves: Vec<(String, Vec<(f64, f64)>)>,
}

/// One panel of a comparison.
#[derive(Clone, Debug)]
pub enum Compared {
    /// Of schemes.
    Bars(Bars),
    /// Over a setting.
    Curves(Curves),
}

const WIDTH: u32 = 1000;
const TITLE_HEIGHT: u32 = 64;
const PANEL_HEIGHT: u32 = 260;
const LEFT: u32 = 92;
const AXIS: u32 = 46;
const COLOURS: [RGBColor; 4] = [BLUE, ORANGE, GREEN, VIOLET];
/// Share of a scheme's room that its bars take.
const BARS: f64 = 0.72;

/// Draws the panels, one below the other, as an SVG document.
///
/// # Errors
/// There is no panel, a number is none, or the library refuses to draw.
pub fn comparison(title: &str, summary: &str, panels: &[Compared]) -> Result<String, ChartError> {
    if panels.is_empty() {
        return Err(ChartError::NoSamples);
    }
    if let Some(sample) = panels.iter().position(|panel| !panel.is_drawable()) {
        return Err(ChartError::Damaged { sample });
    }
    let mut svg = String::new();
    {
        let height = TITLE_HEIGHT + PANEL_HEIGHT * panels.len() as u32;
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        draw(&root, title, summary, panels)
            .and_then(|()| root.present())
            .map_err(|error| ChartError::Drawing(error.to_string()))?;
    }
    Ok(svg)
}

fn draw<'a>(root: &Area<'a>, title: &str, summary: &str, panels: &[Compared]) -> Drawn<'a> {
    root.fill(&WHITE)?;
    let (head, mut below) = root.split_vertically(TITLE_HEIGHT);
    panel::title(&head, title, summary)?;
    for panel in panels {
        let (area, rest) = below.split_vertically(PANEL_HEIGHT);
        match panel {
            Compared::Bars(bars) => bars.draw(&area)?,
            Compared::Curves(curves) => curves.draw(&area)?,
        }
        below = rest;
    }
    Ok(())
}

impl Compared {
    fn is_drawable(&self) -> bool {
        match self {
            Self::Bars(bars) => bars.schemes.iter().all(|(_, values)| {
                values.len() == bars.series.len() && values.iter().all(|value| value.is_finite())
            }),
            Self::Curves(curves) => {
                let mut points = curves.curves.iter().flat_map(|(_, points)| points);
                points.clone().next().is_some() && points.all(|(x, y)| x.is_finite() && y.is_finite())
            }
        }
    }
}

fn legend<'a>(area: &Area<'a>, names: &[&str], shape: Shape) -> Drawn<'a> {
    let entries: Vec<_> = names.iter().zip(COLOURS).map(|(name, colour)| (*name, shape, colour)).collect();
    caption_row(area, &entries)
}

/// What a panel's axes show.
struct Axes<'p> {
    label: &'p str,
    setting: &'p str,
    across: std::ops::Range<f64>,
    most: f64,
}

impl Axes<'_> {
    fn draw<'a, 'b>(&self, area: &'b Area<'a>) -> Result<Chart<'b, 'a>, DrawError<'a>> {
        let top = if self.most > 0.0 { self.most * 1.1 } else { 1.0 };
        let mut chart = ChartBuilder::on(area)
            .margin_top(34)
            .margin_right(28)
            .margin_left(18)
            .y_label_area_size(LEFT - 18)
            .x_label_area_size(AXIS)
            .build_cartesian_2d(self.across.clone(), 0.0..top)?;
        let named = self.setting.is_empty();
        chart
            .configure_mesh()
            .disable_x_mesh()
            .max_light_lines(0)
            .bold_line_style(GRID)
            .axis_style(GREY.mix(0.6))
            .label_style((FONT, 13).into_font().color(&INK))
            .axis_desc_style((FONT, 14).into_font().color(&INK))
            .x_labels(if named { 0 } else { 10 })
            .y_labels(5)
            .x_label_formatter(&|x| short(*x))
            .y_label_formatter(&|y| short(*y))
            .x_desc(self.setting)
            .y_desc(self.label)
            .draw()?;
        Ok(chart)
    }
}

type DrawError<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;
type Chart<'b, 'a> = ChartContext<
    'b,
    SVGBackend<'a>,
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
>;

impl Bars {
    fn draw<'a>(&self, area: &Area<'a>) -> Drawn<'a> {
        let heights = self.schemes.iter().map(|(_, values)| {
            if self.stacked { values.iter().sum() } else { values.iter().copied().fold(0.0, f64::max) }
        });
        let most = heights.fold(0.0, f64::max);
        let axes = Axes { label: &self.label, setting: "", across: 0.0..self.schemes.len() as f64, most };
        let mut chart = axes.draw(area)?;
        for (place, (name, values)) in self.schemes.iter().enumerate() {
            let left = place as f64 + (1.0 - BARS) / 2.0;
            let width = if self.stacked { BARS } else { BARS / self.series.len() as f64 };
            let mut stands_on = 0.0;
            for (bar, (value, colour)) in values.iter().zip(COLOURS).enumerate() {
                let (from, low) =
                    if self.stacked { (left, stands_on) } else { (left + bar as f64 * width, 0.0) };
                let corners = [(from, low), (from + width, low + value)];
                chart.draw_series([Rectangle::new(corners, colour.mix(0.8).filled())])?;
                stands_on += value;
            }
            let style = (FONT, 13).into_font().color(&INK).pos(Pos::new(HPos::Center, VPos::Top));
            let middle = (place as f64 + 0.5, 0.0);
            chart.draw_series([EmptyElement::at(middle) + Text::new(name.clone(), (0, 8), style)])?;
        }
        legend(area, &self.series.iter().map(String::as_str).collect::<Vec<_>>(), Shape::Area)
    }
}

impl Curves {
    fn draw<'a>(&self, area: &Area<'a>) -> Drawn<'a> {
        let points = || self.curves.iter().flat_map(|(_, points)| points);
        let most = points().map(|(_, y)| *y).fold(0.0, f64::max);
        let from = points().map(|(x, _)| *x).fold(f64::INFINITY, f64::min);
        let to = points().map(|(x, _)| *x).fold(f64::NEG_INFINITY, f64::max);
        let axes =
            Axes { label: &self.label, setting: &self.setting, across: from..to.max(from + 1e-9), most };
        let mut chart = axes.draw(area)?;
        for ((_, points), colour) in self.curves.iter().zip(COLOURS) {
            chart.draw_series(LineSeries::new(points.clone(), colour.stroke_width(3)))?;
            let dots = points.iter().map(|point| Circle::new(*point, 4, colour.filled()));
            chart.draw_series(dots)?;
        }
        let names: Vec<_> = self.curves.iter().map(|(name, _)| name.as_str()).collect();
        legend(area, &names, Shape::Line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(stacked: bool) -> Compared {
        Compared::Bars(Bars {
            label: "energy (pJ)".into(),
            series: vec!["reads".into(), "writes".into()],
            schemes: vec![("LCS".into(), vec![1.0, 2.0]), ("T<S>".into(), vec![0.5, 0.0])],
            stacked,
        })
    }

    fn curves(points: Vec<(f64, f64)>) -> Compared {
        let curves = vec![("swaps".to_owned(), points)];
        Compared::Curves(Curves { label: "relative".into(), setting: "threshold".into(), curves })
    }

    #[test]
    fn a_comparison_names_its_schemes_series_and_settings() {
        let panels = [bars(true), bars(false), curves(vec![(0.1, 1.0), (1.0, 2.0)])];
        let svg = comparison("SPS", "one & two", &panels).expect("drawn");
        for text in
            ["LCS", "T&lt;S&gt;", "reads", "writes", "energy (pJ)", "threshold", "relative", "one &amp; two"]
        {
            assert!(svg.contains(text), "{text} is missing");
        }
        assert!(svg.trim_end().ends_with("</svg>"));
        comparison("one point", "", &[curves(vec![(0.6, 1.0)])]).expect("drawn");
    }

    #[test]
    fn what_has_no_numbers_has_no_picture() {
        assert!(matches!(comparison("", "", &[]), Err(ChartError::NoSamples)));
        for damaged in [curves(vec![]), curves(vec![(0.0, f64::NAN)])] {
            let drawn = comparison("", "", &[bars(true), damaged]);
            assert!(matches!(drawn, Err(ChartError::Damaged { sample: 1 })));
        }
    }
}
