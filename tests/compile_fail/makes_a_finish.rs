//! Only a task can be finished.

use convoke::Finish;

fn main() {
    let _ = Finish(());
}
