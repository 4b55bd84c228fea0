//! Hidden states by microbatch, with the bytes they occupy in each place.
//!
//! The core knows sizes; the store holds what has them. It is shared by all threads of a run: targets put hidden states in, copiers
//! move them, drafters read and free them. A copy occupies both ends until it is over, as it does on a machine.
//!
//! Invariant: the live bytes of a place are the sum over the hidden states that are there or on their way there.

mod slots;

use crate::error::WorkerId;
use shared::id::{Bytes, DrafterId, MicrobatchId, TargetId};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thiserror::Error;

pub use slots::{Occupied, Slots};

/// A memory that hidden states can be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// A target worker's device.
    Target(TargetId),
    /// Host memory.
    Host,
    /// A drafter worker's device.
    Drafter(DrafterId),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Target(id) => write!(f, "target {id}"),
            Self::Host => f.write_str("host"),
            Self::Drafter(id) => write!(f, "drafter {id}"),
        }
    }
}

impl From<WorkerId> for Place {
    /// A worker's own memory.
    fn from(worker: WorkerId) -> Self {
        match worker {
            WorkerId::Target(id) => Self::Target(id),
            WorkerId::Drafter(id) => Self::Drafter(id),
        }
    }
}

/// Hidden states that were asked for and are not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the hidden states of microbatch {0} are lost")]
pub struct Missing(pub MicrobatchId);

/// Which hidden states of a microbatch are meant: those of its first forward, or of a later one. Whoever works on hidden states that
/// have been freed or made anew meanwhile holds a stale ticket, and nothing that it then does has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

/// The hidden states of a run. `Hidden` is whatever the backend makes.
#[derive(Debug)]
pub struct Store<Hidden> {
    table: Mutex<Table<Hidden>>,
}

#[derive(Debug)]
struct Table<Hidden> {
    entries: BTreeMap<MicrobatchId, Entry<Hidden>>,
    places: BTreeMap<Place, Level>,
    all: Level,
    tickets: u64,
}

#[derive(Debug)]
struct Entry<Hidden> {
    hidden: Arc<Hidden>,
    bytes: Bytes,
    at: Place,
    bound_for: Option<Place>,
    ticket: Ticket,
}

#[derive(Clone, Copy, Debug, Default)]
struct Level {
    live: Bytes,
    peak: Bytes,
}

impl<Hidden> Default for Store<Hidden> {
    fn default() -> Self {
        Self {
            table: Mutex::new(Table {
                entries: BTreeMap::new(),
                places: BTreeMap::new(),
                all: Level::default(),
                tickets: 0,
            }),
        }
    }
}

impl<Hidden> Store<Hidden> {
    /// Puts in the hidden states that a forward made; those of an earlier try are freed.
    pub fn put(&self, id: MicrobatchId, at: Place, bytes: Bytes, hidden: Hidden) {
        let mut table = self.lock();
        table.remove(id);
        let ticket = table.issue();
        table.occupy(at, bytes);
        let entry = Entry {
            hidden: Arc::new(hidden),
            bytes,
            at,
            bound_for: None,
            ticket,
        };
        table.entries.insert(id, entry);
    }

    /// What is there, to be read.
    pub fn read(&self, id: MicrobatchId) -> Result<(Arc<Hidden>, Ticket), Missing> {
        let table = self.lock();
        let entry = table.entries.get(&id).ok_or(Missing(id))?;
        Ok((Arc::clone(&entry.hidden), entry.ticket))
    }

    /// Begins a copy: from now on the bytes occupy both ends. Says where they are.
    pub fn depart(
        &self,
        id: MicrobatchId,
        to: Place,
    ) -> Result<(Arc<Hidden>, Place, Ticket), Missing> {
        let mut table = self.lock();
        let entry = table.entries.get_mut(&id).ok_or(Missing(id))?;
        assert!(
            entry.bound_for.is_none(),
            "hidden states are copied once at a time: {id}"
        );
        entry.bound_for = Some(to);
        let (hidden, at, ticket) = (Arc::clone(&entry.hidden), entry.at, entry.ticket);
        let bytes = entry.bytes;
        table.occupy(to, bytes);
        Ok((hidden, at, ticket))
    }

    /// Ends a copy: with its result the source is freed, without one the destination is. False, and without effect, for a stale
    /// ticket.
    pub fn arrive(&self, id: MicrobatchId, ticket: Ticket, copy: Option<Hidden>) -> bool {
        let mut table = self.lock();
        let Some(entry) = table.entries.get_mut(&id).filter(|e| e.ticket == ticket) else {
            return false;
        };
        let Some(to) = entry.bound_for.take() else {
            return false;
        };
        let (bytes, mut freed) = (entry.bytes, to);
        if let Some(copy) = copy {
            entry.hidden = Arc::new(copy);
            freed = std::mem::replace(&mut entry.at, to);
        }
        table.vacate(freed, bytes);
        true
    }

    /// Frees hidden states that were trained on. Without effect for a stale ticket.
    pub fn free(&self, id: MicrobatchId, ticket: Ticket) {
        let mut table = self.lock();
        if table.entries.get(&id).is_some_and(|e| e.ticket == ticket) {
            table.remove(id);
        }
    }

    /// Frees hidden states that nobody will train on, if they are there.
    pub fn discard(&self, id: MicrobatchId) {
        self.lock().remove(id);
    }

    /// Frees what was in a memory that is gone, and calls off copies into it.
    pub fn lose(&self, place: Place) {
        let mut table = self.lock();
        let there = |e: &Entry<Hidden>| e.at == place;
        let lost: Vec<MicrobatchId> = table.ids_where(there);
        lost.into_iter().for_each(|id| table.remove(id));
        for id in table.ids_where(|e| e.bound_for == Some(place)) {
            let ticket = table.issue();
            let entry = table
                .entries
                .get_mut(&id)
                .expect("the entry was just found");
            entry.bound_for = None;
            entry.ticket = ticket;
            let bytes = entry.bytes;
            table.vacate(place, bytes);
        }
    }

    /// Frees all but those that `keep` says.
    pub fn retain(&self, keep: impl Fn(MicrobatchId) -> bool) {
        let mut table = self.lock();
        let ids: Vec<MicrobatchId> = table.entries.keys().copied().collect();
        let useless = ids.into_iter().filter(|id| !keep(*id));
        useless.for_each(|id| table.remove(id));
    }

    /// Frees everything.
    pub fn clear(&self) {
        self.retain(|_| false);
    }

    /// Bytes in all places.
    pub fn live(&self) -> Bytes {
        self.lock().all.live
    }

    /// Bytes in one place.
    pub fn live_in(&self, place: Place) -> Bytes {
        self.lock()
            .places
            .get(&place)
            .copied()
            .unwrap_or_default()
            .live
    }

    /// The most bytes there ever were, in all places together and in each.
    pub fn peaks(&self) -> Peaks {
        let table = self.lock();
        Peaks {
            all: table.all.peak,
            places: table.places.iter().map(|(p, l)| (*p, l.peak)).collect(),
        }
    }

    /// A thread that panicked with the lock held broke a rule, and the panic says which; the others may still free what they hold.
    fn lock(&self) -> MutexGuard<'_, Table<Hidden>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The most bytes of hidden states there ever were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peaks {
    /// In all places at one time.
    pub all: Bytes,
    /// In each place that ever held some.
    pub places: Vec<(Place, Bytes)>,
}

impl<Hidden> Table<Hidden> {
    fn issue(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    fn remove(&mut self, id: MicrobatchId) {
        if let Some(entry) = self.entries.remove(&id) {
            self.vacate(entry.at, entry.bytes);
            if let Some(to) = entry.bound_for {
                self.vacate(to, entry.bytes);
            }
        }
    }

    fn occupy(&mut self, place: Place, bytes: Bytes) {
        for level in [&mut self.all, self.places.entry(place).or_default()] {
            level.live += bytes;
            level.peak = level.peak.max(level.live);
        }
    }

    fn vacate(&mut self, place: Place, bytes: Bytes) {
        self.all.live -= bytes;
        self.places.entry(place).or_default().live -= bytes;
    }

    fn ids_where(&self, holds: impl Fn(&Entry<Hidden>) -> bool) -> Vec<MicrobatchId> {
        let found = self.entries.iter().filter(|(_, entry)| holds(entry));
        found.map(|(id, _)| *id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Place = Place::Target(TargetId(0));
    const D0: Place = Place::Drafter(DrafterId(0));
    const M: MicrobatchId = MicrobatchId(4);

    fn filled() -> Store<&'static str> {
        let store = Store::default();
        store.put(M, T0, Bytes(10), "made");
        store
    }

    #[test]
    fn a_copy_occupies_both_ends_until_it_is_over() {
        let store = filled();
        let (hidden, at, ticket) = store.depart(M, Place::Host).unwrap();
        assert_eq!((*hidden, at), ("made", T0));
        assert_eq!(
            (store.live(), store.live_in(Place::Host)),
            (Bytes(20), Bytes(10))
        );
        store.arrive(M, ticket, Some("copied"));
        assert_eq!((store.live(), store.live_in(T0)), (Bytes(10), Bytes(0)));
        assert_eq!(*store.read(M).unwrap().0, "copied");
        let peaks = store.peaks();
        assert_eq!(peaks.all, Bytes(20));
        assert_eq!(peaks.places, [(T0, Bytes(10)), (Place::Host, Bytes(10))]);
    }

    #[test]
    fn a_failed_copy_leaves_the_source() {
        let store = filled();
        let (_, _, ticket) = store.depart(M, D0).unwrap();
        store.arrive(M, ticket, None);
        assert_eq!(
            (store.live_in(T0), store.live_in(D0)),
            (Bytes(10), Bytes(0))
        );
        assert!(store.depart(M, D0).is_ok());
    }

    #[test]
    fn a_stale_ticket_changes_nothing() {
        let store = filled();
        let (_, _, ticket) = store.depart(M, D0).unwrap();
        store.put(M, T0, Bytes(7), "again");
        store.arrive(M, ticket, Some("late"));
        store.free(M, ticket);
        assert_eq!(*store.read(M).unwrap().0, "again");
        assert_eq!((store.live(), store.live_in(D0)), (Bytes(7), Bytes(0)));
    }

    #[test]
    fn a_lost_memory_takes_what_it_held_and_what_was_on_its_way_stays_at_the_source() {
        let store = filled();
        let other = MicrobatchId(5);
        store.put(other, D0, Bytes(3), "there");
        let (_, _, ticket) = store.depart(M, D0).unwrap();
        store.lose(D0);
        store.arrive(M, ticket, Some("late"));
        assert_eq!(store.read(other), Err(Missing(other)));
        assert_eq!(*store.read(M).unwrap().0, "made");
        assert_eq!((store.live(), store.live_in(D0)), (Bytes(10), Bytes(0)));
        store.clear();
        assert_eq!(store.live(), Bytes(0));
    }

    #[test]
    fn what_is_gone_is_named() {
        let store = filled();
        store.discard(M);
        store.discard(M);
        let error = store.depart(M, Place::Host).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the hidden states of microbatch m4 are lost"
        );
    }
}
