//! Memory of tasks that have ended, for the next ones.

use crate::task::Task;

/// Few, since few tasks that say more than their sole reply run at a time.
#[derive(Debug, Default)]
pub(super) struct Spare(
    #[expect(clippy::vec_box, reason = "the boxes are what is kept")] Vec<Box<Task>>,
);

const SPARE_MAX: usize = 64;

impl Spare {
    /// Puts a task where one was that has ended, if one is left.
    pub(super) fn boxed(&mut self, task: Task) -> Box<Task> {
        match self.0.pop() {
            Some(mut place) => {
                place.replace(task);
                place
            }
            None => Box::new(task),
        }
    }

    /// Keeps the memory of a task that has ended.
    pub(super) fn keep(&mut self, mut ended: Box<Task>) {
        if self.0.len() < SPARE_MAX && ended.retire() {
            self.0.push(ended);
        }
    }
}
