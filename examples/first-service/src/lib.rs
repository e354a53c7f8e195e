//! A library whose books stand on several shelves, each a server of its own. Readers ask the desk,
//! and shelves answer readers.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use convoke::{Code, Context, Finish, NodeId, Status, Task};

use crate::proto::{Book, Library, Loan, Shelf, Word, shelf};

/// Messages, servers and clients of `proto/library.proto`.
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/library.rs"));
}

/// A shelf: titles, and how many copies of each.
#[derive(Debug)]
pub struct Books(Mutex<BTreeMap<String, u32>>);

impl Books {
    /// A shelf with two copies of each title.
    pub fn new(titles: &[&str]) -> Self {
        Self(Mutex::new(titles.iter().map(|title| ((*title).to_owned(), 2)).collect()))
    }
}

impl Shelf for Books {
    async fn find(&self, word: Word, task: Task<Book>) -> Result<Finish, Status> {
        let books = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for title in books.keys().filter(|title| title.contains(&word.text)) {
            task.reply(&Book { title: title.clone() })?;
        }
        Ok(task.finish())
    }

    async fn lend(&self, Book { title }: Book, _: Context) -> Result<Loan, Status> {
        let mut books = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let unknown = || Status::new(Code::NotFound, format!("no book {title:?} on this shelf"));
        let copies = books.get_mut(&title).ok_or_else(unknown)?;
        let lent = || Status::new(Code::FailedPrecondition, "every copy is lent").without_effect();
        *copies = copies.checked_sub(1).ok_or_else(lent)?;
        Ok(Loan { title, left: *copies })
    }
}

/// The desk: it has no books, and knows the shelves.
#[derive(Debug)]
pub struct Desk {
    /// Nodes that serve `Shelf`.
    pub shelves: Vec<NodeId>,
}

impl Library for Desk {
    async fn search(&self, word: Word, task: Task<Book>) -> Result<Finish, Status> {
        // A branch to each shelf. What they find goes straight to the reader.
        let find = |shelf| (shelf, shelf::FIND.request(word.clone()));
        task.fan_out(self.shelves.iter().copied().map(find)).await
    }
}
