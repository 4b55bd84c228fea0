//! How many drafts were accepted, and where in the block.

use super::speculate::Round;

/// Counts of rounds and of their slots.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Rounds: forwards of the target behind the prompt.
    pub rounds: usize,
    /// Tokens gained: drafts accepted and bonuses.
    pub gained: usize,
    /// Drafts offered.
    pub offered: usize,
    /// Drafts accepted.
    pub accepted: usize,
    /// Slot 1 first.
    pub slots: Vec<SlotCount>,
}

/// Counts of one slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SlotCount {
    /// Rounds in which it was offered behind slots that were all accepted.
    pub reached: usize,
    /// Rounds in which it was accepted.
    pub accepted: usize,
    /// Rounds that tell whether a block reaches past it: all but those whose answer ended before.
    pub decided: usize,
}

impl SlotCount {
    /// Share accepted where all slots before were; NaN where it was never reached.
    pub fn conditional(&self) -> f64 {
        self.accepted as f64 / self.reached as f64
    }

    /// Share of the rounds in which it and all slots before were accepted.
    pub fn cumulative(&self) -> f64 {
        self.accepted as f64 / self.decided as f64
    }
}

impl Tally {
    /// Counts `rounds`, each with at most `slots` drafts.
    pub fn of<'a>(rounds: impl IntoIterator<Item = &'a Round>, slots: usize) -> Self {
        let mut tally = Self {
            slots: vec![SlotCount::default(); slots],
            ..Self::default()
        };
        for round in rounds {
            tally.add(round);
        }
        tally
    }

    fn add(&mut self, round: &Round) {
        self.rounds += 1;
        self.gained += round.gained;
        self.offered += round.offered;
        self.accepted += round.accepted;
        // Without a bonus an accepted draft ended the answer, and no later slot was ever judged.
        let is_cut = round.gained == round.accepted;
        for (slot, count) in (1..).zip(&mut self.slots) {
            count.reached += usize::from(slot <= round.offered && slot <= round.accepted + 1);
            count.accepted += usize::from(slot <= round.accepted);
            count.decided += usize::from(slot <= round.accepted || !is_cut);
        }
    }

    /// Tokens gained a round, τ; NaN without a round.
    pub fn acceptance_length(&self) -> f64 {
        self.gained as f64 / self.rounds as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(offered: usize, accepted: usize, gained: usize) -> Round {
        Round {
            anchor: 9,
            offered,
            accepted,
            gained,
        }
    }

    #[test]
    fn slots_are_counted_where_they_were_reached() {
        let rounds = [round(3, 3, 4), round(3, 0, 1), round(3, 1, 2)];
        let tally = Tally::of(&rounds, 3);
        assert_eq!(
            (tally.rounds, tally.gained, tally.offered, tally.accepted),
            (3, 7, 9, 4)
        );
        let shares = tally
            .slots
            .iter()
            .map(|s| (s.conditional(), s.cumulative()));
        let third = 1.0 / 3.0;
        assert_eq!(
            shares.collect::<Vec<_>>(),
            [(2.0 * third, 2.0 * third), (0.5, third), (1.0, third)]
        );
        // 1 + Σ cumulative is the acceptance length when every block is offered whole.
        assert!((tally.acceptance_length() - (1.0 + 4.0 * third)).abs() < 1e-12);
    }

    #[test]
    fn an_end_among_the_drafts_judges_no_later_slot() {
        let tally = Tally::of(&[round(1, 1, 1), round(0, 0, 1)], 2);
        let [first, second] = [0, 1].map(|i| tally.slots[i]);
        assert_eq!((first.reached, first.accepted, first.decided), (1, 1, 2));
        assert_eq!((second.reached, second.accepted, second.decided), (0, 0, 1));
        assert!(second.conditional().is_nan());
        assert!(Tally::of(&[], 2).acceptance_length().is_nan());
    }
}
