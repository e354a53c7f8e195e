//! Members in rows and columns.

use convoke_core::NodeId;

use crate::MemberSet;

use super::{QuorumSystem, Unsuitable};

/// The members, in order, fill rows of this many columns; a quorum is one whole row and one member
/// of every row besides. Any two quorums have a member in common, and of `n` members in a square
/// each is in about `2 √n`: less than a majority when there are many. Source: Cheung, Ammar,
/// Ahamad, *The Grid Protocol*, ICDE 1990.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Members in a row.
    pub columns: usize,
}

impl QuorumSystem for Grid {
    fn check(&self, members: &[NodeId]) -> Result<(), Unsuitable> {
        let (members, columns) = (members.len(), self.columns);
        if members == 0 {
            return Err(Unsuitable::NoMembers);
        }
        if columns == 0 || !members.is_multiple_of(columns) {
            return Err(Unsuitable::NoGrid { members, columns });
        }
        Ok(())
    }

    fn is_quorum(&self, members: &[NodeId], present: &MemberSet) -> bool {
        let in_row = |row: usize| {
            let indices = row * self.columns..(row + 1) * self.columns;
            indices.filter(|index| present.contains(*index)).count()
        };
        let mut has_whole = false;
        let rows = members.len().checked_div(self.columns).unwrap_or(0);
        for row in 0..rows {
            let count = in_row(row);
            if count == 0 {
                return false;
            }
            has_whole |= count == self.columns;
        }
        has_whole
    }
}
