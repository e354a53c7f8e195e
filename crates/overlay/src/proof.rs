//! Chunks that come by relays, held against what their source says of them: digests, and that they
//! are on their way.
//!
//! ```text
//!   NOTICE ──▶ awaited ── DATA with that digest, by whatever way ──▶ taken
//!                 │  └─── DATA with another ──▶ changed: not taken
//!                 └────── others by that relay came, this one did not; or none does ──▶ missed
//!   DATA before its NOTICE ──▶ held
//! ```
//! Chunks of one source by one relay come in their order. So one that others have overtaken was
//! dropped, however much queues on the way; and if none comes at all, that is held against how long
//! they took after their notices before.

use std::collections::BTreeMap;
use std::time::Duration;

use convoke_core::time::Timestamp;

use crate::ack_time::AckTime;
use crate::site::Site;
use crate::wire::{ChunkDigest, Data, Life, WINDOW};

/// Everything that sources have said.
#[derive(Clone, Debug)]
pub(crate) struct Proofs {
    streams: BTreeMap<Site, Stream>,
    held_max: usize,
}

#[derive(Clone, Debug)]
struct Stream {
    life: Life,
    chunks: BTreeMap<u64, Noticed>,
    ways: BTreeMap<Site, Way>,
    /// The last that were missed.
    missing: BTreeMap<u64, Missing>,
    /// Chunks that came before their notices, by who brought them: what one makes up is in the way
    /// of none that another brings.
    held: BTreeMap<Site, Held>,
}

#[derive(Clone, Debug, Default)]
struct Held {
    chunks: BTreeMap<u64, Data>,
    bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct Noticed {
    digest: ChunkDigest,
    relay: Site,
    /// The how many-th by this relay.
    place: u64,
    at: Timestamp,
}

/// A chunk that was missed, and may come yet.
#[derive(Clone, Copy, Debug)]
struct Missing {
    digest: ChunkDigest,
    relay: Site,
    at: Timestamp,
    overtaken_at: Option<Timestamp>,
}

/// The chunks that one relay is to bring of one source.
#[derive(Clone, Debug, Default)]
struct Way {
    next_place: u64,
    /// By their places.
    awaited: BTreeMap<u64, Awaited>,
    /// When one came last.
    came_at: Timestamp,
    /// Delays of the chunks after their notices.
    times: AckTime,
    /// Patience with a chunk that later ones have overtaken: flows between two sites are not
    /// equally fast.
    disorder: Patience,
    /// Patience with a chunk after its notice: connections stall.
    stall: Patience,
}

/// Time to wait for what is late: twice as long as it took lately, when it was missed and then
/// came.
#[derive(Clone, Copy, Debug)]
struct Patience(Duration);

#[derive(Clone, Copy, Debug)]
struct Awaited {
    seq: u64,
    at: Timestamp,
    /// Arrival of the first that was sent later.
    overtaken_at: Option<Timestamp>,
}

/// The worth of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// It is what its source has sent.
    Right,
    /// It is not.
    Wrong,
    /// Its source has not said yet.
    None,
}

/// Least and most patience.
const PATIENCE_MIN: Duration = Duration::from_millis(50);
const PATIENCE_MAX: Duration = Duration::from_secs(1);

/// Time that a relay may bring nothing: before enough was measured, at least more than was
/// measured, and at most.
const SILENCE_INITIAL: Duration = Duration::from_secs(1);
const SILENCE_MARGIN: Duration = Duration::from_millis(60);
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// Chunks of a source that were missed and are remembered.
const MISSING_MAX: usize = 1 << 11;

impl Proofs {
    /// `held_max` bytes of each source may wait for their notices.
    pub(crate) fn new(held_max: usize) -> Self {
        Self { streams: BTreeMap::new(), held_max }
    }

    fn stream(&mut self, source: Site, life: Life) -> &mut Stream {
        let new = || Stream {
            life,
            chunks: BTreeMap::new(),
            ways: BTreeMap::new(),
            missing: BTreeMap::new(),
            held: BTreeMap::new(),
        };
        let stream = self.streams.entry(source).or_insert_with(new);
        if stream.life != life {
            *stream = new();
        }
        stream
    }

    /// A source says what is on its way. The chunk as far as it was here before, and from whom.
    pub(crate) fn on_notice(
        &mut self,
        now: Timestamp,
        source: Site,
        life: Life,
        relay: Site,
        chunk: (u64, ChunkDigest),
    ) -> Vec<(Site, Data)> {
        let stream = self.stream(source, life);
        let (seq, digest) = chunk;
        // A source that says more than may be on its way has only itself to blame.
        if stream.chunks.len() as u64 >= WINDOW {
            return Vec::new();
        }
        stream.forget(seq);
        let way = stream.ways.entry(relay).or_default();
        let place = way.next_place;
        way.next_place += 1;
        way.awaited.insert(place, Awaited { seq, at: now, overtaken_at: None });
        stream.chunks.insert(seq, Noticed { digest, relay, place, at: now });
        stream.take_held(seq)
    }

    /// Holds a chunk against what its source says.
    pub(crate) fn check(&self, data: &Data) -> Proof {
        let stream = self.streams.get(&data.op.source).filter(|it| it.life == data.op.life);
        match stream.and_then(|stream| stream.chunks.get(&data.seq())) {
            None => Proof::None,
            Some(noticed) if noticed.digest == ChunkDigest::of(data) => Proof::Right,
            Some(_) => Proof::Wrong,
        }
    }

    /// Keeps a chunk until its source says what it should be; the last in order make room, of whom
    /// there is most.
    pub(crate) fn hold(&mut self, from: Site, data: Data) {
        let held_max = self.held_max;
        let stream = self.stream(data.op.source, data.op.life);
        let held = stream.held.entry(from).or_default();
        if held.chunks.contains_key(&data.seq()) {
            return;
        }
        held.bytes += held_cost(&data);
        held.chunks.insert(data.seq(), data);
        while stream.held_bytes() > held_max {
            let most = stream.held.values_mut().max_by_key(|held| held.bytes);
            let Some(most) = most else { return };
            let last = most.chunks.pop_last().map_or(0, |(_, last)| held_cost(&last));
            most.bytes -= last;
        }
    }

    /// A chunk was taken that this site brought: it is not waited for any more.
    pub(crate) fn on_taken(&mut self, now: Timestamp, source: Site, seq: u64, by: Site) {
        let Some(stream) = self.streams.get_mut(&source) else { return };
        stream.take_held(seq);
        let Some((noticed, awaited)) = stream.forget(seq).filter(|(it, _)| it.relay == by) else {
            return;
        };
        let way = stream.ways.entry(by).or_default();
        way.came_at = now;
        way.times.sample(now.since(noticed.at));
        let overtaken_at = awaited.and_then(|it| it.overtaken_at);
        way.disorder.note(overtaken_at.map(|at| now.since(at)));
        way.stall.note(None);
        for awaited in way.awaited.range_mut(..noticed.place).map(|(_, awaited)| awaited) {
            awaited.overtaken_at.get_or_insert(now);
        }
    }

    /// A chunk has come that this site was to bring, and there is no room for it: the site has done
    /// its part. False for one that it was not to bring.
    pub(crate) fn on_no_room(&mut self, now: Timestamp, source: Site, seq: u64, by: Site) -> bool {
        let noticed = self.streams.get(&source).and_then(|stream| stream.chunks.get(&seq));
        let was_to = noticed.is_some_and(|noticed| noticed.relay == by);
        if was_to {
            self.on_taken(now, source, seq, by);
        }
        was_to
    }

    /// A chunk has come, for the first time or again. Whether it was missed, and came by its relay
    /// after all.
    pub(crate) fn is_late(&mut self, now: Timestamp, from: Site, data: &Data) -> bool {
        let stream = self.streams.get_mut(&data.op.source);
        let Some(stream) = stream.filter(|it| it.life == data.op.life) else { return false };
        let Some(missing) = stream.missing.get(&data.seq()).copied() else { return false };
        if missing.relay != from || missing.digest != ChunkDigest::of(data) {
            return false;
        }
        stream.missing.remove(&data.seq());
        let way = stream.ways.entry(from).or_default();
        way.came_at = now;
        match missing.overtaken_at {
            Some(at) => way.disorder.note(Some(now.since(at))),
            None => way.stall.note(Some(now.since(missing.at))),
        }
        true
    }

    /// Chunks of a source below this have come, or will not.
    pub(crate) fn on_floor(&mut self, source: Site, seq: u64) {
        let Some(stream) = self.streams.get_mut(&source) else { return };
        let gone: Vec<u64> = stream.chunks.range(..seq).map(|(seq, _)| *seq).collect();
        gone.into_iter().for_each(|seq| {
            stream.forget(seq);
        });
        for held in stream.held.values_mut() {
            held.chunks = held.chunks.split_off(&seq);
            held.bytes = held.chunks.values().map(held_cost).sum();
        }
    }

    /// Takes out chunks that a relay should have brought by now: their source, the relay and their
    /// numbers.
    pub(crate) fn poll_missed(&mut self, now: Timestamp) -> Option<(Site, Site, Vec<u64>)> {
        for (source, stream) in &mut self.streams {
            let Stream { ways, chunks, missing, .. } = stream;
            for (relay, way) in ways {
                let missed = way.take_missed(now);
                if missed.is_empty() {
                    continue;
                }
                for Awaited { seq, at, overtaken_at } in &missed {
                    let digest = chunks.get(seq).map(|noticed| noticed.digest);
                    let it = digest.map(|digest| Missing {
                        digest,
                        relay: *relay,
                        at: *at,
                        overtaken_at: *overtaken_at,
                    });
                    missing.extend(it.map(|it| (*seq, it)));
                }
                while missing.len() > MISSING_MAX {
                    missing.pop_first();
                }
                return Some((*source, *relay, missed.iter().map(|it| it.seq).collect()));
            }
        }
        None
    }

    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        let ways = self.streams.values().flat_map(|stream| stream.ways.values());
        ways.filter_map(Way::poll_timeout).min()
    }

    /// Bytes that wait for their notices, the most of one source.
    pub(crate) fn held_bytes(&self) -> usize {
        self.streams.values().map(Stream::held_bytes).max().unwrap_or(0)
    }
}

/// Bytes that a chunk takes here: those without a payload wait, too.
fn held_cost(data: &Data) -> usize {
    data.payload.len() + size_of::<Data>()
}

impl Stream {
    fn held_bytes(&self) -> usize {
        self.held.values().map(|held| held.bytes).sum()
    }

    /// Takes out a chunk that waits for its notice, by whom it was brought.
    fn take_held(&mut self, seq: u64) -> Vec<(Site, Data)> {
        let mut taken = Vec::new();
        for (from, held) in &mut self.held {
            if let Some(data) = held.chunks.remove(&seq) {
                held.bytes -= held_cost(&data);
                taken.push((*from, data));
            }
        }
        taken
    }

    fn forget(&mut self, seq: u64) -> Option<(Noticed, Option<Awaited>)> {
        let noticed = self.chunks.remove(&seq)?;
        let way = self.ways.get_mut(&noticed.relay);
        Some((noticed, way.and_then(|way| way.awaited.remove(&noticed.place))))
    }
}

impl Way {
    fn silence(&self) -> Duration {
        let usual = self.times.timer(SILENCE_INITIAL, SILENCE_MARGIN, SILENCE_MAX);
        usual.max(self.stall.0)
    }

    /// Time that a chunk may come after one that was sent later. The flows of a relay differ by a
    /// part of what queues on them, the most while they start.
    fn disorder(&self) -> Duration {
        let usual = self.times.p99().unwrap_or(SILENCE_INITIAL);
        self.disorder.0.max((usual / 2).min(PATIENCE_MAX))
    }

    /// Takes out what is missed; its digest is still known, for it may come late.
    fn take_missed(&mut self, now: Timestamp) -> Vec<Awaited> {
        let (silence, disorder) = (self.silence(), self.disorder());
        let is_silent = self.came_at + silence <= now;
        let is_missed = |it: &Awaited| {
            let is_dropped = it.overtaken_at.is_some_and(|at| at + disorder <= now);
            is_dropped || (is_silent && it.at + silence <= now)
        };
        // Whatever is missed is among the first: what was noticed later is waited for longer.
        let end = |it: &Awaited| it.overtaken_at.is_some() || it.at + silence <= now;
        let candidates = self.awaited.iter().take_while(|(_, it)| end(it));
        let places: Vec<u64> =
            candidates.filter(|(_, it)| is_missed(it)).map(|(place, _)| *place).collect();
        places.iter().filter_map(|place| self.awaited.remove(place)).collect()
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        let (_, first) = self.awaited.first_key_value()?;
        let silent_at = self.came_at.max(first.at) + self.silence();
        let overtaken_at = first.overtaken_at.map(|at| at + self.disorder());
        Some(overtaken_at.map_or(silent_at, |at| at.min(silent_at)))
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self(PATIENCE_MIN)
    }
}

impl Patience {
    /// A chunk has come, so late; none: in time.
    fn note(&mut self, late: Option<Duration>) {
        self.0 = match late {
            Some(late) => self.0.max(late * 2).min(PATIENCE_MAX),
            None => (self.0 - self.0 / 512).max(PATIENCE_MIN),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Forward, OpId};
    use bytes::Bytes;

    const SOURCE: Site = Site(0);
    const RELAY: Site = Site(1);
    const LIFE: Life = Life(5);

    fn at(millis: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(millis)
    }

    fn data(seq: u64, byte: u8) -> Data {
        let op = OpId { source: SOURCE, life: LIFE, seq };
        let (forward, payload) = (Forward::Nobody, Bytes::from(vec![byte; 1_000]));
        Data {
            op,
            index: 0,
            count: 1,
            epoch: 0,
            forward,
            is_repair: false,
            is_body: false,
            payload,
        }
    }

    fn notice(proofs: &mut Proofs, now: u64, seq: u64) -> Vec<(Site, Data)> {
        let chunk = (seq, ChunkDigest::of(&data(seq, 7)));
        proofs.on_notice(at(now), SOURCE, LIFE, RELAY, chunk)
    }

    /// After some chunks that came 20 ms after their notices, one each 10 ms, until 220 ms.
    fn measured() -> Proofs {
        let mut proofs = Proofs::new(10_000);
        for seq in 0..20 {
            notice(&mut proofs, 10 * seq, seq);
        }
        for seq in 0..20 {
            proofs.on_taken(at(10 * seq + 20), SOURCE, seq, RELAY);
        }
        assert_eq!(proofs.poll_timeout(), None);
        proofs
    }

    #[test]
    fn a_chunk_is_what_its_source_says_or_wrong_and_its_place_counts() {
        let mut proofs = Proofs::new(10_000);
        assert_eq!(proofs.check(&data(3, 7)), Proof::None);
        notice(&mut proofs, 0, 3);
        assert_eq!(proofs.check(&data(3, 7)), Proof::Right);
        assert_eq!(proofs.check(&data(3, 8)), Proof::Wrong);
        assert_eq!(proofs.check(&Data { count: 2, ..data(3, 7) }), Proof::Wrong);
        let other = Data { op: OpId { life: Life(6), ..data(3, 7).op }, ..data(3, 7) };
        assert_eq!(proofs.check(&other), Proof::None);
    }

    #[test]
    fn what_comes_before_its_notice_is_held_for_it_up_to_a_bound() {
        let cost = held_cost(&data(0, 7));
        let mut proofs = Proofs::new(2 * cost);
        (0..5).for_each(|seq| proofs.hold(RELAY, data(seq, 7)));
        assert_eq!(proofs.held_bytes(), 2 * cost);
        assert_eq!(notice(&mut proofs, 0, 1), [(RELAY, data(1, 7))]);
        assert_eq!(notice(&mut proofs, 0, 4), []);
        proofs.on_taken(at(0), SOURCE, 0, Site(3));
        assert_eq!(proofs.held_bytes(), 0);
        proofs.hold(RELAY, data(5, 7));
        proofs.on_floor(SOURCE, 6);
        assert_eq!(proofs.held_bytes(), 0, "it will not be asked for");
    }

    #[test]
    fn what_one_makes_up_takes_no_room_of_what_another_brings() {
        let liar = Site(3);
        let mut proofs = Proofs::new(4 * held_cost(&data(0, 7)));
        (0..9).for_each(|seq| proofs.hold(liar, data(seq, 8)));
        (0..2).for_each(|seq| proofs.hold(RELAY, data(seq, 7)));
        (2..9).for_each(|seq| proofs.hold(liar, data(seq, 8)));
        for seq in 0..2 {
            assert_eq!(notice(&mut proofs, 0, seq), [(RELAY, data(seq, 7)), (liar, data(seq, 8))]);
        }
    }

    #[test]
    fn one_that_was_overtaken_is_missed_soon_and_one_that_queues_is_not() {
        let mut proofs = measured();
        (20..23).for_each(|seq| assert!(notice(&mut proofs, 300, seq).is_empty()));
        proofs.on_taken(at(320), SOURCE, 22, RELAY);
        assert_eq!(proofs.poll_timeout(), Some(at(370)));
        assert_eq!(proofs.poll_missed(at(369)), None);
        assert_eq!(proofs.poll_missed(at(370)), Some((SOURCE, RELAY, vec![20, 21])));
        assert_eq!(proofs.poll_missed(at(370)), None);
        assert_eq!(proofs.check(&data(20, 7)), Proof::Right, "it may still come");
        // It does, 80 ms after one that was sent later: the next is waited for 160 ms.
        assert!(!proofs.is_late(at(400), Site(4), &data(20, 7)));
        assert!(!proofs.is_late(at(400), RELAY, &data(20, 8)));
        assert!(proofs.is_late(at(400), RELAY, &data(20, 7)));
        assert!(!proofs.is_late(at(400), RELAY, &data(20, 7)));
        (30..33).for_each(|seq| assert!(notice(&mut proofs, 500, seq).is_empty()));
        proofs.on_taken(at(510), SOURCE, 31, RELAY);
        proofs.on_taken(at(640), SOURCE, 32, RELAY);
        assert_eq!(proofs.poll_missed(at(660)), None);
        assert!(proofs.poll_missed(at(670)).is_some());
    }

    /// Their flows are not equally full.
    #[test]
    fn chunks_that_queue_are_overtaken_by_half_as_long_and_not_missed() {
        let mut proofs = Proofs::new(10_000);
        (0..20).for_each(|seq| assert!(notice(&mut proofs, 0, seq).is_empty()));
        (0..20).for_each(|seq| proofs.on_taken(at(400), SOURCE, seq, RELAY));
        (30..32).for_each(|seq| assert!(notice(&mut proofs, 500, seq).is_empty()));
        proofs.on_taken(at(600), SOURCE, 31, RELAY);
        assert_eq!(proofs.poll_timeout(), Some(at(800)));
        assert_eq!(proofs.poll_missed(at(799)), None);
        assert_eq!(proofs.poll_missed(at(800)), Some((SOURCE, RELAY, vec![30])));
    }

    #[test]
    fn all_are_missed_when_a_relay_brings_nothing_any_more() {
        let mut proofs = measured();
        (20..23).for_each(|seq| assert!(notice(&mut proofs, 300, seq).is_empty()));
        assert_eq!(proofs.poll_timeout(), Some(at(380)), "20 ms were measured, and 60 more");
        assert_eq!(proofs.poll_missed(at(380)), Some((SOURCE, RELAY, vec![20, 21, 22])));
        // As long as it brings something the others may queue.
        (30..33).for_each(|seq| assert!(notice(&mut proofs, 500, seq).is_empty()));
        proofs.on_taken(at(570), SOURCE, 30, RELAY);
        assert_eq!(proofs.poll_missed(at(640)), None);
        assert_eq!(proofs.poll_missed(at(900)).map(|(.., seqs)| seqs), Some(vec![31, 32]));
    }

    #[test]
    fn what_came_by_another_way_or_was_given_up_is_not_missed() {
        let mut proofs = measured();
        (20..23).for_each(|seq| assert!(notice(&mut proofs, 300, seq).is_empty()));
        proofs.on_taken(at(310), SOURCE, 22, Site(4));
        proofs.on_floor(SOURCE, 22);
        assert_eq!((proofs.poll_missed(at(9_000)), proofs.poll_timeout()), (None, None));
    }
}
