//! Figures of the benches: read, compared from round to round, written down.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Context;
use serde_json::{Map, Value, json};

use super::results::Figures;

/// One thing measured, in all rounds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// Identity of the case: bench, form and parameters, in the order of their names.
    pub(crate) case: BTreeMap<String, Value>,
    /// Measurements by name, a value a round.
    pub(crate) measured: BTreeMap<String, Vec<f64>>,
}

/// Endings of what is measured. All other fields of a line say what it is that was measured.
const MEASURED: [&str; 5] = ["_ns", "_us", "_per_second", "_ratio", "_count"];

/// The form that is measured beside the others, and that nothing is claimed of.
const FOR_INFORMATION: &str = "tcp";

/// Largest difference of the median between rounds, as a part of the smallest.
const SPREAD_MAX: f64 = 0.02;

/// Joins the lines of all rounds, in the order they first came.
///
/// # Errors
/// A line is not a flat JSON object.
pub(crate) fn rows(figures: &[Figures]) -> anyhow::Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    for Figures { program, lines } in figures {
        for line in lines {
            let read = || format!("reading what {program} printed: {line}");
            let fields: Map<String, Value> = serde_json::from_str(line).with_context(read)?;
            let (measured, case): (Vec<_>, Vec<_>) = fields
                .into_iter()
                .partition(|(name, _)| MEASURED.iter().any(|ending| name.ends_with(ending)));
            let case: BTreeMap<_, _> = case.into_iter().collect();
            let place = rows.iter().position(|row| row.case == case).unwrap_or_else(|| {
                rows.push(Row { case, measured: BTreeMap::new() });
                rows.len() - 1
            });
            for (name, value) in measured {
                let value = value.as_f64().with_context(read)?;
                rows[place].measured.entry(name).or_default().push(value);
            }
        }
    }
    Ok(rows)
}

impl Row {
    /// A text field of what it is; empty when there is none.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.case.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// A number of what it is.
    pub(crate) fn number(&self, name: &str) -> Option<f64> {
        self.case.get(name)?.as_f64()
    }

    /// The middle one of what was measured under this name.
    pub(crate) fn median(&self, name: &str) -> Option<f64> {
        let mut values = self.measured.get(name)?.clone();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    }

    /// Distance between the medians of the rounds, as a part of the smallest.
    fn spread(&self) -> Option<f64> {
        let values = self.measured.get("p50_ns")?;
        let smallest = values.iter().copied().fold(f64::INFINITY, f64::min);
        let largest = values.iter().copied().fold(0.0, f64::max);
        Some((largest - smallest) / smallest.max(f64::MIN_POSITIVE))
    }

    /// Name of the case, in words.
    fn name(&self) -> String {
        let first = [self.text("bench"), self.text("form")];
        let is_parameter = |name: &&String| !["bench", "form"].contains(&name.as_str());
        let parameters = self.case.keys().filter(is_parameter);
        let parameters = parameters.map(|name| format!("{name} {}", self.case[name]));
        first
            .into_iter()
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .chain(parameters)
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// The rows whose medians do not repeat, or were not measured in every round.
pub(crate) fn complaints(rows: &[Row], rounds: usize) -> Vec<String> {
    let mut complaints = Vec::new();
    for row in rows {
        let is_held = row.text("form") != FOR_INFORMATION;
        if let Some(spread) = row.spread().filter(|spread| is_held && *spread > SPREAD_MAX) {
            complaints.push(format!(
                "{}: the medians of the rounds are {:.1} % apart, more than {:.0} %",
                row.name(),
                100.0 * spread,
                100.0 * SPREAD_MAX
            ));
        }
        for (name, values) in row.measured.iter().filter(|(_, values)| values.len() != rounds) {
            let count = values.len();
            complaints
                .push(format!("{}: {name} was measured {count} times, not {rounds}", row.name()));
        }
    }
    complaints
}

/// All rows as a JSON list: what each is, the middle of what was measured, and every median.
pub(crate) fn json(rows: &[Row]) -> String {
    let row = |row: &Row| {
        let mut object: Map<String, Value> =
            row.case.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        for name in row.measured.keys() {
            object.insert(name.clone(), json!(row.median(name)));
        }
        if let Some(medians) = row.measured.get("p50_ns") {
            object.insert("p50_ns_of_rounds".to_owned(), json!(medians));
        }
        Value::Object(object)
    };
    let list = rows.iter().map(|one| format!("  {}", row(one))).collect::<Vec<_>>();
    format!("[\n{}\n]\n", list.join(",\n"))
}

/// All rows for a terminal, a line each.
pub(crate) fn table(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.name().len()).max().unwrap_or_default();
    let mut table = String::new();
    for row in rows {
        let measured = row.measured.keys().filter_map(|name| Some((name, row.median(name)?)));
        let measured: Vec<_> =
            measured.map(|(name, value)| format!("{name} {}", short(value))).collect();
        let _ = writeln!(table, "{:width$}  {}", row.name(), measured.join("  "));
    }
    table
}

/// With as many digits as matter.
fn short(value: f64) -> String {
    if value.abs() >= 100.0 || value == value.round() {
        format!("{value:.0}")
    } else {
        format!("{value:.3}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(p50: f64) -> Figures {
        let line = format!(
            r#"{{"bench": "ping", "form": "bare", "size": 8, "p50_ns": {p50}, "events": 1}}"#
        );
        Figures { program: "ping".to_owned(), lines: vec![line] }
    }

    #[test]
    fn rounds_of_the_same_case_are_one_row() {
        let rows = rows(&[round(100.0), round(102.0), round(101.0)]).expect("well-formed");
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].median("p50_ns"), Some(101.0));
        assert_eq!((rows[0].text("form"), rows[0].number("size")), ("bare", Some(8.0)));
        assert_eq!(complaints(&rows, 3), [""; 0]);
        assert!(json(&rows).contains("\"p50_ns\":101.0,\"p50_ns_of_rounds\":[100.0,102.0,101.0]"));
        assert!(table(&rows).starts_with("ping bare events 1 size 8  p50_ns 101"));
    }

    #[test]
    fn medians_that_do_not_repeat_are_complained_of() {
        let rows = rows(&[round(100.0), round(102.1)]).expect("well-formed");
        assert!(complaints(&rows, 2)[0].contains("2.1 % apart, more than 2 %"));
    }

    #[test]
    fn what_a_round_left_out_is_complained_of() {
        let rows = rows(&[round(100.0)]).expect("well-formed");
        assert!(complaints(&rows, 3)[0].contains("measured 1 times, not 3"));
    }

    #[test]
    fn what_is_no_figure_is_shown() {
        let figures = Figures { program: "ping".to_owned(), lines: vec!["fast!".to_owned()] };
        assert!(
            format!("{:#}", rows(&[figures]).expect_err("no object"))
                .contains("ping printed: fast!")
        );
    }
}
