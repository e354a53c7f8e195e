//! Edges from a thing to the one other thing it has: a post's creator, a comment's parent.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;

use super::table::{Table, TableFile};
use crate::file::{DataError, Reason};
use crate::model::{Entity, Id};
use crate::store::Defect;

/// A file of edges, each from one source; a source has at most one.
pub(super) struct LinkFile {
    pub(super) table: TableFile<2>,
    /// Kind of the things that the edges start at.
    pub(super) source: Entity,
    /// The column, of the two, that names it.
    pub(super) source_column: usize,
}

/// The edge that starts at a source.
#[derive(Clone, Copy)]
pub(super) struct Link<V> {
    pub(super) target: V,
    file: &'static LinkFile,
    line: u64,
    followed: bool,
}

impl<V> Link<V> {
    /// An error about the line that told of this edge.
    pub(super) fn error(&self, dir: &Path, reason: impl Into<Reason>) -> DataError {
        DataError {
            path: dir.join(self.file.table.name),
            line: Some(self.line),
            reason: reason.into(),
        }
    }
}

/// Edges waiting for the line that describes their source.
pub(super) struct Links<K, V>(BTreeMap<K, Link<V>>);

impl<K: Id, V: Copy> Links<K, V> {
    pub(super) fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Reads the edges of `file`, and keeps those for which `accept` says so.
    pub(super) fn read<T: Id>(
        &mut self,
        dir: &Path,
        file: &'static LinkFile,
        mut accept: impl FnMut(K, T) -> Result<Option<V>, Defect>,
    ) -> Result<(), DataError> {
        Table::open(dir, &file.table)?.for_each(|row| {
            let source: K = row.fields[file.source_column].number()?;
            let target: T = row.fields[1 - file.source_column].number()?;
            let Some(target) = accept(source, target)? else { return Ok(()) };
            match self.0.entry(source) {
                Entry::Occupied(_) => {
                    Err(Reason::SecondLink { entity: file.source, id: source.into() })
                }
                Entry::Vacant(free) => {
                    free.insert(Link { target, file, line: row.line, followed: false });
                    Ok(())
                }
            }
        })
    }

    /// The edge that starts at `source`, whose own line has now been read.
    pub(super) fn follow(&mut self, source: K) -> Option<Link<V>> {
        let link = self.0.get_mut(&source)?;
        link.followed = true;
        Some(*link)
    }

    /// Complains about the first edge that nobody followed: its source is not in the graph.
    pub(super) fn finish(self, dir: &Path) -> Result<(), DataError> {
        let left = self.0.into_iter().filter(|(_, link)| !link.followed);
        let Some((source, link)) = left.min_by_key(|(_, link)| link.line) else { return Ok(()) };
        let entity = link.file.source;
        Err(link.error(dir, Defect::Unknown { entity, id: source.into() }))
    }
}
