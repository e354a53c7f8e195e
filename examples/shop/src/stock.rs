//! A replica of the stock: a register for each item, in a file of its own.
//!
//! A replica must not forget what it has promised or accepted, or two orders could take the last
//! item. So a change is on the disk before it is answered, and a replica that comes back has what
//! it had.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use convoke::disk::HostDisk;
use convoke::{Code, Context, Status};

use crate::disk;
use crate::proto::{AcceptRequest, Answer, Ballot, PrepareRequest, Register, Stock};

/// One replica.
#[derive(Clone, Debug)]
pub struct Replica {
    /// Held while a register changes.
    folder: Arc<Mutex<PathBuf>>,
}

impl Replica {
    /// Keeps its registers in this folder, or takes up those that are there.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn open(folder: impl Into<PathBuf>) -> io::Result<Self> {
        let folder = folder.into();
        HostDisk::create(&folder)?;
        Ok(Self { folder: Arc::new(Mutex::new(folder)) })
    }

    /// Changes a register where `change` says so, and answers with it. Runs to its end even if
    /// nobody waits for it any more.
    async fn change(
        &self,
        item: u64,
        change: impl FnOnce(&mut Register) -> bool + Send + 'static,
    ) -> Result<Answer, Status> {
        let folder = self.folder.clone();
        let changed = tokio::task::spawn_blocking(move || {
            let folder = folder.lock().unwrap_or_else(PoisonError::into_inner);
            let file = folder.join(item.to_string());
            let mut register: Register = disk::read(&file)?.unwrap_or_default();
            let granted = change(&mut register);
            if granted {
                disk::replace(&file, &register)?;
            }
            Ok(Answer { granted, register: Some(register) })
        });
        let changed = changed.await.map_err(io::Error::other).and_then(|changed| changed);
        changed.map_err(|error| Status::new(Code::Internal, format!("register {item}: {error}")))
    }
}

impl Stock for Replica {
    async fn prepare(&self, request: PrepareRequest, _: Context) -> Result<Answer, Status> {
        let ballot = given(request.ballot)?;
        self.change(request.item, move |register| {
            // Later, not equal: a front that has started again may try a ballot twice.
            let is_later = rank(ballot) > register.promised.map_or((0, 0), rank);
            if is_later {
                register.promised = Some(ballot);
            }
            is_later
        })
        .await
    }

    async fn accept(&self, request: AcceptRequest, _: Context) -> Result<Answer, Status> {
        let AcceptRequest { item, ballot, level } = request;
        let ballot = given(ballot)?;
        self.change(item, move |register| {
            let is_latest = rank(ballot) >= register.promised.map_or((0, 0), rank);
            if is_latest {
                *register = Register { promised: Some(ballot), accepted: Some(ballot), level };
            }
            is_latest
        })
        .await
    }
}

/// Order of ballots.
pub(crate) fn rank(ballot: Ballot) -> (u64, u64) {
    (ballot.round, ballot.front)
}

fn given(ballot: Option<Ballot>) -> Result<Ballot, Status> {
    let ballot = ballot.filter(|ballot| ballot.round > 0);
    ballot.ok_or_else(|| Status::new(Code::InvalidArgument, "a ballot has a round from 1"))
}
