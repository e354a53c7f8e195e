//! Values kept per lane.

use crate::Lane;

/// Both lanes; control first, as in everything that is kept per lane.
pub const LANES: [Lane; 2] = [Lane::Control, Lane::Data];

/// Index of a lane into a pair kept per lane.
pub const fn index(lane: Lane) -> usize {
    match lane {
        Lane::Control => 0,
        Lane::Data => 1,
    }
}
