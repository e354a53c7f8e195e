//! Plan of the minder's looks at wires: who is due, without asking all.

use std::collections::BTreeSet;

use tokio::time::Instant;

use crate::provider::Tag;

/// When to look at which wire; each is in it once at most.
#[derive(Debug, Default)]
pub(super) struct Looks(BTreeSet<(Instant, Tag)>);

impl Looks {
    /// Moves the look at a wire; answers whether it is now the first of all.
    pub(super) fn plan(
        &mut self,
        tag: Tag,
        before: Option<Instant>,
        next: Option<Instant>,
    ) -> bool {
        if let Some(before) = before {
            self.0.remove(&(before, tag));
        }
        let Some(next) = next else { return false };
        self.0.insert((next, tag));
        self.0.first() == Some(&(next, tag))
    }

    /// When the first look is due.
    pub(super) fn first(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Takes the looks that are due out of the plan.
    pub(super) fn take_due(&mut self, now: Instant, into: &mut Vec<Tag>) {
        while self.first().is_some_and(|at| at <= now) {
            into.extend(self.0.pop_first().map(|(_, tag)| tag));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn those_are_looked_at_whose_time_has_come_and_no_others() {
        let start = Instant::now();
        let at = |seconds| Some(start + Duration::from_secs(seconds));
        let tags = [1, 2, 3].map(|tag| Tag::new(tag).unwrap());
        let (mut looks, mut due) = (Looks::default(), Vec::new());
        assert!(looks.plan(tags[0], None, at(5)));
        assert!(!looks.plan(tags[1], None, at(7)));
        assert!(looks.plan(tags[2], None, at(4)));
        // It ends sooner, and another one not at all.
        assert!(looks.plan(tags[1], at(7), at(3)));
        assert!(!looks.plan(tags[2], at(4), None));
        assert_eq!(looks.first(), at(3));
        looks.take_due(start + Duration::from_secs(4), &mut due);
        assert_eq!((due.as_slice(), looks.first()), (&[tags[1]][..], at(5)));
        due.clear();
        looks.take_due(start + Duration::from_secs(9), &mut due);
        assert_eq!((due.as_slice(), looks.first()), (&[tags[0]][..], None));
    }
}
