//! Each query against answers worked out by hand, and the edges of what can be asked.

use std::path::Path;

use super::*;
use crate::expected;
use crate::generate::{Recipe, generate};
use crate::model::{Entity, Person};
use crate::query::Cell;
use crate::store::{Part, Shard};

/// A person, their wall, and a post 0 on it with a thread of `depth` comments, each on the last.
/// Comment `n` was written at `n` + 1.
fn thread(depth: i64) -> Graph {
    let (creator, wall) = (PersonId(1), ForumId(1));
    let person = Person {
        id: creator,
        first_name: "Ada".to_owned(),
        last_name: "Byron".to_owned(),
        gender: String::new(),
        birthday: DateTime(0),
        creation_date: DateTime(0),
        location_ip: String::new(),
        browser_used: String::new(),
    };
    let mut graph = Shard::empty(Part::WHOLE);
    graph.insert_person(person).unwrap();
    graph.insert_city(creator, PlaceId(1));
    graph.insert_forum(Forum { id: wall, title: "Wall".to_owned(), moderator: creator }).unwrap();
    let mut parent = Parent::Forum(wall);
    for n in 0..=depth {
        let (id, creation_date) = (MessageId(n), DateTime(n + 1));
        let message = Message { id, creation_date, content: String::new(), creator, parent };
        graph.insert_message(message).unwrap();
        graph.insert_authored(creator, id, creation_date).unwrap();
        if let Parent::Message(parent) = parent {
            let kind = if parent.0 == 0 { Entity::Post } else { Entity::Comment };
            graph.insert_reply(kind, parent, id, creation_date).unwrap();
        }
        parent = Parent::Message(id);
    }
    Graph::from_whole(graph)
}

#[test]
fn the_small_graph_is_answered_as_by_hand() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/small");
    let graph = Graph::read(&dir).unwrap();
    let answers = expected::read(&dir.join("expected.jsonl")).unwrap();
    for query in Query::ALL {
        assert!(answers.iter().any(|answer| answer.query == query), "{query} is not asked");
    }
    for expected in &answers {
        assert_eq!(answer(&graph, expected.query, expected.id), *expected);
    }
}

#[test]
fn an_unknown_id_has_no_rows() {
    let graph = generate(Recipe { persons: 5, seed: 1 });
    for query in Query::ALL {
        for id in [i64::MIN, -1, 0, i64::MAX] {
            assert_eq!(answer(&graph, query, id), Answer { query, id, rows: Vec::new() });
        }
    }
}

#[test]
fn the_root_of_a_deep_thread_is_found() {
    let graph = thread(20_000);
    let forum = answer(&graph, Query::Is6, 20_000);
    assert_eq!(forum.rows[0][1], Cell::Text("Wall".to_owned()));
    let recent = recent_messages(&graph, PersonId(1));
    assert!(recent.iter().all(|row| row.root_post == MessageId(0)));
}

#[test]
fn only_the_last_ten_messages_are_given_newest_first() {
    let recent = answer(&thread(11), Query::Is2, 1);
    let ids: Vec<Cell> = recent.rows.iter().map(|row| row[0].clone()).collect();
    assert_eq!(ids, [11, 10, 9, 8, 7, 6, 5, 4, 3, 2].map(Cell::Number));
}
