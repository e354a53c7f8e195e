//! The reader against a small folder, whole, damaged and written anew.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::fingerprint;
use crate::file::{DataError, Reason};
use crate::generate::{Recipe, generate};
use crate::model::{MessageId, Person, PersonId, PlaceId};
use crate::store::{Graph, Part, Shard, Sharding};

fn small() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/small")
}

/// A copy of the small folder, its line ends as in the repository.
fn copied() -> TempDir {
    let dir = TempDir::new().unwrap();
    for entry in fs::read_dir(small()).unwrap() {
        let entry = entry.unwrap();
        let text = fs::read_to_string(entry.path()).unwrap().replace("\r\n", "\n");
        fs::write(dir.path().join(entry.file_name()), text).unwrap();
    }
    dir
}

/// A copy of the small folder with one change in one file.
fn damaged(file: &str, from: &str, to: &str) -> TempDir {
    let dir = copied();
    let path = dir.path().join(file);
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.matches(from).count(), 1, "{from:?} in {file}");
    fs::write(&path, text.replace(from, to)).unwrap();
    dir
}

fn error_of(file: &str, from: &str, to: &str) -> DataError {
    Graph::read(damaged(file, from, to).path()).expect_err("the folder is damaged")
}

/// The line that `damaged` is expected to be refused for, and what is said of it.
#[derive(Clone)]
struct Case {
    file: &'static str,
    from: &'static str,
    to: &'static str,
    blamed: (&'static str, u64),
    reason: &'static str,
}

/// Damages that have to do with one file alone.
const BAD_LINES: &[Case] = &[
    Case {
        file: "person_0_0.csv",
        from: "|lastName|",
        to: "|surname|",
        blamed: ("person_0_0.csv", 1),
        reason: "missing column lastName in the header",
    },
    Case {
        file: "person_knows_person_0_0.csv",
        from: "Person.id|Person.id|",
        to: "Person.id|Friend.id|",
        blamed: ("person_knows_person_0_0.csv", 1),
        reason: "missing column Person.id in the header",
    },
    Case {
        file: "forum_0_0.csv",
        from: "11|Album 0 of Bob Müller|2100",
        to: "11|2100",
        blamed: ("forum_0_0.csv", 3),
        reason: "the line has 2 columns, the header has 3",
    },
    Case {
        file: "comment_0_0.csv",
        from: "|great|",
        to: "|gr|eat|",
        blamed: ("comment_0_0.csv", 5),
        reason: "the line has 7 columns, the header has 6",
    },
    Case {
        file: "post_hasCreator_person_0_0.csv",
        from: "101|2\n",
        to: "\n101|2\n",
        blamed: ("post_hasCreator_person_0_0.csv", 3),
        reason: "the line has 1 columns, the header has 2",
    },
    Case {
        file: "post_0_0.csv",
        from: "|12000|",
        to: "|12,000|",
        blamed: ("post_0_0.csv", 5),
        reason: "column creationDate is not a whole number: \"12,000\"",
    },
    Case {
        file: "comment_replyOf_comment_0_0.csv",
        from: "202|201",
        to: "202|",
        blamed: ("comment_replyOf_comment_0_0.csv", 3),
        reason: "column Comment.id is not a whole number: \"\"",
    },
    Case {
        file: "person_0_0.csv",
        from: "|600000000000|",
        to: "|99999999999999999999|",
        blamed: ("person_0_0.csv", 6),
        reason: "column birthday is not a whole number: \"99999999999999999999\"",
    },
];

/// Ids that name nothing.
const UNKNOWN_IDS: &[Case] = &[
    Case {
        file: "person_isLocatedIn_place_0_0.csv",
        from: "3|70",
        to: "9|70",
        blamed: ("person_0_0.csv", 4),
        reason: "person 3 has no city",
    },
    Case {
        file: "person_isLocatedIn_place_0_0.csv",
        from: "5|70",
        to: "5|70\n9|70",
        blamed: ("person_isLocatedIn_place_0_0.csv", 7),
        reason: "unknown person 9",
    },
    Case {
        file: "person_isLocatedIn_place_0_0.csv",
        from: "2|71",
        to: "2|80",
        blamed: ("person_isLocatedIn_place_0_0.csv", 3),
        reason: "unknown city 80",
    },
    Case {
        file: "person_knows_person_0_0.csv",
        from: "5|1|7000",
        to: "5|9|7000",
        blamed: ("person_knows_person_0_0.csv", 4),
        reason: "unknown person 9",
    },
    Case {
        file: "forum_hasModerator_person_0_0.csv",
        from: "11|2",
        to: "11|9",
        blamed: ("forum_hasModerator_person_0_0.csv", 3),
        reason: "unknown person 9",
    },
    Case {
        file: "forum_hasModerator_person_0_0.csv",
        from: "11|2",
        to: "11|2\n12|2",
        blamed: ("forum_hasModerator_person_0_0.csv", 4),
        reason: "unknown forum 12",
    },
    Case {
        file: "forum_containerOf_post_0_0.csv",
        from: "11|101",
        to: "12|101",
        blamed: ("forum_containerOf_post_0_0.csv", 3),
        reason: "unknown forum 12",
    },
    Case {
        file: "forum_containerOf_post_0_0.csv",
        from: "11|103",
        to: "11|103\n11|104",
        blamed: ("forum_containerOf_post_0_0.csv", 6),
        reason: "unknown post 104",
    },
    Case {
        file: "post_hasCreator_person_0_0.csv",
        from: "102|3",
        to: "102|9",
        blamed: ("post_hasCreator_person_0_0.csv", 4),
        reason: "unknown person 9",
    },
    Case {
        file: "comment_hasCreator_person_0_0.csv",
        from: "205|1",
        to: "205|1\n206|1",
        blamed: ("comment_hasCreator_person_0_0.csv", 8),
        reason: "unknown comment 206",
    },
    Case {
        file: "comment_replyOf_post_0_0.csv",
        from: "203|100",
        to: "203|99",
        blamed: ("comment_replyOf_post_0_0.csv", 3),
        reason: "unknown post 99",
    },
    Case {
        file: "comment_replyOf_post_0_0.csv",
        from: "203|100",
        to: "203|200",
        blamed: ("comment_replyOf_post_0_0.csv", 3),
        reason: "unknown post 200",
    },
    Case {
        file: "comment_replyOf_comment_0_0.csv",
        from: "201|200",
        to: "201|100",
        blamed: ("comment_replyOf_comment_0_0.csv", 2),
        reason: "unknown comment 100",
    },
    Case {
        file: "comment_replyOf_comment_0_0.csv",
        from: "202|201",
        to: "202|201\n206|201",
        blamed: ("comment_replyOf_comment_0_0.csv", 4),
        reason: "unknown comment 206",
    },
];

/// Ids and edges that are there twice.
const DUPLICATES: &[Case] = &[
    Case {
        file: "person_0_0.csv",
        from: "5|Eve|",
        to: "4|Eve|",
        blamed: ("person_0_0.csv", 6),
        reason: "duplicate id: there already is a person 4",
    },
    Case {
        file: "forum_0_0.csv",
        from: "11|Album",
        to: "10|Album",
        blamed: ("forum_0_0.csv", 3),
        reason: "duplicate id: there already is a forum 10",
    },
    Case {
        file: "post_0_0.csv",
        from: "102||",
        to: "101||",
        blamed: ("post_0_0.csv", 4),
        reason: "duplicate id: there already is a post 101",
    },
    Case {
        file: "comment_0_0.csv",
        from: "204|13000",
        to: "203|13000",
        blamed: ("comment_0_0.csv", 6),
        reason: "duplicate id: there already is a comment 203",
    },
    Case {
        file: "person_knows_person_0_0.csv",
        from: "5|1|7000",
        to: "2|1|7000",
        blamed: ("person_knows_person_0_0.csv", 4),
        reason: "duplicate friendship: 2 and 1 already know each other",
    },
    Case {
        file: "post_hasCreator_person_0_0.csv",
        from: "102|3",
        to: "101|3",
        blamed: ("post_hasCreator_person_0_0.csv", 4),
        reason: "duplicate edge: an earlier line tells the same of post 101",
    },
    Case {
        file: "comment_replyOf_comment_0_0.csv",
        from: "201|200",
        to: "204|200",
        blamed: ("comment_replyOf_comment_0_0.csv", 2),
        reason: "duplicate edge: an earlier line tells the same of comment 204",
    },
];

/// Things that lack an edge, and edges that make no sense.
const BAD_GRAPHS: &[Case] = &[
    Case {
        file: "forum_hasModerator_person_0_0.csv",
        from: "11|2\n",
        to: "",
        blamed: ("forum_0_0.csv", 3),
        reason: "forum 11 has no moderator",
    },
    Case {
        file: "post_hasCreator_person_0_0.csv",
        from: "102|3\n",
        to: "",
        blamed: ("post_0_0.csv", 4),
        reason: "post 102 has no creator",
    },
    Case {
        file: "forum_containerOf_post_0_0.csv",
        from: "10|102\n",
        to: "",
        blamed: ("post_0_0.csv", 4),
        reason: "post 102 has no forum",
    },
    Case {
        file: "comment_replyOf_comment_0_0.csv",
        from: "201|200\n",
        to: "",
        blamed: ("comment_0_0.csv", 4),
        reason: "comment 201 has no message that it replies to",
    },
    Case {
        file: "person_knows_person_0_0.csv",
        from: "5|1|7000",
        to: "5|5|7000",
        blamed: ("person_knows_person_0_0.csv", 4),
        reason: "person 5 cannot be their own friend",
    },
    Case {
        file: "comment_replyOf_comment_0_0.csv",
        from: "201|200",
        to: "201|202",
        blamed: ("comment_replyOf_comment_0_0.csv", 2),
        reason: "comment 201 is not newer than message 202, to which it replies",
    },
    Case {
        file: "comment_replyOf_comment_0_0.csv",
        from: "201|200",
        to: "201|201",
        blamed: ("comment_replyOf_comment_0_0.csv", 2),
        reason: "comment 201 is not newer than message 201, to which it replies",
    },
];

fn assert_refused(cases: &[Case]) {
    for Case { file, from, to, blamed, reason } in cases {
        let error = error_of(file, from, to);
        let name = error.path.file_name().unwrap().to_str().unwrap();
        assert_eq!((name, error.line), (blamed.0, Some(blamed.1)), "{error}");
        assert_eq!(error.reason.to_string(), *reason);
    }
}

#[test]
fn a_line_that_is_malformed_is_refused_with_file_line_and_reason() {
    assert_refused(BAD_LINES);
}

#[test]
fn an_id_that_names_nothing_is_refused_with_file_line_and_reason() {
    assert_refused(UNKNOWN_IDS);
}

#[test]
fn what_is_there_twice_is_refused_with_file_line_and_reason() {
    assert_refused(DUPLICATES);
}

#[test]
fn what_lacks_an_edge_or_contradicts_itself_is_refused_with_file_line_and_reason() {
    assert_refused(BAD_GRAPHS);
}

#[test]
fn a_post_and_a_comment_of_one_id_are_refused() {
    let dir = damaged("comment_0_0.csv", "205|16000", "103|16000");
    for file in ["comment_hasCreator_person_0_0.csv", "comment_replyOf_post_0_0.csv"] {
        let path = dir.path().join(file);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("205|", "103|")).unwrap();
    }
    let error = Graph::read(dir.path()).unwrap_err();
    assert_eq!(error.line, Some(7));
    assert_eq!(error.reason.to_string(), "duplicate id: there already is a post 103");
}

#[test]
fn what_the_whole_graph_refuses_one_of_its_shards_refuses_too() {
    let sharding = Sharding::over(NonZeroUsize::new(3).unwrap());
    for Case { file, from, to, reason, .. } in
        [BAD_LINES, UNKNOWN_IDS, DUPLICATES, BAD_GRAPHS].concat()
    {
        let dir = damaged(file, from, to);
        let refused = |part| Shard::read(dir.path(), part).is_err();
        assert!(Part::all(sharding).any(refused), "{file}: {reason}");
    }
}

#[test]
fn a_folder_has_the_fingerprint_of_its_contents() {
    let of = |dir: TempDir| fingerprint(dir.path()).unwrap();
    let fingerprints = [
        of(copied()),
        of(damaged("person_0_0.csv", "|lastName|", "|surname|")),
        of(damaged("comment_0_0.csv", "205|16000", "103|16000")),
    ];
    assert_eq!(fingerprint(&small()).unwrap(), fingerprints[0], "line ends are no matter");
    assert!((1..3).all(|at| !fingerprints[..at].contains(&fingerprints[at])), "{fingerprints:?}");
}

#[test]
fn a_missing_file_is_named() {
    for entry in fs::read_dir(small()).unwrap() {
        let name = entry.unwrap().file_name();
        if name == "expected.jsonl" {
            continue;
        }
        let dir = copied();
        fs::remove_file(dir.path().join(&name)).unwrap();
        let error = Graph::read(dir.path()).unwrap_err();
        assert_eq!(error.path, dir.path().join(name));
        assert!(matches!(error, DataError { line: None, reason: Reason::Io(_), .. }));
    }
}

#[test]
fn a_file_without_even_a_header_is_refused() {
    let dir = copied();
    fs::write(dir.path().join("forum_0_0.csv"), "").unwrap();
    let error = Graph::read(dir.path()).unwrap_err();
    assert!(matches!(error, DataError { line: Some(1), reason: Reason::MissingColumn("id"), .. }));
}

#[test]
fn a_wrong_number_is_shown_in_part_only() {
    let error = error_of("forum_0_0.csv", "11|Album", &format!("{}|Album", "x".repeat(100_000)));
    assert!(error.reason.to_string().len() < 100, "{error}");
}

#[test]
fn columns_are_found_by_name_and_line_ends_do_not_matter() {
    let dir = copied();
    fs::write(
        dir.path().join("forum_0_0.csv"),
        "title|extra|id\r\nWall of Ada Byron||10\r\nAlbum 0 of Bob Müller|x|11",
    )
    .unwrap();
    for entry in fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap().replace("\r\n", "\n");
        fs::write(&path, text.replace('\n', "\r\n")).unwrap();
    }
    assert_eq!(Graph::read(dir.path()).unwrap(), Graph::read(&small()).unwrap());
}

#[test]
fn blanks_and_photos_are_kept_as_the_benchmark_wants_them() {
    let graph = Graph::read(&small()).unwrap();
    let content = |id| graph.whole().message(MessageId(id)).unwrap().message.content.as_str();
    assert_eq!([200, 101, 103, 102].map(content), [" ok ", "photo101.jpg", "photo103.jpg", ""]);
}

#[test]
fn a_graph_is_read_as_it_was_written() {
    for graph in [Graph::read(&small()).unwrap(), generate(Recipe { persons: 60, seed: 3 })] {
        let dir = TempDir::new().unwrap();
        let dir = dir.path().join("made/for/it");
        graph.write_csv(&dir).unwrap();
        assert!(Graph::read(&dir).unwrap() == graph);
    }
}

#[test]
fn a_text_that_the_format_cannot_hold_is_not_written() {
    for text in ["a|b", "a\nb", "a\r"] {
        let dir = TempDir::new().unwrap();
        let mut whole = generate(Recipe { persons: 1, seed: 1 }).whole().clone();
        let mut person: Person = whole.person(PersonId(1)).unwrap().person.clone();
        person.id = PersonId(2);
        person.last_name = text.to_owned();
        whole.insert_city(person.id, PlaceId(1));
        whole.insert_person(person).unwrap();
        let error = Graph::from_whole(whole).write_csv(dir.path()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
        assert!(error.to_string().starts_with("person_0_0.csv"), "{error}");
    }
}
