//! The files of the LDBC Social Network Benchmark: a folder of tables with `|` between columns.
//!
//! The first line of each file names the columns, there is no quoting, and dates are milliseconds
//! since 1970. An edge of the graph is a line of a file of its own, such as
//! `post_hasCreator_person_0_0.csv`. Files and columns that no query reads need not be there.
//!
//! [`read`] goes through the files line by line and keeps only one part of the graph; it is what
//! [`Shard::read`](crate::store::Shard::read) does. [`write()`] is what
//! [`Graph::write_csv`](crate::store::Graph::write_csv) does.

mod fingerprint;
mod layout;
mod links;
mod read;
mod table;
#[cfg(test)]
mod tests;
mod write;

pub use fingerprint::fingerprint;
pub use read::read;
pub use write::write;
