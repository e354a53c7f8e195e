//! The handler of a tree returns what ends its task.

use convoke_core::{Method, Service, Status, Task};

const FIND: Method<String, String> = Method::new("test.Test/Find");

async fn find(what: String, task: Task<String>) -> Result<(), Status> {
    task.reply(&what)?;
    Ok(())
}

fn main() {
    let _ = Service::new().tree(FIND, find);
}
