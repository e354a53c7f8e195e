//! A task of a generated trait replies with the message of its method only.

mod social {
    include!("../../testdata/social.rs");
}

use convoke::{Context, Finish, Status, Task};
use social::{Change, Log, ProfileRequest};

struct Shard;

impl Log for Shard {
    async fn append(&self, _: Change, _: &Context) -> Result<(), Status> {
        Ok(())
    }

    async fn clone_(&self, (): (), task: Task<Change>) -> Result<Finish, Status> {
        task.answer(&ProfileRequest { id: 1 })
    }
}

fn main() {
    let _ = Shard;
}
