//! Honest figures: ours beside a rival in the same run, taking turns, as a ratio with its spread.
//!
//! Two measurements made one after the other differ by what the machine did in between. So each
//! round measures both, the order changes from round to round, and only ratios within a round
//! count: drift cancels, and the spread of the ratios says how far to trust their median.
//!
//! The JSON record, one file per benchmark:
//!
//! ```text
//! {"bench": NAME, "figures": [{"id", "ours", "theirs", "rival", "unit", "ratio",
//!                              "spread": [least, most], "reach", "reached", "note"}]}
//! ```
//!
//! `ours` and `theirs` are medians, `ratio` the median of the rounds' ratios ours / theirs, and
//! `spread` their least and most. Without a rival `theirs`, `rival` and `ratio` are null and the
//! spread is that of ours; what could not be measured is null and not reached. `note` is
//! there only where a figure needs words.
//!
//! Invariant: `reached` follows from the figure and its reach, and is never set by hand.
//!
//! Does not know what is measured, nor keep time.

use std::fmt;

use serde::Serialize;

/// Measurements made in turns: one of ours and one of theirs per round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rounds {
    ours: Vec<f64>,
    theirs: Vec<f64>,
}

/// Measures `rounds` rounds of both, alternating, and changing who goes first each round.
///
/// # Errors
/// The first error of either: half a round tells nothing.
pub fn alternate<E>(
    rounds: usize,
    mut ours: impl FnMut(usize) -> Result<f64, E>,
    mut theirs: impl FnMut(usize) -> Result<f64, E>,
) -> Result<Rounds, E> {
    let mut measured = Rounds::default();
    for round in 0..rounds {
        let (mine, other) = if round % 2 == 0 {
            let mine = ours(round)?;
            (mine, theirs(round)?)
        } else {
            let other = theirs(round)?;
            (ours(round)?, other)
        };
        measured.push(mine, other);
    }
    Ok(measured)
}

impl Rounds {
    /// Adds a round that was measured elsewhere.
    pub fn push(&mut self, ours: f64, theirs: f64) {
        self.ours.push(ours);
        self.theirs.push(theirs);
    }

    /// Nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.ours.is_empty()
    }

    /// Ours divided by theirs, round by round. A round without a finite ratio is left out.
    pub fn ratios(&self) -> Vec<f64> {
        let pairs = self.ours.iter().zip(&self.theirs);
        pairs.map(|(ours, theirs)| ours / theirs).filter(|ratio| ratio.is_finite()).collect()
    }
}

/// The middle of the finite values; of two middles, their mean. None of none.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some((sorted[middle - 1] + upper) / 2.0)
}

/// The least and the most of the finite values. None of none.
pub fn spread(values: &[f64]) -> Option<[f64; 2]> {
    let finite = values.iter().copied().filter(|v| v.is_finite());
    let least = finite.clone().min_by(f64::total_cmp)?;
    let most = finite.max_by(f64::total_cmp)?;
    Some([least, most])
}

/// What a figure has to reach.
#[derive(Clone, Debug, PartialEq)]
pub enum Reach {
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
    /// Shown for comparison: it has to be measured, whatever it is.
    Shown,
}

impl Reach {
    /// Whether `value` reaches it.
    pub fn is_reached_by(&self, value: f64) -> bool {
        match self {
            Self::AtMost(bound) => value <= *bound,
            Self::AtLeast(bound) => value >= *bound,
            Self::Shown => true,
        }
    }

    fn text(&self, unit: &str) -> String {
        match self {
            Self::AtMost(bound) => format!("<= {bound}{unit}"),
            Self::AtLeast(bound) => format!(">= {bound}{unit}"),
            Self::Shown => "shown".to_owned(),
        }
    }
}

/// One figure of a benchmark.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// What was measured, short and stable: the name by which runs are compared.
    pub id: String,
    /// Median of our measurements.
    pub ours: Option<f64>,
    /// Median of the rival's.
    pub theirs: Option<f64>,
    /// Who the rival is.
    pub rival: Option<String>,
    /// Unit of ours and theirs.
    pub unit: String,
    /// Median of the rounds' ratios, ours / theirs.
    pub ratio: Option<f64>,
    /// Least and most of the ratios; of ours, where there is no rival.
    pub spread: Option<[f64; 2]>,
    /// What it has to reach, such as `<= 1.2x`.
    pub reach: String,
    /// Whether it does.
    pub reached: bool,
    /// What a reader should know beside the numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Figure {
    /// Ours beside `rival`; `reach` bounds the ratio ours / theirs.
    pub fn beside(id: &str, rival: &str, unit: &str, rounds: &Rounds, reach: &Reach) -> Self {
        let ratios = rounds.ratios();
        let ratio = median(&ratios);
        Self {
            id: id.to_owned(),
            ours: median(&rounds.ours),
            theirs: median(&rounds.theirs),
            rival: Some(rival.to_owned()),
            unit: unit.to_owned(),
            ratio,
            spread: spread(&ratios),
            reach: reach.text("x"),
            reached: ratio.is_some_and(|ratio| reach.is_reached_by(ratio)),
            note: None,
        }
    }

    /// Ours alone; `reach` bounds our median, in `unit`. No measurement is not reached.
    pub fn alone(id: &str, unit: &str, ours: &[f64], reach: &Reach) -> Self {
        let middle = median(ours);
        Self {
            id: id.to_owned(),
            ours: middle,
            theirs: None,
            rival: None,
            unit: unit.to_owned(),
            ratio: None,
            spread: spread(ours),
            reach: reach.text(&format!(" {unit}")),
            reached: middle.is_some_and(|ours| reach.is_reached_by(ours)),
            note: None,
        }
    }

    /// A promise that every round has to keep: the round furthest from `reach` stands for all.
    pub fn worst(id: &str, rival: &str, unit: &str, rounds: &Rounds, reach: &Reach) -> Self {
        let pairs =
            rounds.ours.iter().zip(&rounds.theirs).filter(|(ours, theirs)| (*ours / *theirs).is_finite());
        let by_ratio = |a: &(&f64, &f64), b: &(&f64, &f64)| (a.0 / a.1).total_cmp(&(b.0 / b.1));
        let worst = match reach {
            Reach::AtMost(_) => pairs.max_by(by_ratio),
            Reach::AtLeast(_) | Reach::Shown => pairs.min_by(by_ratio),
        };
        let mut alone = Rounds::default();
        if let Some((ours, theirs)) = worst {
            alone.push(*ours, *theirs);
        }
        Self { spread: spread(&rounds.ratios()), ..Self::beside(id, rival, unit, &alone, reach) }
    }

    /// A figure beside a rival that was not measured, and why.
    pub fn missing(id: &str, rival: &str, unit: &str, reach: &Reach, why: &str) -> Self {
        Self::beside(id, rival, unit, &Rounds::default(), reach).with_note(format!("not measured: {why}"))
    }

    /// The same figure with a note.
    pub fn with_note(self, note: String) -> Self {
        Self { note: Some(note), ..self }
    }
}

/// Everything one benchmark found.
///
/// Displays as a table for people; [`Report::to_json`] is for programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The benchmark's name.
    pub bench: String,
    /// Its figures, in the order measured.
    pub figures: Vec<Figure>,
}

impl Report {
    /// A report without figures.
    pub fn new(bench: &str) -> Self {
        Self { bench: bench.to_owned(), figures: Vec::new() }
    }

    /// Whether there are figures, and each reaches what it has to.
    pub fn all_reached(&self) -> bool {
        !self.figures.is_empty() && self.figures.iter().all(|figure| figure.reached)
    }

    /// The record, on one line.
    pub fn to_json(&self) -> String {
        // Numbers, strings and lists only: nothing here can fail to serialise.
        serde_json::to_string(self).expect("a report has no map keys and no foreign types")
    }
}

/// The table's columns.
const HEADINGS: [&str; 7] = ["figure", "ours", "theirs", "rival", "ratio", "spread", "reach"];

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<[String; 7]> = self.figures.iter().map(row).collect();
        let mut widths = HEADINGS.map(str::len);
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        writeln!(f, "{}", self.bench)?;
        write_row(f, &HEADINGS.map(String::from), &widths, "")?;
        for (row, figure) in rows.iter().zip(&self.figures) {
            let verdict = if figure.reached { "reached" } else { "NOT REACHED" };
            write_row(f, row, &widths, verdict)?;
        }
        Ok(())
    }
}

fn row(figure: &Figure) -> [String; 7] {
    let measured = |value: Option<f64>| match value {
        Some(value) => format!("{} {}", short(value), figure.unit),
        None => "-".to_owned(),
    };
    let times = if figure.ratio.is_some() { "x" } else { "" };
    [
        figure.id.clone(),
        measured(figure.ours),
        measured(figure.theirs),
        figure.rival.clone().unwrap_or_else(|| "-".to_owned()),
        figure.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{}x", short(ratio))),
        figure.spread.map_or_else(
            || "-".to_owned(),
            |[least, most]| format!("{}..{}{times}", short(least), short(most)),
        ),
        figure.reach.clone(),
    ]
}

/// Names and rivals to the left, numbers to the right.
fn write_row(
    f: &mut fmt::Formatter<'_>,
    cells: &[String; 7],
    widths: &[usize; 7],
    verdict: &str,
) -> fmt::Result {
    let mut line = String::from(" ");
    for (column, (cell, &width)) in cells.iter().zip(widths).enumerate() {
        line.push(' ');
        line += &match HEADINGS[column] {
            "figure" | "rival" | "reach" => format!("{cell:<width$} "),
            _ => format!("{cell:>width$} "),
        };
    }
    line.push(' ');
    line += verdict;
    writeln!(f, "{}", line.trim_end())
}

/// Three digits that matter, whatever the size.
fn short(value: f64) -> String {
    let size = value.abs();
    let decimals = match size {
        0.0 => 0,
        _ if size >= 100.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 1.0 => 2,
        _ if size >= 0.1 => 3,
        _ if size >= 0.001 => 5,
        _ => return format!("{value:.2e}"),
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(pairs: &[(f64, f64)]) -> Rounds {
        let mut rounds = Rounds::default();
        for &(ours, theirs) in pairs {
            rounds.push(ours, theirs);
        }
        rounds
    }

    #[test]
    fn rounds_alternate_and_change_who_goes_first() {
        let order = std::cell::RefCell::new(String::new());
        let note = |who, value| {
            order.borrow_mut().push(who);
            Ok::<f64, ()>(value)
        };
        let measured = alternate(4, |_| note('o', 2.0), |_| note('t', 1.0));
        assert_eq!(order.into_inner(), "ottootto");
        assert_eq!(measured.map(|m| m.ratios()), Ok(vec![2.0; 4]));
    }

    #[test]
    fn an_error_of_either_ends_the_measurement() {
        let measured = alternate(3, |_| Ok(1.0), |round| if round == 1 { Err(7) } else { Ok(1.0) });
        assert_eq!(measured, Err(7));
    }

    #[test]
    fn drift_of_the_machine_cancels_in_the_ratio() {
        // The machine slows down fourfold; ours stays 1.5 times theirs.
        let drifting = rounds(&[(1.5, 1.0), (3.0, 2.0), (6.0, 4.0)]);
        let figure = Figure::beside("write", "mmap", "s", &drifting, &Reach::AtMost(1.5));
        assert_eq!(figure.ratio, Some(1.5));
        assert_eq!(figure.spread, Some([1.5, 1.5]));
        assert!(figure.reached);
    }

    #[test]
    fn medians_and_spreads_leave_out_what_is_no_number() {
        assert_eq!(median(&[3.0, f64::NAN, 1.0, 2.0, f64::INFINITY]), Some(2.0));
        assert_eq!(median(&[1.0, 4.0]), Some(2.5));
        assert_eq!(median(&[]), None);
        assert_eq!(spread(&[3.0, f64::NAN, 1.0]), Some([1.0, 3.0]));
        assert_eq!(rounds(&[(1.0, 0.0), (0.0, 0.0), (1.0, 2.0)]).ratios(), [0.5]);
    }

    #[test]
    fn a_figure_not_measured_is_not_reached() {
        for reach in [Reach::AtMost(1.0), Reach::AtLeast(1.0), Reach::Shown] {
            assert!(!Figure::alone("save", "s", &[], &reach).reached);
            assert!(!Figure::beside("save", "x", "s", &Rounds::default(), &reach).reached);
        }
        assert!(!Report::new("empty").all_reached());
    }

    #[test]
    fn the_json_record_has_the_agreed_fields() {
        let mut report = Report::new("drill");
        report.figures.push(Figure::beside(
            "ycsb-a",
            "no tracking",
            "Mop/s",
            &rounds(&[(1.0, 2.0), (1.0, 4.0), (3.0, 4.0)]),
            &Reach::AtLeast(0.5),
        ));
        report.figures.push(Figure::alone("save", "s", &[], &Reach::AtMost(5.5)));
        assert_eq!(
            report.to_json(),
            concat!(
                r#"{"bench":"drill","figures":["#,
                r#"{"id":"ycsb-a","ours":1.0,"theirs":4.0,"rival":"no tracking","unit":"Mop/s","#,
                r#""ratio":0.5,"spread":[0.25,0.75],"reach":">= 0.5x","reached":true},"#,
                r#"{"id":"save","ours":null,"theirs":null,"rival":null,"unit":"s","#,
                r#""ratio":null,"spread":null,"reach":"<= 5.5 s","reached":false}]}"#
            )
        );
        assert!(!report.all_reached());
    }

    #[test]
    fn the_table_is_readable() {
        let mut report = Report::new("drill");
        report.figures.push(Figure::beside(
            "ycsb-a",
            "no tracking",
            "Mop/s",
            &rounds(&[(1.0, 2.0), (1.0, 4.0), (3.0, 4.0)]),
            &Reach::AtLeast(0.5),
        ));
        report.figures.push(Figure::alone("save", "s", &[12.25], &Reach::AtMost(5.0)));
        assert_eq!(
            report.to_string(),
            "\
drill
  figure        ours      theirs  rival         ratio         spread  reach
  ycsb-a  1.00 Mop/s  4.00 Mop/s  no tracking  0.500x  0.250..0.750x  >= 0.5x  reached
  save        12.2 s           -  -                 -     12.2..12.2  <= 5 s   NOT REACHED
"
        );
    }
}
