//! Every fact has exactly one home.

use std::num::NonZeroUsize;

use tempfile::TempDir;

use super::*;
use crate::generate::{Recipe, generate};

fn over(shards: usize) -> Sharding {
    Sharding::over(NonZeroUsize::new(shards).unwrap())
}

fn shards_of(graph: &Graph, sharding: Sharding) -> Vec<Shard> {
    Part::all(sharding).map(|part| graph.shard(part)).collect()
}

/// All that the shards hold, sorted by id; what two of them hold is there twice.
fn gathered<'a, T, I>(shards: &'a [Shard], of: impl Fn(&'a Shard) -> I) -> Vec<String>
where
    T: std::fmt::Debug,
    I: Iterator<Item = T>,
{
    let mut all: Vec<String> = shards.iter().flat_map(of).map(|fact| format!("{fact:?}")).collect();
    all.sort();
    all
}

#[test]
fn shards_hold_everything_exactly_once() {
    let graph = generate(Recipe { persons: 80, seed: 5 });
    let whole = [graph.whole().clone()];
    for count in [1, 4, 7] {
        let shards = shards_of(&graph, over(count));
        assert_eq!(shards.len(), count);
        assert_eq!(gathered(&shards, Shard::persons), gathered(&whole, Shard::persons));
        assert_eq!(gathered(&shards, Shard::cities), gathered(&whole, Shard::cities));
        assert_eq!(gathered(&shards, Shard::forums), gathered(&whole, Shard::forums));
        assert_eq!(gathered(&shards, Shard::messages), gathered(&whole, Shard::messages));
    }
}

#[test]
fn every_fact_is_found_at_its_home() {
    let graph = generate(Recipe { persons: 80, seed: 5 });
    let sharding = over(7);
    let shards = shards_of(&graph, sharding);
    for record in graph.whole().persons() {
        let id = record.person.id;
        assert_eq!(shards[sharding.of_person(id)].person(id), Some(record));
        let city = graph.whole().city_of(id);
        assert!(city.is_some());
        assert_eq!(shards[sharding.of_city_of(id)].city_of(id), city);
    }
    for forum in graph.whole().forums() {
        assert_eq!(shards[sharding.of_forum(forum.id)].forum(forum.id), Some(forum));
    }
    for record in graph.whole().messages() {
        let id = record.message.id;
        assert_eq!(shards[sharding.of_message(id)].message(id), Some(record));
    }
}

#[test]
fn a_shard_read_from_files_is_that_part_of_the_graph() {
    let graph = generate(Recipe { persons: 80, seed: 6 });
    let dir = TempDir::new().unwrap();
    graph.write_csv(dir.path()).unwrap();
    for count in [1, 4, 7] {
        for part in Part::all(over(count)) {
            assert!(Shard::read(dir.path(), part).unwrap() == graph.shard(part), "{part:?}");
        }
    }
}

#[test]
fn shards_are_about_equally_full() {
    let graph = generate(Recipe::default());
    let shards = shards_of(&graph, over(7));
    let fair = graph.whole().messages().count() / 7;
    for shard in &shards {
        let held = shard.messages().count();
        assert!((fair * 3 / 4..fair * 5 / 4).contains(&held), "{held} of about {fair}");
    }
}

#[test]
fn ids_that_differ_in_high_bits_only_are_spread_too() {
    let sharding = over(4);
    let mut held = [0; 4];
    for slice in 0..4_000 {
        held[sharding.of_message(MessageId(slice << 36))] += 1;
    }
    assert!(held.iter().all(|held| (850..1_150).contains(held)), "{held:?}");
}

#[test]
fn a_city_mostly_has_another_home_than_its_person() {
    let sharding = over(4);
    let same = |id: &i64| sharding.of_person(PersonId(*id)) == sharding.of_city_of(PersonId(*id));
    let same = (0..1_000).filter(same).count();
    assert!((180..320).contains(&same), "{same} of 1000, where 250 is chance");
}

/// Nodes of different builds share one graph, so homes must never move.
#[test]
fn homes_do_not_move() {
    let sharding = over(1_000);
    let homes = [
        sharding.of_person(PersonId(1)),
        sharding.of_city_of(PersonId(1)),
        sharding.of_message(MessageId(1)),
        sharding.of_forum(ForumId(1)),
        sharding.of_person(PersonId(-1)),
    ];
    assert_eq!(homes, [606, 605, 547, 455, 506]);
}

#[test]
fn there_is_no_part_beyond_the_last() {
    assert_eq!(Part::new(3, over(4)).map(Part::index), Some(3));
    assert_eq!(Part::new(4, over(4)), None);
    assert_eq!(Part::new(0, over(1)), Some(Part::WHOLE));
}
