//! The figures of the README are those of the rows that are kept beside it.

use std::path::Path;

use serde_json::Value;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Sources of the first table's figures: the bench, and the row's figure.
const COLUMNS: [(&str, &str); 4] = [
    ("unary_latency_100b", "median_us"),
    ("unary_latency_100b", "p99_us"),
    ("unary_throughput_64_inflight", "per_second"),
    ("unary_throughput_64_inflight", "cpu_us_per_op"),
];

#[test]
fn every_system_of_the_run_is_in_the_table_with_its_figures() -> Result {
    let rows = Rows::kept()?;
    let table = rows_of_table("| system | median")?;
    for cells in &table {
        let system = code(&cells[0])?;
        for ((bench, figure), cell) in COLUMNS.iter().zip(&cells[1..]) {
            let row = rows.find(bench, &system);
            let what = format!("{system}, {figure}");
            let (middle, rounds) =
                cell.trim_end_matches(')').split_once(" (").unwrap_or((cell, ""));
            assert_fits(&what, middle, row.map(|row| &row[figure]));
            let (lowest, highest) = rounds.split_once(" to ").unwrap_or_default();
            for (cell, index) in [(lowest, 0), (highest, 1)] {
                assert_fits(&what, cell, row.map(|row| &row["spread"][figure][index]));
            }
        }
    }
    let shown: Vec<String> = table.iter().map(|cells| code(&cells[0])).collect::<Result<_>>()?;
    for (bench, _) in COLUMNS {
        for system in rows.systems(bench) {
            assert!(shown.contains(&system), "{system} of {bench} is not in the table");
        }
    }
    Ok(())
}

#[test]
fn the_ratios_of_the_second_table_are_those_of_the_run() -> Result {
    let rows = Rows::kept()?;
    let table = rows_of_table("| bench | system | against |")?;
    for cells in &table {
        let (bench, system, against) = (code(&cells[0])?, code(&cells[1])?, code(&cells[2])?);
        let row = rows.find(&bench, &system).ok_or_else(|| format!("no {system} of {bench}"))?;
        let ratios = row["ratios"].as_array().ok_or("a list of ratios")?;
        let ratio = ratios.iter().find(|ratio| ratio["against"] == against.as_str());
        for (figure, cell) in ["median", "per_second", "cpu"].iter().zip(&cells[3..]) {
            let what = format!("{bench}, {system} against {against}, {figure}");
            assert_fits(&what, cell, ratio.map(|ratio| &ratio[figure]));
        }
    }
    let shown =
        table.iter().map(|cells| Ok([code(&cells[0])?, code(&cells[1])?, code(&cells[2])?]));
    let shown: Vec<[String; 3]> = shown.collect::<Result<_>>()?;
    for behind in rows.behind() {
        assert!(
            shown.contains(&behind),
            "{behind:?}: Convoke is behind, which is not in the table"
        );
    }
    Ok(())
}

#[test]
fn the_figures_beside_etcd_are_those_of_the_rounds_that_are_kept() -> Result {
    let rows: Vec<Value> = serde_json::from_str(include_str!("../docs/paxos/etcd.json"))?;
    let table = rows_of_table("| clients | figure | etcd |")?;
    assert!(table.len() > 3, "only {} rows", table.len());
    for cells in &table {
        let figure = match cells[1].as_str() {
            "puts a second" => "per_second",
            "median µs" => "median_us",
            "processor µs a put, all three nodes" => "cpu_us_per_put",
            other => return Err(format!("no figure `{other}`").into()),
        };
        let clients: u64 = cells[0].parse()?;
        let of = |system: &str| -> Vec<f64> {
            let is_it = |row: &&Value| row["system"] == system && row["clients"] == clients;
            rows.iter().filter(is_it).filter_map(|row| row[figure].as_f64()).collect()
        };
        let (etcd, paxos) = (of("etcd"), of("paxos"));
        let ratios = paxos.iter().zip(&etcd).map(|(paxos, etcd)| paxos / etcd).collect();
        for (cell, values) in cells[2..].iter().zip([etcd.clone(), paxos.clone(), ratios]) {
            let value = median(values).ok_or("no rounds")?;
            assert!(fits(cell, value), "{clients} clients, {figure}: `{cell}` of {value}");
        }
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[test]
fn a_cell_fits_what_it_is_rounded_from_and_nothing_else() {
    for (cell, value) in [("0.91", 0.908), ("561,000", 561_478.1), ("20.9", 20.94), ("7", 7.4)] {
        assert!(fits(cell, value), "{cell} of {value}");
    }
    for (cell, value) in [("0.91", 0.904), ("561,000", 561_600.0), ("20.9", 20.96), ("", 1.0)] {
        assert!(!fits(cell, value), "{cell} of {value}");
    }
}

/// The rows of the run.
struct Rows(Vec<Value>);

impl Rows {
    fn kept() -> Result<Self> {
        let kept: Value = serde_json::from_str(include_str!("../docs/benchmarks/rows.json"))?;
        // Older files have no header beside the rows.
        let rows = kept.get("rows").unwrap_or(&kept);
        Ok(Self(rows.as_array().ok_or("a list of rows")?.clone()))
    }

    /// The bench, the system of this project and the other one of each comparison that is lost, by
    /// figures with two decimals.
    fn behind(&self) -> Vec<[String; 3]> {
        let is_worse = |ratio: &Value| {
            let hundredths = |figure: &str| (ratio[figure].as_f64().unwrap_or(1.0) * 100.0).round();
            hundredths("median") > 100.0
                || hundredths("per_second") < 100.0
                || hundredths("cpu") > 100.0
        };
        let ours = self.0.iter().filter(|row| name(row).starts_with("convoke"));
        let ratios = ours.flat_map(|row| {
            row["ratios"].as_array().into_iter().flatten().map(move |ratio| (row, ratio))
        });
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        ratios
            .filter(|(_, ratio)| is_worse(ratio))
            .map(|(row, ratio)| [text(&row["bench"]), name(row), text(&ratio["against"])])
            .collect()
    }

    /// The row of a bench and a system, with its form behind the name where it has one.
    fn find(&self, bench: &str, system: &str) -> Option<&Value> {
        self.0.iter().find(|row| row["bench"] == bench && name(row) == system)
    }

    fn systems(&self, bench: &str) -> Vec<String> {
        self.0.iter().filter(|row| row["bench"] == bench).map(name).collect()
    }
}

fn name(row: &Value) -> String {
    let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
    format!("{} {}", text("system"), text("form")).trim_end().to_owned()
}

/// The cells of the README's table that begins so, without its two lines of head.
fn rows_of_table(head: &str) -> Result<Vec<Vec<String>>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = std::fs::read_to_string(path)?;
    let lines = readme.lines().skip_while(|line| !line.starts_with(head));
    let rows = lines.skip(2).take_while(|line| line.starts_with('|'));
    let rows: Vec<_> = rows.map(cells).collect();
    if rows.is_empty() { Err(format!("the README has no table `{head}`").into()) } else { Ok(rows) }
}

fn cells(line: &str) -> Vec<String> {
    line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// The text between the first two backticks of a cell.
fn code(cell: &str) -> Result<String> {
    let code = cell.split('`').nth(1).ok_or_else(|| format!("no name in `{cell}`"))?;
    Ok(code.to_owned())
}

/// An empty cell has no figure, and every other the kept one.
fn assert_fits(what: &str, cell: &str, kept: Option<&Value>) {
    match kept.and_then(Value::as_f64) {
        Some(value) => assert!(fits(cell, value), "{what}: `{cell}`, and the run has {value}"),
        None => assert_eq!(cell, "", "{what}: the run has no such figure"),
    }
}

/// True when the value, rounded to the digits that the cell shows, is the cell.
fn fits(cell: &str, value: f64) -> bool {
    let digits = cell.replace(',', "");
    let Ok(shown) = digits.parse::<f64>() else { return false };
    let unit = match digits.split_once('.') {
        Some((_, decimals)) => 0.1_f64.powi(i32::try_from(decimals.len()).unwrap_or(i32::MAX)),
        None => {
            let zeros = digits.len() - digits.trim_end_matches('0').len();
            10_f64.powi(i32::try_from(zeros).unwrap_or(i32::MAX))
        }
    };
    (shown - value).abs() <= unit * (0.5 + 1e-9)
}
