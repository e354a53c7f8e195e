//! Foresight: commands whose result is certain as soon as they are chosen.
//!
//! Votes prove that a command is chosen, and nothing of its result: its session may be over by
//! then, or the store full. A leader that has proposed all open slots knows all that can come
//! before a command, and so may let votes answer a put, where nothing of that can change its reply.

use std::collections::BTreeMap;

use node_kit::sessions::{Begin, SessionId};

use super::{Machine, STORE_BYTES_MAX, is_valid, pair_bytes};
use crate::core::Slot;
use crate::mutant::{self, Mutant};
use crate::proto::{Cas, Command, Entry, Pair, command, entry};

/// Batches that a leader has proposed, and that are not applied yet.
#[derive(Debug, Default)]
pub struct Foresight {
    batches: BTreeMap<Slot, Footprint>,
}

/// Effects of a batch that later commands may depend on.
#[derive(Debug, Default)]
struct Footprint {
    /// The highest number that each session has used; of one that is closed, all are.
    sessions: BTreeMap<SessionId, u64>,
    opened: usize,
    /// That the store has more, at most.
    bytes: u64,
}

impl Foresight {
    /// Takes the next batch, proposed in this slot behind all that the machine has applied. Says of
    /// each entry that is asked about if its reply is certain to be that it is done, once the log is
    /// chosen up to this slot as it was proposed; of others it says no.
    pub fn foresee<'a>(
        &mut self,
        machine: &Machine,
        slot: Slot,
        entries: impl IntoIterator<Item = (&'a Entry, bool)>,
    ) -> Vec<bool> {
        self.batches = self.batches.split_off(&machine.applied().next());
        self.batches.split_off(&slot); // left from when this node led before
        let mut batch = Footprint::default();
        let mut judge = |(entry, is_asked)| {
            let is_certain = is_asked && self.is_certain(machine, slot, &batch, entry);
            batch.add(entry);
            is_certain
        };
        let certain = entries.into_iter().map(&mut judge).collect();
        self.batches.insert(slot, batch);
        certain
    }

    fn is_certain(&self, machine: &Machine, slot: Slot, batch: &Footprint, entry: &Entry) -> bool {
        let Some(entry::What::Command(command)) = &entry.what else { return false };
        if mutant::is(Mutant::ResultFromVotes) {
            return true;
        }
        let Command { session: Some(session), number, action: Some(action) } = command else {
            return false;
        };
        let command::Action::Put(Pair { key, value }) = action else { return false };
        let session = SessionId::from(*session);
        let open = || self.batches.values().chain([batch]);
        let is_used =
            |batch: &Footprint| batch.sessions.get(&session).is_some_and(|used| used >= number);
        is_valid(entry)
            && machine.sessions.known(session, *number) == Begin::Run
            && machine.sessions.outlasts(session, slot.0)
            && !open().any(is_used)
            && machine.sessions.has_room_for(open().map(|batch| batch.opened).sum())
            && machine.size()
                + open().map(|batch| batch.bytes).sum::<u64>()
                + pair_bytes(key, value)
                <= STORE_BYTES_MAX
    }
}

impl Footprint {
    fn add(&mut self, entry: &Entry) {
        match &entry.what {
            Some(entry::What::Open(_)) => self.opened += 1,
            Some(entry::What::Close(session)) => {
                self.sessions.insert((*session).into(), u64::MAX);
            }
            Some(entry::What::Command(Command { session, number, action })) => {
                if let Some(session) = session.map(SessionId::from) {
                    let used = self.sessions.entry(session).or_default();
                    *used = (*used).max(*number);
                }
                self.bytes += match action {
                    Some(command::Action::Put(Pair { key, value })) => pair_bytes(key, value),
                    Some(command::Action::Cas(Cas { key, value, .. })) => pair_bytes(key, value),
                    Some(command::Action::Delete(_)) | None => 0,
                };
            }
            None => {}
        }
    }
}
