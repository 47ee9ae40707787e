//! Draws one panel: axes, the marks of cut and save, an area, perhaps a limit, a caption.
//!
//! Invariant: all panels have the same left and right border, so that one moment is one vertical
//! line through the whole picture.
//!
//! Does not know what the panels show.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::INK;

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(super) type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

/// The band of the save, and its name in the legend.
pub(super) const SAVE: RGBColor = RGBColor(251, 191, 36);
const SAVED: RGBColor = RGBColor(146, 64, 14);
const CUT: RGBColor = RGBColor(220, 38, 38);
pub(super) const GREY: RGBColor = RGBColor(107, 114, 128);
pub(super) const GRID: RGBColor = RGBColor(229, 231, 235);
pub(super) const FONT: &str = "Inter, Helvetica, Arial, sans-serif";

/// Pixels around the plot: room for labels to the left, EDGE of it empty, a caption above, an
/// axis below.
const LEFT: u32 = 92;
const EDGE: u32 = 18;
const RIGHT: u32 = 28;
const ABOVE: u32 = 34;
const BELOW: u32 = 12;
const AXIS: u32 = 46;
/// Opacity of areas: the grid stays visible, and so does one area behind a line.
const AREA: f64 = 0.22;
const BAND: f64 = 0.38;

/// The time axis, and what happened on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marks {
    pub(super) from_s: f64,
    pub(super) to_s: f64,
    pub(super) cut_s: Option<f64>,
    pub(super) saved_s: Option<f64>,
}

impl Marks {
    /// From the cut to the end of the save, where both are known.
    pub(super) fn band(&self) -> Option<(f64, f64)> {
        let (cut, saved) = (self.cut_s?, self.saved_s?);
        (saved >= cut && cut >= self.from_s).then_some((cut, saved))
    }
}

/// One panel's contents.
pub(super) struct Panel<'p> {
    pub(super) label: &'p str,
    pub(super) most: f64,
    pub(super) points: Vec<(f64, f64)>,
    pub(super) colour: RGBColor,
    pub(super) limit: Option<(Vec<(f64, f64)>, RGBColor)>,
    /// Whether it stands at the bottom, and so carries the time axis.
    pub(super) last: bool,
    /// Whether it writes the names of the marks beside them.
    pub(super) names_marks: bool,
}

impl Panel<'_> {
    pub(super) fn draw<'a>(self, area: &Area<'a>, marks: &Marks) -> Drawn<'a> {
        // A flat zero still has an axis; anything else gets a little air above.
        let top = if self.most > 0.0 { self.most * 1.16 } else { 1.0 };
        let mut chart = ChartBuilder::on(area)
            .margin_top(ABOVE)
            .margin_right(RIGHT)
            .margin_bottom(BELOW)
            .margin_left(EDGE)
            .y_label_area_size(LEFT - EDGE)
            .x_label_area_size(if self.last { AXIS } else { 0 })
            .build_cartesian_2d(marks.from_s..marks.to_s, 0.0..top)?;
        chart
            .configure_mesh()
            .max_light_lines(0)
            .bold_line_style(GRID)
            .axis_style(GREY.mix(0.6))
            .label_style((FONT, 13).into_font().color(&INK))
            .axis_desc_style((FONT, 14).into_font().color(&INK))
            .x_labels(12)
            .y_labels(if self.last || self.limit.is_none() { 4 } else { 7 })
            .x_label_formatter(&|t| short(*t))
            .y_label_formatter(&|value| short(*value))
            .x_desc(if self.last { "time (s)" } else { "" })
            .y_desc(self.label)
            .draw()?;
        if let Some((from, to)) = marks.band() {
            let band = Rectangle::new([(from, 0.0), (to, top)], SAVE.mix(BAND).filled());
            chart.draw_series([band])?;
        }
        chart.draw_series(
            AreaSeries::new(self.points, 0.0, self.colour.mix(AREA))
                .border_style(self.colour.stroke_width(2)),
        )?;
        if let Some((steps, colour)) = self.limit {
            chart.draw_series(LineSeries::new(steps, colour.stroke_width(4)))?;
        }
        if let Some(cut) = marks.cut_s.filter(|cut| *cut >= marks.from_s) {
            let line = vec![(cut, 0.0), (cut, top)];
            chart.draw_series(LineSeries::new(line, CUT.stroke_width(2)))?;
        }
        if self.names_marks {
            name_marks(&mut chart, marks, top)?;
        }
        Ok(())
    }
}

type Chart<'c, 'a> = ChartContext<
    'c,
    SVGBackend<'a>,
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
>;

/// Writes what the marks are beside them, on the side that has room.
fn name_marks<'a>(chart: &mut Chart<'_, 'a>, marks: &Marks, top: f64) -> Drawn<'a> {
    let Some(cut) = marks.cut_s.filter(|cut| *cut >= marks.from_s) else {
        return Ok(());
    };
    let share = |t: f64| (t - marks.from_s) / (marks.to_s - marks.from_s);
    let name = |text: String, at: f64, left: bool, row: i32, colour: RGBColor| {
        let (shift, side) = if left { (-7, HPos::Right) } else { (7, HPos::Left) };
        let style = (FONT, 14, FontStyle::Bold).into_font().color(&colour);
        let style = style.pos(Pos::new(side, VPos::Top));
        EmptyElement::at((at, top)) + Text::new(text, (shift, 5 + 17 * row), style)
    };
    let left = share(cut) > 0.5;
    let fail = name("mains fail".to_owned(), cut, left, 0, CUT);
    chart.draw_series([fail])?;
    if let Some((from, to)) = marks.band() {
        let text = format!("saved in {:.2} s", to - from);
        // To the right of the band; where there is no room, below the other name.
        let room = share(to) < 0.85;
        let (at, row) = if room { (to, 0) } else { (from, 1) };
        let row = if room && !left { 1 } else { row };
        chart.draw_series([name(text, at, !room, row, SAVED)])?;
    }
    Ok(())
}

/// How a series looks in the legend.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    Area,
    Line,
    Band,
}

/// Writes the legend of a panel in one row above its plot.
pub(super) fn caption_row<'a>(area: &Area<'a>, entries: &[(&str, Shape, RGBColor)]) -> Drawn<'a> {
    let middle = ABOVE as i32 - 14;
    let mut x = LEFT as i32;
    for (text, shape, colour) in entries {
        let swatch = [(x, middle - 6), (x + 20, middle + 6)];
        match shape {
            Shape::Area => {
                area.draw(&Rectangle::new(swatch, colour.mix(AREA).filled()))?;
                let border = vec![(x, middle - 6), (x + 20, middle - 6)];
                area.draw(&PathElement::new(border, colour.stroke_width(2)))?;
            }
            Shape::Line => {
                let line = vec![(x, middle), (x + 20, middle)];
                area.draw(&PathElement::new(line, colour.stroke_width(4)))?;
            }
            Shape::Band => area.draw(&Rectangle::new(swatch, colour.mix(BAND).filled()))?,
        }
        let style = (FONT, 14).into_font().color(&INK);
        let style = style.pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new((*text).to_owned(), (x + 28, middle), style))?;
        // No font is read, so the width is a guess, on the wide side.
        x += 24 + 8 * text.chars().count() as i32 + 20;
    }
    Ok(())
}

/// Writes the title and the line below it.
pub(super) fn title<'a>(area: &Area<'a>, title: &str, summary: &str) -> Drawn<'a> {
    let x = LEFT as i32;
    let bold = (FONT, 22, FontStyle::Bold).into_font().color(&INK);
    area.draw(&Text::new(title.to_owned(), (x, 16), bold))?;
    let plain = (FONT, 15).into_font().color(&GREY);
    area.draw(&Text::new(summary.to_owned(), (x, 44), plain))
}

/// A number as short as the axis needs it: 0, 0.5, 12, 5k, 1.5M.
pub fn short(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    // Rounded first: labels come from sums of steps, and 0.30000000000000004 is not a label.
    let rounded = (scaled * 1000.0).round() / 1000.0;
    format!("{rounded}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn labels_are_short() {
        let texts = [0.0, 0.1 + 0.2, 250.0, 5_000.0, 25_000.0, 1.5e6, 2e9].map(short);
        assert_eq!(texts, ["0", "0.3", "250", "5k", "25k", "1.5M", "2G"]);
    }
}
