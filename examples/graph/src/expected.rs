//! Expected answers: a file with one [`Answer`] a line as JSON, and how to compare with it.
//!
//! ```json
//! {"query": "IS4", "id": 3, "rows": [[1262307600000, "hello"]]}
//! ```

use std::fmt;
use std::path::Path;

use crate::file::{DataError, Lines, Reason};
use crate::query::{Answer, Cell, Query};

/// Reads all answers of a file.
///
/// # Errors
///
/// A [`DataError`] names the first line that is not an answer, and why.
pub fn read(path: &Path) -> Result<Vec<Answer>, DataError> {
    let mut lines = Lines::open(path)?;
    let mut answers = Vec::new();
    while let Some(line) = lines.next()? {
        match parse(line) {
            Ok(answer) => answers.push(answer),
            Err(reason) => return Err(lines.error(reason)),
        }
    }
    Ok(answers)
}

fn parse(line: &str) -> Result<Answer, Reason> {
    let answer: Answer =
        serde_json::from_str(line).map_err(|error| Reason::NotAnAnswer(error.to_string()))?;
    let columns = answer.query.columns().len();
    for (row, cells) in (1..).zip(&answer.rows) {
        if cells.len() != columns {
            return Err(Reason::NotAnAnswer(format!(
                "row {row} has {} columns, {} has {columns}",
                cells.len(),
                answer.query
            )));
        }
    }
    Ok(answer)
}

/// Differences of `got` from `expected`; empty when they are equal. Both answer one question.
pub fn differences(expected: &Answer, got: &Answer) -> Vec<Difference> {
    let difference = |what| Difference { query: expected.query, id: expected.id, what };
    let mut differences = Vec::new();
    if expected.rows.len() != got.rows.len() {
        let (expected, got) = (expected.rows.len(), got.rows.len());
        differences.push(difference(What::RowCount { expected, got }));
    }
    for (row, (expected_row, got_row)) in (1..).zip(expected.rows.iter().zip(&got.rows)) {
        let columns = expected.query.columns().iter().zip(expected_row).zip(got_row);
        for ((column, expected), got) in columns.filter(|((_, expected), got)| expected != got) {
            let (expected, got) = (expected.clone(), got.clone());
            differences.push(difference(What::Cell { row, column, expected, got }));
        }
    }
    differences
}

/// One difference between an expected answer and the one given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The query.
    pub query: Query,
    /// The id of the person or message that the query was asked of.
    pub id: i64,
    /// The difference itself.
    pub what: What,
}

/// Kinds of differences between two answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// How many rows there are.
    RowCount {
        /// Rows expected.
        expected: usize,
        /// Rows given.
        got: usize,
    },
    /// One value.
    Cell {
        /// The row, counted from 1.
        row: usize,
        /// The name of the column.
        column: &'static str,
        /// The value expected.
        expected: Cell,
        /// The value given.
        got: Cell,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { query, id, what } = self;
        match what {
            What::RowCount { expected, got } => {
                write!(f, "{query} id {id}: expected {expected} rows, got {got}")
            }
            What::Cell { row, column, expected, got } => {
                write!(
                    f,
                    "{query} id {id}: row {row} column {column}: expected {expected}, got {got}"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is4(rows: &[(i64, &str)]) -> Answer {
        let cells =
            |(date, text): &(i64, &str)| vec![Cell::Number(*date), Cell::Text((*text).to_owned())];
        Answer { query: Query::Is4, id: 10, rows: rows.iter().map(cells).collect() }
    }

    fn shown(expected: &Answer, got: &Answer) -> Vec<String> {
        differences(expected, got).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn equal_answers_have_no_differences() {
        assert_eq!(shown(&is4(&[(1, "a")]), &is4(&[(1, "a")])), [""; 0]);
        assert_eq!(shown(&is4(&[]), &is4(&[])), [""; 0]);
    }

    #[test]
    fn a_difference_names_query_id_row_and_column() {
        assert_eq!(
            shown(&is4(&[(1, "a"), (2, "b")]), &is4(&[(1, "a"), (3, "c")])),
            [
                "IS4 id 10: row 2 column creationDate: expected 2, got 3",
                "IS4 id 10: row 2 column content: expected \"b\", got \"c\"",
            ]
        );
        assert_eq!(shown(&is4(&[(1, "a")]), &is4(&[])), ["IS4 id 10: expected 1 rows, got 0"]);
    }

    #[test]
    fn a_line_that_is_no_answer_is_refused_with_its_line_and_the_reason() {
        let good = r#"{"query": "IS4", "id": 1, "rows": []}"#;
        for (bad, reason) in [
            ("", "EOF"),
            (r#"{"query": "IS4", "rows": []}"#, "missing field `id`"),
            (r#"{"query": "IS9", "id": 1, "rows": []}"#, "unknown query \"IS9\""),
            (r#"{"query": "IS4", "id": "1", "rows": []}"#, "expected i64"),
            (r#"{"query": "IS4", "id": 1, "rows": [[1]]}"#, "row 1 has 1 columns, IS4 has 2"),
            (r#"{"query": "IS4", "id": 1, "rows": [[1, null]]}"#, "Cell"),
            (r#"{"query": "IS4", "id": 1, "rows": [[1.5, ""]]}"#, "Cell"),
        ] {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), format!("{good}\n{bad}\n")).unwrap();
            let error = read(file.path()).unwrap_err();
            assert_eq!(error.line, Some(2), "{bad}");
            assert!(error.to_string().contains(reason), "{bad}: {error}");
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = read(Path::new("no/such/expected.jsonl")).unwrap_err();
        assert!(matches!(error, DataError { line: None, reason: Reason::Io(_), .. }));
        assert!(error.to_string().contains("expected.jsonl"), "{error}");
    }
}
