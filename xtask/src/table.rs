//! The table of one comparison: each figure with both sides, their ratio and its target.

use serde_json::Value;

/// One number that both sides report.
pub struct Figure {
    /// The first cell.
    pub name: &'static str,
    /// The key in PyTorch's report.
    pub peer: &'static str,
    /// The key in ours.
    pub ours: &'static str,
    /// How a number is written.
    pub write: fn(f64) -> String,
    /// What ours has to reach.
    pub target: Target,
}

/// What a figure of ours has to reach.
#[derive(Clone, Copy)]
pub enum Target {
    /// Nothing; the figure is there to be read.
    None,
    /// At least this multiple of PyTorch's.
    AtLeast(f64),
    /// At most this multiple of PyTorch's.
    AtMost(f64),
    /// At most this number, whatever PyTorch's is.
    AtMostInItself(f64),
}

/// One round: PyTorch's report and ours, measured one right after the other.
pub struct Round {
    /// PyTorch's.
    pub peer: Value,
    /// Ours.
    pub ours: Value,
}

/// A finished table.
pub struct Table {
    /// Markdown.
    pub text: String,
    /// Figures with a target.
    pub targets: usize,
    /// Those that reach it.
    pub met: usize,
}

/// Sets `rounds` against each other. Numbers are medians over the rounds; the ratio is the median
/// of the rounds' ratios, with the smallest and the largest behind it.
pub fn compare(title: &str, figures: &[Figure], rounds: &[Round]) -> Table {
    let mut table = Table { text: format!("\n{title}\n\n"), targets: 0, met: 0 };
    table.text.push_str("| figure | PyTorch | Sneppx | ratio | range | target | met |\n");
    table.text.push_str("|---|---|---|---|---|---|---|\n");
    for figure in figures {
        let peer: Option<Vec<f64>> = rounds.iter().map(|r| r.peer[figure.peer].as_f64()).collect();
        let ours: Option<Vec<f64>> = rounds.iter().map(|r| r.ours[figure.ours].as_f64()).collect();
        let row = row(figure, peer.as_deref(), ours.as_deref());
        table.text.push_str(&format!("| {} |\n", row.cells.join(" | ")));
        table.targets += usize::from(row.met.is_some());
        table.met += usize::from(row.met == Some(true));
    }
    table
}

struct Row {
    cells: Vec<String>,
    /// None where there is no target.
    met: Option<bool>,
}

/// A side that did not report the figure shows as such, and a target that cannot be judged for
/// that reason counts as missed.
fn row(figure: &Figure, peer: Option<&[f64]>, ours: Option<&[f64]>) -> Row {
    let side = |numbers: Option<&[f64]>| {
        numbers.map_or("not reported".to_owned(), |numbers| (figure.write)(median(numbers)))
    };
    let ratios: Option<Vec<f64>> = peer
        .zip(ours)
        .map(|(peer, ours)| peer.iter().zip(ours).map(|(peer, ours)| ours / peer).collect());
    let (ratio, range) = match &ratios {
        None => Default::default(),
        Some(ratios) => {
            let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
            let most = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            (format!("{:.3}", median(ratios)), format!("{least:.3} to {most:.3}"))
        }
    };
    let ratio_number = ratios.as_deref().map(median);
    let (target, met) = match figure.target {
        Target::None => (String::new(), None),
        Target::AtLeast(bound) => {
            (format!("≥ {bound} ×"), Some(ratio_number.is_some_and(|ratio| ratio >= bound)))
        }
        Target::AtMost(bound) => {
            (format!("≤ {bound} ×"), Some(ratio_number.is_some_and(|ratio| ratio <= bound)))
        }
        Target::AtMostInItself(bound) => (
            format!("≤ {}", (figure.write)(bound)),
            Some(ours.is_some_and(|ours| median(ours) <= bound)),
        ),
    };
    let verdict = met.map_or("", |met| if met { "yes" } else { "NO" }).to_owned();
    let name = figure.name.to_owned();
    Row { cells: vec![name, side(peer), side(ours), ratio, range, target, verdict], met }
}

/// The middle number, or the mean of the two in the middle.
fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn figure(key: &'static str, target: Target) -> Figure {
        Figure { name: key, peer: key, ours: key, write: |number| format!("{number:.2}"), target }
    }

    fn lines(target: Target, rounds: &[(Value, Value)]) -> (String, usize) {
        let rounds: Vec<Round> = rounds
            .iter()
            .map(|(peer, ours)| Round { peer: json!({"x": peer}), ours: json!({"x": ours}) })
            .collect();
        let table = compare("title", &[figure("x", target)], &rounds);
        assert_eq!(table.targets, usize::from(!matches!(target, Target::None)));
        (table.text.lines().last().unwrap().to_owned(), table.met)
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let rounds = [(json!(1.0), json!(3.0)), (json!(2.0), json!(2.0)), (json!(4.0), json!(8.0))];
        let (line, met) = lines(Target::AtLeast(2.0), &rounds);
        assert_eq!(line, "| x | 2.00 | 3.00 | 2.000 | 1.000 to 3.000 | ≥ 2 × | yes |");
        assert_eq!(met, 1);
        assert_eq!(lines(Target::AtMost(1.9), &rounds).1, 0);
        assert_eq!(lines(Target::AtMostInItself(3.0), &rounds).1, 1);
        assert_eq!(lines(Target::AtMostInItself(2.9), &rounds).1, 0);
    }

    #[test]
    fn a_figure_that_a_side_does_not_report_misses_its_target() {
        let (line, met) = lines(Target::AtLeast(1.0), &[(json!(1.0), Value::Null)]);
        assert_eq!(line, "| x | 1.00 | not reported |  |  | ≥ 1 × | NO |");
        assert_eq!(met, 0);
        assert_eq!(lines(Target::None, &[(Value::Null, json!(1.0))]).1, 0);
    }

    #[test]
    fn the_median_of_an_even_number_is_between() {
        assert_eq!((median(&[3.0]), median(&[4.0, 1.0, 2.0, 3.0])), (3.0, 2.5));
    }
}
