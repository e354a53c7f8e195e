//! Puts the fragments of large frames together again.

use bytes::Bytes;
use convoke_transport::Lane;
use convoke_transport::parts::index;

use super::Fault;
use super::record::Part;

/// Room set aside for a frame when its first fragment comes. From here on the room doubles, so that
/// a peer that only announces large frames costs little.
const FIRST_ROOM_BYTES: usize = 256 * 1024;

/// The frames of both lanes that are not complete.
///
/// Holds at most `frame_bytes_max` bytes per lane.
#[derive(Debug)]
pub(crate) struct Reassembly {
    frame_bytes_max: usize,
    lanes: [Option<Partial>; 2],
}

#[derive(Debug)]
struct Partial {
    bytes: Vec<u8>,
    frame_bytes: usize,
}

impl Reassembly {
    /// For frames of at most `frame_bytes_max`, whole ones included.
    pub(crate) fn new(frame_bytes_max: u32) -> Self {
        Self { frame_bytes_max: frame_bytes_max as usize, lanes: [None, None] }
    }

    /// Judges a frame that is one record.
    ///
    /// # Errors
    /// A [`Fault`] when it is too large, or when it comes within another frame of its lane.
    #[inline]
    pub(crate) fn check_whole(&self, lane: Lane, len: usize) -> Result<(), Fault> {
        if self.lanes[index(lane)].is_some() {
            return Err(Fault::FragmentOutOfPlace(lane));
        }
        self.check_size(len)
    }

    /// Takes a fragment; the frame, when this was its last.
    ///
    /// # Errors
    /// A [`Fault`] when the fragments do not make up a frame of the announced size.
    pub(crate) fn put(
        &mut self,
        lane: Lane,
        part: Part,
        fragment: &[u8],
    ) -> Result<Option<Bytes>, Fault> {
        if let Part::First { frame_bytes } = part {
            self.begin(lane, frame_bytes as usize)?;
        }
        let place = &mut self.lanes[index(lane)];
        let partial = place.as_mut().ok_or(Fault::FragmentOutOfPlace(lane))?;
        let is_last = matches!(part, Part::Last | Part::Whole);
        if !partial.is_right_size(fragment.len(), is_last) {
            return Err(Fault::FragmentOutOfPlace(lane));
        }
        partial.put(fragment);
        if !is_last {
            return Ok(None);
        }
        Ok(place.take().map(|partial| partial.bytes.into()))
    }

    /// Forgets the frames that are not complete.
    pub(crate) fn clear(&mut self) {
        self.lanes = [None, None];
    }

    fn begin(&mut self, lane: Lane, frame_bytes: usize) -> Result<(), Fault> {
        self.check_whole(lane, frame_bytes)?;
        let bytes = Vec::with_capacity(frame_bytes.min(FIRST_ROOM_BYTES));
        self.lanes[index(lane)] = Some(Partial { bytes, frame_bytes });
        Ok(())
    }

    #[inline]
    fn check_size(&self, announced: usize) -> Result<(), Fault> {
        let limit = self.frame_bytes_max;
        if announced > limit { Err(Fault::FrameTooLarge { announced, limit }) } else { Ok(()) }
    }
}

impl Partial {
    /// The last fragment completes the frame, and no other does.
    fn is_right_size(&self, fragment_bytes: usize, is_last: bool) -> bool {
        let missing = self.frame_bytes - self.bytes.len();
        if is_last { fragment_bytes == missing } else { fragment_bytes < missing }
    }

    /// Grows by doubling, but never beyond the announced size.
    fn put(&mut self, fragment: &[u8]) {
        if self.bytes.capacity() - self.bytes.len() < fragment.len() {
            let missing = self.frame_bytes - self.bytes.len();
            self.bytes.reserve_exact(self.bytes.len().max(fragment.len()).min(missing));
        }
        self.bytes.extend_from_slice(fragment);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMIT: u32 = 1_000_000;

    fn first(frame_bytes: u32) -> Part {
        Part::First { frame_bytes }
    }

    #[test]
    fn fragments_make_a_frame() {
        let mut reassembly = Reassembly::new(LIMIT);
        let mut put = |lane, part, bytes: &[u8]| reassembly.put(lane, part, bytes).unwrap();
        assert_eq!(put(Lane::Data, first(6), b"ab"), None);
        assert_eq!(put(Lane::Control, first(2), b"x"), None);
        assert_eq!(put(Lane::Data, Part::Middle, b"cd"), None);
        assert_eq!(put(Lane::Control, Part::Last, b"y").unwrap(), "xy");
        assert_eq!(put(Lane::Data, Part::Last, b"ef").unwrap(), "abcdef");
    }

    #[test]
    fn fragments_must_add_up_to_what_was_announced() {
        let out_of_place = Err(Fault::FragmentOutOfPlace(Lane::Data));
        let fragments = |parts: &[(Part, usize)]| {
            let mut reassembly = Reassembly::new(LIMIT);
            let mut put = |(part, len): &(Part, usize)| {
                reassembly.put(Lane::Data, *part, &vec![0; *len]).map(|_| ())
            };
            parts.iter().try_for_each(&mut put)
        };
        assert_eq!(fragments(&[(first(4), 2), (Part::Last, 2)]), Ok(()));
        assert_eq!(fragments(&[(first(4), 2), (Part::Last, 1)]), out_of_place);
        assert_eq!(fragments(&[(first(4), 2), (Part::Last, 3)]), out_of_place);
        assert_eq!(fragments(&[(first(4), 4)]), out_of_place);
        assert_eq!(fragments(&[(first(4), 2), (Part::Middle, 2)]), out_of_place);
        assert_eq!(fragments(&[(first(4), 2), (first(4), 2)]), out_of_place);
        assert_eq!(fragments(&[(Part::Middle, 1)]), out_of_place);
        assert_eq!(fragments(&[(Part::Last, 1)]), out_of_place);
    }

    #[test]
    fn a_frame_over_the_limit_is_a_fault_at_its_first_record() {
        let (announced, limit) = (LIMIT as usize + 1, LIMIT as usize);
        let fault = Fault::FrameTooLarge { announced, limit };
        let mut reassembly = Reassembly::new(LIMIT);
        assert_eq!(reassembly.put(Lane::Data, first(LIMIT + 1), b"a"), Err(fault.clone()));
        assert_eq!(reassembly.check_whole(Lane::Data, announced), Err(fault));
        assert_eq!(reassembly.check_whole(Lane::Data, limit), Ok(()));
    }

    #[test]
    fn announcing_costs_the_peer_and_not_this_end() {
        let mut reassembly = Reassembly::new(LIMIT);
        reassembly.put(Lane::Data, first(LIMIT), b"a").unwrap();
        let held = |reassembly: &Reassembly| {
            reassembly.lanes.iter().flatten().map(|partial| partial.bytes.capacity()).sum::<usize>()
        };
        assert!(held(&reassembly) <= FIRST_ROOM_BYTES);
        for _ in 0..3 {
            reassembly.put(Lane::Data, Part::Middle, &vec![0; 300_000]).unwrap();
            assert!(held(&reassembly) <= LIMIT as usize);
        }
    }

    proptest! {
        #[test]
        fn any_fragments_are_frames_or_a_fault(
            fragments in prop::collection::vec(
                (any::<bool>(), 0..4_u8, 0..40_u32, 1..20_usize),
                0..20,
            ),
        ) {
            let mut reassembly = Reassembly::new(30);
            for (is_data, part, frame_bytes, len) in fragments {
                let lane = if is_data { Lane::Data } else { Lane::Control };
                let part = match part {
                    0 | 1 => first(frame_bytes),
                    2 => Part::Middle,
                    _ => Part::Last,
                };
                match reassembly.put(lane, part, &vec![7; len]) {
                    Ok(Some(frame)) => prop_assert!(part == Part::Last && frame.len() <= 30),
                    Ok(None) => prop_assert!(part != Part::Last),
                    Err(_) => break,
                }
            }
        }
    }
}
