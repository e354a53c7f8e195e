//! A generated graph looks like a social network.

use super::*;

fn depth(graph: &Shard, message: &Message) -> usize {
    let mut depth = 0;
    let mut message = message;
    while let Some(parent) = message.reply_of() {
        message = &graph.message(parent).unwrap().message;
        depth += 1;
    }
    depth
}

#[test]
fn one_seed_gives_one_graph() {
    let recipe = Recipe { persons: 40, seed: 9 };
    assert!(generate(recipe) == generate(recipe));
    assert!(generate(recipe) != generate(Recipe { seed: 10, ..recipe }));
}

#[test]
fn no_number_of_persons_is_too_small() {
    for persons in 0..4 {
        for seed in 0..20 {
            let graph = generate(Recipe { persons, seed });
            assert_eq!(graph.whole().persons().count(), persons as usize);
        }
    }
}

#[test]
fn the_default_is_about_as_large_as_the_official_graph() {
    let graph = generate(Recipe::default());
    let graph = graph.whole();
    let posts = graph.messages().filter(|record| record.message.forum().is_some()).count();
    let comments = graph.messages().count() - posts;
    let friendships = graph.persons().map(|record| record.knows.len()).sum::<usize>() / 2;
    assert_eq!(graph.persons().count(), 222);
    assert!((600..1_100).contains(&friendships), "{friendships} friendships");
    assert!((600..1_000).contains(&graph.forums().count()), "{} forums", graph.forums().count());
    assert!((4_500..7_500).contains(&posts), "{posts} posts");
    assert!((1_500..3_500).contains(&comments), "{comments} comments");
}

#[test]
fn a_few_persons_have_most_of_the_friends_and_some_have_none() {
    let graph = generate(Recipe::default());
    let mut friends: Vec<usize> =
        graph.whole().persons().map(|record| record.knows.len()).collect();
    friends.sort_unstable();
    let all: usize = friends.iter().sum();
    let most: usize = friends[friends.len() * 4 / 5..].iter().sum();
    assert!(most * 2 > all * 4 / 5, "the fifth with most friends has {most} of {all}");
    assert_eq!(friends[0], 0);
    assert!(friends[friends.len() - 1] >= 20, "{friends:?}");
}

#[test]
fn some_write_nothing_and_some_more_than_is_asked_for() {
    let graph = generate(Recipe::default());
    let written: Vec<usize> = graph.whole().persons().map(|record| record.messages.len()).collect();
    assert!(written.contains(&0));
    assert!(written.iter().any(|written| *written > 50));
}

#[test]
fn most_comments_are_near_their_post_and_some_are_deep() {
    let graph = generate(Recipe::default());
    let graph = graph.whole();
    let comments = graph.messages().map(|record| depth(graph, &record.message));
    let depths: Vec<usize> = comments.filter(|depth| *depth > 0).collect();
    let near = depths.iter().filter(|depth| **depth <= 3).count();
    assert!(near * 2 > depths.len(), "{near} of {}", depths.len());
    assert!(depths.iter().any(|depth| *depth >= 15));
}
