//! Key-value stores as their clients see them, and the command `client`.

mod recorded;

use std::future::Future;

use anyhow::Result;
use bytes::Bytes;
use clap::Subcommand;
use console::say;

pub use self::recorded::Recorded;
pub(super) use self::recorded::text;

/// Pairs, and the key of the first that is left out.
pub type Pairs = (Vec<(Bytes, Bytes)>, Option<Bytes>);

/// A client of a key-value store, with one request at a time.
pub trait Store: Send + 'static {
    /// The value of a key.
    fn get(&mut self, key: Bytes) -> impl Answer<Option<Bytes>>;

    /// Writes a value, whatever there was.
    fn put(&mut self, key: Bytes, value: Bytes) -> impl Answer<()>;

    /// Removes a key, and gives the value that it had.
    fn delete(&mut self, key: Bytes) -> impl Answer<Option<Bytes>>;

    /// Writes a value if what is there is as expected; else gives what is there.
    fn cas(
        &mut self,
        key: Bytes,
        expected: Option<Bytes>,
        value: Bytes,
    ) -> impl Answer<Result<(), Option<Bytes>>>;

    /// Pairs from a key on, whose keys begin so, in their order: so many at most, or as many as an
    /// answer takes for 0.
    fn scan(&mut self, from: Bytes, prefix: Bytes, limit: u32) -> impl Answer<Pairs>;
}

/// An answer that will come.
pub trait Answer<T>: Future<Output = Result<T, StoreError>> + Send {}

impl<T, F: Future<Output = Result<T, StoreError>> + Send> Answer<T> for F {}

/// The reason a request has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It did not run, and never will.
    #[error("{0}")]
    Failed(String),
    /// It may have run, or may run yet.
    #[error("{0}")]
    Unknown(String),
}

/// One request, as an argument.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Writes a value, whatever there was.
    Put {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// Prints the value of a key.
    Get {
        /// The key.
        key: String,
    },
    /// Removes a key, and prints the value that it had.
    Delete {
        /// The key.
        key: String,
    },
    /// Writes a value if what is there is as expected; else prints what is there.
    Cas {
        /// The key.
        key: String,
        /// The value that is to replace it.
        value: String,
        /// The value that is to be there. Without it: nothing.
        #[arg(long)]
        expected: Option<String>,
    },
    /// Prints pairs in the order of their keys.
    Scan {
        /// Keys begin so.
        #[arg(default_value = "")]
        prefix: String,
        /// So many at most.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
}

impl Action {
    /// Makes the request, and prints what there is. False for a read that finds nothing, and a
    /// compare-and-swap that finds something else.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn run(self, client: &mut impl Store) -> Result<bool> {
        Ok(match self {
            Self::Put { key, value } => {
                client.put(key.into(), value.into()).await?;
                true
            }
            Self::Get { key } => print(client.get(key.into()).await?)?,
            Self::Delete { key } => print(client.delete(key.into()).await?)?,
            Self::Cas { key, value, expected } => {
                match client.cas(key.into(), expected.map(Bytes::from), value.into()).await? {
                    Ok(()) => true,
                    Err(found) => {
                        print(found)?;
                        false
                    }
                }
            }
            Self::Scan { prefix, limit } => {
                scan(client, prefix.into(), limit).await?;
                true
            }
        })
    }
}

fn print(value: Option<Bytes>) -> Result<bool> {
    match &value {
        Some(value) => say(String::from_utf8_lossy(value))?,
        None => eprintln!("there is nothing"),
    }
    Ok(value.is_some())
}

async fn scan(client: &mut impl Store, prefix: Bytes, mut limit: u32) -> Result<()> {
    let mut from = Bytes::new();
    loop {
        let (pairs, next) = client.scan(from, prefix.clone(), limit).await?;
        for (key, value) in &pairs {
            let text = String::from_utf8_lossy;
            say(format_args!("{}\t{}", text(key), text(value)))?;
        }
        limit -= u32::try_from(pairs.len()).unwrap_or(limit).min(limit);
        let Some(next) = next else { return Ok(()) };
        if limit == 0 {
            let next = String::from_utf8_lossy(&next).into_owned();
            eprintln!("there is more, from {next:?} on: --limit says how many are printed");
            return Ok(());
        }
        from = next;
    }
}
