//! The packets that are lost on their way, which a seed decides.

use convoke_sim::random::Random;

/// Draws for each packet of each pair of sites whether it is lost. A pair's losses depend on how
/// many packets went before, and on nothing else.
#[derive(Debug)]
pub(super) struct Losses {
    probability: f64,
    pairs: Vec<Random>,
    count: u64,
}

impl Losses {
    /// Of so many pairs; each packet is lost with `probability`, from 0 to 1.
    pub(super) fn new(probability: f64, seed: u64, pairs: usize) -> Self {
        let pairs = (0..).take(pairs).map(|pair| Random::of(seed, pair)).collect();
        Self { probability, pairs, count: 0 }
    }

    /// True when the next packet of a pair is lost.
    pub(super) fn take(&mut self, pair: usize) -> bool {
        let is_lost = self.pairs[pair].happens(self.probability);
        self.count += u64::from(is_lost);
        is_lost
    }

    /// Number of packets lost so far.
    pub(super) fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(losses: &mut Losses, pair: usize) -> Vec<bool> {
        (0..10_000).map(|_| losses.take(pair)).collect()
    }

    #[test]
    fn as_many_are_lost_as_the_probability_says() {
        let mut losses = Losses::new(0.01, 7, 4);
        let lost = drawn(&mut losses, 1).into_iter().filter(|is_lost| *is_lost).count();
        assert!((70..130).contains(&lost), "{lost} of 10,000");
        assert_eq!(losses.count(), lost as u64);
        assert!(!drawn(&mut Losses::new(0.0, 7, 4), 1).contains(&true));
    }

    #[test]
    fn a_seed_decides_the_losses_of_a_pair_whatever_others_send() {
        let (mut alone, mut beside) = (Losses::new(0.01, 7, 4), Losses::new(0.01, 7, 4));
        let other = drawn(&mut beside, 2);
        let own = drawn(&mut alone, 1);
        assert_eq!(own, drawn(&mut beside, 1));
        assert_ne!(own, other);
        assert_ne!(own, drawn(&mut Losses::new(0.01, 8, 4), 1));
    }
}
