//! Pictures. [`to_svg`] draws a drill: dirty pages under their budget, first-write faults, SSD traffic, over one time.
//!
//! Three panels share the time axis; the mains fail at a line, the save is a band. The picture is
//! SVG whose text is text: no font is read, and the viewer's own is used.
//!
//! Invariants: a picture never flatters. Where there are more samples than columns, a column
//! shows the *most* dirty pages and the *least* budget of its samples; rates are means.
//!
//! [`comparison`] draws bars of schemes and curves over a setting.
//!
//! Does not measure, nor judge whether the drill was passed.

mod compare;
mod panel;
mod series;

use std::fmt;

use plotters::prelude::*;

pub use compare::{Bars, Compared, Curves, comparison};
pub use panel::short;
use panel::{Marks, Panel, Shape, caption_row};
use series::Column;
pub use series::thousands;

/// What was seen at one moment of a drill.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Seconds since the start.
    pub t_s: f64,
    /// Pages dirty or in flight.
    pub dirty_pages: u64,
    /// Pages that may be.
    pub budget_pages: u64,
    /// First-write faults per second since the sample before.
    pub faults_per_s: f64,
    /// Bytes per second written to the SSD since the sample before.
    pub ssd_bytes_per_s: f64,
}

/// A drill from its start to its end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// Above the picture.
    pub title: String,
    /// In the order of time.
    pub samples: Vec<Sample>,
    /// When the mains failed.
    pub cut_t_s: Option<f64>,
    /// When everything was on the SSD.
    pub saved_t_s: Option<f64>,
}

/// Why there is no picture.
#[derive(Debug)]
pub enum ChartError {
    /// Nothing was sampled.
    NoSamples,
    /// A number that is none, or times that go back.
    Damaged {
        /// The sample, from 0.
        sample: usize,
    },
    /// The drawing library refused.
    Drawing(String),
}

impl fmt::Display for ChartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSamples => f.write_str("a timeline without samples has no picture"),
            Self::Damaged { sample } => write!(
                f,
                "sample {sample} of the timeline has an invalid number, or is older than the one before"
            ),
            Self::Drawing(cause) => write!(f, "cannot draw the timeline: {cause}"),
        }
    }
}

impl std::error::Error for ChartError {}

/// Pixels of the picture; SVG scales, so this fixes proportions and the size of text.
const WIDTH: u32 = 1200;
const HEIGHT: u32 = 860;
/// Heights of title, upper, middle and lower panel; what is left belongs to the lower one, which
/// carries the time axis.
const TITLE_HEIGHT: u32 = 64;
const UPPER_HEIGHT: u32 = 370;
const MIDDLE_HEIGHT: u32 = 190;

const INK: RGBColor = RGBColor(31, 41, 55);
const BLUE: RGBColor = RGBColor(37, 99, 235);
const ORANGE: RGBColor = RGBColor(234, 88, 12);
const VIOLET: RGBColor = RGBColor(124, 58, 237);
const GREEN: RGBColor = RGBColor(5, 150, 105);

/// Draws the timeline as an SVG document.
///
/// # Errors
/// The timeline is empty or damaged, or the library refuses to draw.
pub fn to_svg(timeline: &Timeline) -> Result<String, ChartError> {
    check(timeline)?;
    let columns = series::columns(&timeline.samples);
    let marks = Marks {
        from_s: timeline.samples.first().map_or(0.0, |s| s.t_s),
        to_s: series::end_s(timeline),
        cut_s: timeline.cut_t_s,
        saved_s: timeline.saved_t_s,
    };
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        draw(&root, timeline, &columns, &marks)
            .and_then(|()| root.present())
            .map_err(|error| ChartError::Drawing(error.to_string()))?;
    }
    Ok(svg)
}

fn check(timeline: &Timeline) -> Result<(), ChartError> {
    if timeline.samples.is_empty() {
        return Err(ChartError::NoSamples);
    }
    let mut before = f64::NEG_INFINITY;
    for (sample, s) in timeline.samples.iter().enumerate() {
        let numbers = [s.t_s, s.faults_per_s, s.ssd_bytes_per_s];
        if numbers.iter().any(|n| !n.is_finite()) || s.t_s < before {
            return Err(ChartError::Damaged { sample });
        }
        before = s.t_s;
    }
    let marks = [timeline.cut_t_s, timeline.saved_t_s];
    if marks.iter().flatten().any(|t| !t.is_finite()) {
        let sample = timeline.samples.len();
        return Err(ChartError::Damaged { sample });
    }
    Ok(())
}

fn draw<'a>(
    root: &DrawingArea<SVGBackend<'a>, plotters::coord::Shift>,
    timeline: &Timeline,
    columns: &[Column],
    marks: &Marks,
) -> panel::Drawn<'a> {
    root.fill(&WHITE)?;
    let (title, below) = root.split_vertically(TITLE_HEIGHT);
    let (upper, below) = below.split_vertically(UPPER_HEIGHT);
    let (middle, lower) = below.split_vertically(MIDDLE_HEIGHT);
    panel::title(&title, &timeline.title, &series::summary(timeline))?;

    let most_budget = columns.iter().map(|c| c.budget_pages).fold(0.0, f64::max);
    let most_dirty = columns.iter().map(|c| c.dirty_pages).fold(0.0, f64::max);
    let dirty = Panel {
        label: "dirty (4 KiB pages)",
        most: most_budget.max(most_dirty),
        points: columns.iter().map(|c| (c.t_s, c.dirty_pages)).collect(),
        colour: BLUE,
        limit: Some((series::steps(columns), ORANGE)),
        last: false,
        names_marks: true,
    };
    dirty.draw(&upper, marks)?;
    let saved = [("save", Shape::Band, panel::SAVE)];
    let saved = &saved[..usize::from(marks.band().is_some())];
    let both = [("dirty pages", Shape::Area, BLUE), ("dirty budget", Shape::Line, ORANGE)];
    caption_row(&upper, &[&both, saved].concat())?;

    let rate = |label, values: Vec<(f64, f64)>, colour, last| Panel {
        label,
        most: values.iter().map(|(_, value)| *value).fold(0.0, f64::max),
        points: values,
        colour,
        limit: None,
        last,
        names_marks: false,
    };
    let faults = columns.iter().map(|c| (c.t_s, c.faults_per_s)).collect();
    rate("faults / s", faults, VIOLET, false).draw(&middle, marks)?;
    caption_row(&middle, &[("first-write faults per second", Shape::Area, VIOLET)])?;

    let megabytes = columns.iter().map(|c| (c.t_s, c.ssd_bytes_per_s / 1e6)).collect();
    rate("MB / s", megabytes, GREEN, true).draw(&lower, marks)?;
    caption_row(&lower, &[("written to the SSD, MB per second", Shape::Area, GREEN)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drill() -> Timeline {
        let samples = (0..500)
            .map(|i| Sample {
                t_s: f64::from(i) * 0.1,
                dirty_pages: 900 + i as u64 % 90,
                budget_pages: if i < 250 { 1234 } else { 1000 },
                faults_per_s: 5e4,
                ssd_bytes_per_s: 2.5e8,
            })
            .collect();
        Timeline {
            title: "wattkeep drill <a & b>".to_owned(),
            samples,
            cut_t_s: Some(40.0),
            saved_t_s: Some(41.5),
        }
    }

    #[test]
    fn the_picture_names_its_series_its_units_and_the_cut() {
        let svg = to_svg(&drill()).expect("drawn");
        for text in [
            "dirty pages",
            "dirty budget",
            "first-write faults per second",
            "written to the SSD, MB per second",
            "dirty (4 KiB pages)",
            "faults / s",
            "MB / s",
            "time (s)",
            "mains fail",
            "saved in 1.50 s",
            "wattkeep drill &lt;a &amp; b&gt;",
        ] {
            assert!(svg.contains(text), "{text} is missing");
        }
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn a_drill_without_a_cut_has_no_marks() {
        let svg = to_svg(&Timeline { cut_t_s: None, saved_t_s: None, ..drill() }).expect("drawn");
        assert!(!svg.contains("mains fail"));
        assert!(!svg.contains("save"));
    }

    #[test]
    fn unusual_timelines_still_have_a_picture() {
        let one = Timeline {
            samples: vec![Sample {
                t_s: 3.0,
                dirty_pages: 0,
                budget_pages: 0,
                faults_per_s: 0.0,
                ssd_bytes_per_s: 0.0,
            }],
            ..drill()
        };
        to_svg(&one).expect("a single sample, cut long after");
        let early = Timeline { cut_t_s: Some(-5.0), saved_t_s: Some(-6.0), ..drill() };
        to_svg(&early).expect("marks outside the samples");
    }

    #[test]
    fn an_empty_or_damaged_timeline_is_refused() {
        let empty = to_svg(&Timeline::default());
        assert!(matches!(empty, Err(ChartError::NoSamples)));
        let mut damaged = drill();
        damaged.samples[7].ssd_bytes_per_s = f64::NAN;
        assert!(matches!(to_svg(&damaged), Err(ChartError::Damaged { sample: 7 })));
        let mut back = drill();
        back.samples[9].t_s = 0.0;
        assert!(matches!(to_svg(&back), Err(ChartError::Damaged { sample: 9 })));
    }

    #[test]
    fn a_long_drill_does_not_make_a_large_picture() {
        let mut long = drill();
        long.samples =
            (0..300_000).map(|i| Sample { t_s: f64::from(i) * 0.001, ..drill().samples[0] }).collect();
        assert!(to_svg(&long).expect("drawn").len() < 200_000);
    }
}
