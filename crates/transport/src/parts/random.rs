//! Random numbers, for names, keys and seeds.

use std::cell::RefCell;

/// Numbers that a thread takes from the operating system at once.
const STOCK: usize = 64;

thread_local! {
    static UNUSED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// A number that nobody can predict, from the operating system.
///
/// # Panics
/// The operating system has no random numbers, without which no name would be safe.
pub fn random() -> u64 {
    UNUSED.with_borrow_mut(|unused| {
        if unused.is_empty() {
            let mut bytes = [0; 8 * STOCK];
            getrandom::fill(&mut bytes).expect("the operating system has random numbers");
            let numbers = bytes.chunks_exact(8).map(|eight| {
                u64::from_ne_bytes(eight.try_into().expect("a chunk has eight bytes"))
            });
            unused.extend(numbers);
        }
        unused.pop().expect("it was filled above")
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_number_comes_twice_on_any_thread() {
        let count = 3 * STOCK;
        let of_a_thread = move || (0..count).map(|_| random()).collect::<Vec<_>>();
        let threads = [std::thread::spawn(of_a_thread), std::thread::spawn(of_a_thread)];
        let drawn = threads.into_iter().flat_map(|thread| thread.join().expect("it ends"));
        assert_eq!(drawn.collect::<BTreeSet<_>>().len(), 2 * count);
    }
}
