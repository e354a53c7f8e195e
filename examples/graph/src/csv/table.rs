//! One file of `|`-separated lines below a header.

use std::path::Path;

use crate::file::{DataError, Lines, Reason};

/// A file and the columns of it that are read, in the order a [`Row`] gives them.
pub(super) struct TableFile<const N: usize> {
    pub(super) name: &'static str,
    /// Each is found by its name in the header; of equal names the first is the leftmost.
    pub(super) columns: [&'static str; N],
}

/// An open table.
pub(super) struct Table<const N: usize> {
    lines: Lines,
    columns: [&'static str; N],
    /// Position of each column in a line.
    positions: [usize; N],
    width: usize,
}

impl<const N: usize> Table<N> {
    /// Opens the file in the folder and checks its header.
    pub(super) fn open(dir: &Path, file: &TableFile<N>) -> Result<Self, DataError> {
        let mut lines = Lines::open(&dir.join(file.name))?;
        let header = lines.next()?.unwrap_or_default().to_owned();
        let width = header.split('|').count();
        match positions(&header, &file.columns) {
            Ok(positions) => Ok(Self { lines, columns: file.columns, positions, width }),
            Err(reason) => Err(lines.error(reason)),
        }
    }

    /// Hands each line to `handle`; what that finds wrong becomes an error about the line.
    pub(super) fn for_each(
        mut self,
        mut handle: impl FnMut(Row<'_, N>) -> Result<(), Reason>,
    ) -> Result<(), DataError> {
        let mut number = 1;
        while let Some(line) = self.lines.next()? {
            number += 1;
            let row = split(line, &self.columns, &self.positions, self.width);
            let row = row.map(|fields| Row { line: number, fields });
            if let Err(reason) = row.and_then(&mut handle) {
                return Err(self.lines.error(reason));
            }
        }
        Ok(())
    }
}

/// One line of a table.
pub(super) struct Row<'a, const N: usize> {
    /// Its number; the header is line 1.
    pub(super) line: u64,
    /// Contents of the columns of the [`TableFile`].
    pub(super) fields: [Field<'a>; N],
}

/// Content of one column in one line.
#[derive(Clone, Copy)]
pub(super) struct Field<'a> {
    column: &'static str,
    text: &'a str,
}

impl Field<'_> {
    /// The text as it stands; blanks count.
    pub(super) fn text(&self) -> &str {
        self.text
    }

    /// The whole number that is there, as an id or a date.
    pub(super) fn number<T: From<i64>>(&self) -> Result<T, Reason> {
        self.text.parse().map(i64::into).map_err(|_| Reason::NotANumber {
            column: self.column,
            text: self.text.chars().take(TEXT_CHARS_SHOWN).collect(),
        })
    }
}

/// Enough to find a wrong number in its line; the line itself may be long.
const TEXT_CHARS_SHOWN: usize = 40;

fn positions<const N: usize>(
    header: &str,
    columns: &[&'static str; N],
) -> Result<[usize; N], Reason> {
    let mut names: Vec<Option<&str>> = header.split('|').map(Some).collect();
    let mut positions = [0; N];
    for (position, column) in positions.iter_mut().zip(columns) {
        *position = names
            .iter()
            .position(|name| *name == Some(column))
            .ok_or(Reason::MissingColumn(column))?;
        names[*position] = None;
    }
    Ok(positions)
}

fn split<'a, const N: usize>(
    line: &'a str,
    columns: &[&'static str; N],
    positions: &[usize; N],
    width: usize,
) -> Result<[Field<'a>; N], Reason> {
    let mut fields = columns.map(|column| Field { column, text: "" });
    let mut found = 0;
    for text in line.split('|') {
        if let Some(wanted) = positions.iter().position(|position| *position == found) {
            fields[wanted].text = text;
        }
        found += 1;
    }
    if found != width {
        return Err(Reason::ColumnCount { expected: width, found });
    }
    Ok(fields)
}
