//! Places for who stays only to send something again to members that are slow.

use std::collections::BTreeMap;
use std::sync::Arc;

use convoke_proto::id::NodeId;
use convoke_transport::parts::Mutex;

use super::Driver;

/// Places of an endpoint: a task of a few kilobytes waits on each, so that all take a few MiB.
const PLACES: usize = 1_024;

/// Places that are taken, by member.
#[derive(Debug, Default)]
pub(super) struct Owed(Mutex<BTreeMap<NodeId, usize>>);

/// Place for who stays to send something again to a member; given back when dropped.
#[derive(Debug)]
pub struct OwedPlace {
    driver: Arc<Driver>,
    member: NodeId,
}

impl OwedPlace {
    /// The member that something is owed to.
    pub fn member(&self) -> NodeId {
        self.member
    }
}

impl Drop for OwedPlace {
    fn drop(&mut self) {
        self.driver.owed.give(self.member);
    }
}

impl Driver {
    /// A place for what is owed to a member, if there is one.
    pub(crate) fn owe(self: &Arc<Self>, member: NodeId) -> Option<OwedPlace> {
        self.owed.take(member).then(|| OwedPlace { driver: self.clone(), member })
    }
}

impl Owed {
    /// Takes a place for a member, which takes no more of them than it leaves free: one that is
    /// slow for ever leaves half to the others.
    fn take(&self, member: NodeId) -> bool {
        let mut taken = self.0.lock();
        let free = PLACES - taken.values().sum::<usize>();
        let of_member = taken.get(&member).copied().unwrap_or_default();
        let has_room = of_member + 2 <= free;
        if has_room {
            taken.insert(member, of_member + 1);
        }
        has_room
    }

    fn give(&self, member: NodeId) {
        let mut taken = self.0.lock();
        if let Some(of_member) = taken.get_mut(&member) {
            *of_member -= 1;
            if *of_member == 0 {
                taken.remove(&member);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_takes_all_it_gets_leaves_as_much_to_others() {
        let owed = Owed::default();
        let takes = |id| (0..2_000).filter(|_| owed.take(NodeId::new(id))).count();
        assert_eq!([1, 2, 1, 3].map(takes), [512, 256, 0, 128]);
        (0..512).for_each(|_| owed.give(NodeId::new(1)));
        assert_eq!(takes(4), 320);
        for (member, count) in [(2, 256), (3, 128), (4, 320)] {
            (0..count).for_each(|_| owed.give(NodeId::new(member)));
        }
        assert!(owed.0.lock().is_empty());
    }
}
