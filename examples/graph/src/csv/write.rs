//! From a [`Graph`] to the files.
//!
//! The layout has columns that no query reads. They are written too, so that other LDBC readers
//! find them, with what the graph knows: a message's address and browser are its creator's.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::layout;
use super::table::TableFile;
use crate::model::{Message, Parent, Person, PersonId, PlaceId};
use crate::store::{Graph, Shard};

/// Writes the graph to the folder `dir`, making the folder if need be.
///
/// # Errors
///
/// When a file cannot be written, or a text holds what the format cannot: `|` or a line break.
pub fn write(graph: &Graph, dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let graph = graph.whole();
    write_places(graph, dir)?;
    write_persons(graph, dir)?;
    write_friendships(graph, dir)?;
    write_forums(graph, dir)?;
    write_posts(graph, dir)?;
    write_comments(graph, dir)
}

fn write_places(graph: &Shard, dir: &Path) -> io::Result<()> {
    let mut table = Output::create(dir, layout::PLACE.name, "id|name|url|type")?;
    let mut places: Vec<PlaceId> = graph.cities().map(|(_, city)| city).collect();
    places.sort_unstable();
    places.dedup();
    for place in places {
        table.row(&[&place, &format_args!("City {place}"), &"", &"city"])?;
    }
    table.finish()
}

fn write_persons(graph: &Shard, dir: &Path) -> io::Result<()> {
    let header = "id|firstName|lastName|gender|birthday|creationDate|locationIP|browserUsed\
                  |language|email";
    let mut table = Output::create(dir, layout::PERSON.name, header)?;
    let mut located = Output::of(dir, &layout::PERSON_IS_LOCATED_IN_PLACE.table)?;
    for Person {
        id,
        first_name,
        last_name,
        gender,
        birthday,
        creation_date,
        location_ip,
        browser_used,
    } in graph.persons().map(|record| &record.person)
    {
        table.row(&[
            id,
            first_name,
            last_name,
            gender,
            birthday,
            creation_date,
            location_ip,
            browser_used,
            &"en",
            &"",
        ])?;
    }
    for (person, city) in graph.cities() {
        located.row(&[&person, &city])?;
    }
    table.finish()?;
    located.finish()
}

fn write_friendships(graph: &Shard, dir: &Path) -> io::Result<()> {
    let mut table = Output::of(dir, &layout::PERSON_KNOWS_PERSON)?;
    for record in graph.persons() {
        let person = record.person.id;
        // The other direction is at the friend; the layout has each friendship once.
        for (friend, since) in record.knows.range(person..) {
            table.row(&[&person, friend, since])?;
        }
    }
    table.finish()
}

fn write_forums(graph: &Shard, dir: &Path) -> io::Result<()> {
    let mut table = Output::create(dir, layout::FORUM.name, "id|title|creationDate")?;
    let mut moderators = Output::of(dir, &layout::FORUM_HAS_MODERATOR_PERSON.table)?;
    for forum in graph.forums() {
        let opened = person(graph, forum.moderator).creation_date;
        table.row(&[&forum.id, &forum.title, &opened])?;
        moderators.row(&[&forum.id, &forum.moderator])?;
    }
    table.finish()?;
    moderators.finish()
}

fn write_posts(graph: &Shard, dir: &Path) -> io::Result<()> {
    let header = "id|imageFile|creationDate|locationIP|browserUsed|language|content|length";
    let mut table = Output::create(dir, layout::POST.name, header)?;
    let mut creators = Output::of(dir, &layout::POST_HAS_CREATOR_PERSON.table)?;
    let mut forums = Output::of(dir, &layout::FORUM_CONTAINER_OF_POST.table)?;
    for Message { id, creation_date, content, creator, parent } in messages(graph) {
        let Parent::Forum(forum) = parent else { continue };
        let Person { location_ip, browser_used, .. } = person(graph, *creator);
        let length = content.chars().count();
        let cells: [&dyn Display; 8] =
            [id, &"", creation_date, location_ip, browser_used, &"en", content, &length];
        table.row(&cells)?;
        creators.row(&[id, creator])?;
        forums.row(&[forum, id])?;
    }
    table.finish()?;
    creators.finish()?;
    forums.finish()
}

fn write_comments(graph: &Shard, dir: &Path) -> io::Result<()> {
    let header = "id|creationDate|locationIP|browserUsed|content|length";
    let mut table = Output::create(dir, layout::COMMENT.name, header)?;
    let mut creators = Output::of(dir, &layout::COMMENT_HAS_CREATOR_PERSON.table)?;
    let mut of_posts = Output::of(dir, &layout::COMMENT_REPLY_OF_POST.table)?;
    let mut of_comments = Output::of(dir, &layout::COMMENT_REPLY_OF_COMMENT.table)?;
    for Message { id, creation_date, content, creator, parent } in messages(graph) {
        let Parent::Message(parent) = parent else { continue };
        let Person { location_ip, browser_used, .. } = person(graph, *creator);
        let length = content.chars().count();
        table.row(&[id, creation_date, location_ip, browser_used, content, &length])?;
        creators.row(&[id, creator])?;
        let is_post = graph.message(*parent).is_some_and(|record| record.message.forum().is_some());
        let replies = if is_post { &mut of_posts } else { &mut of_comments };
        replies.row(&[id, parent])?;
    }
    table.finish()?;
    creators.finish()?;
    of_posts.finish()?;
    of_comments.finish()
}

fn messages(graph: &Shard) -> impl Iterator<Item = &Message> {
    graph.messages().map(|record| &record.message)
}

fn person(graph: &Shard, id: PersonId) -> &Person {
    &graph.person(id).expect("a whole graph has every person it names").person
}

/// A file being written.
struct Output {
    name: &'static str,
    file: BufWriter<File>,
}

impl Output {
    fn create(dir: &Path, name: &'static str, header: &str) -> io::Result<Self> {
        let mut file = BufWriter::new(File::create(dir.join(name))?);
        writeln!(file, "{header}")?;
        Ok(Self { name, file })
    }

    /// A file of no more columns than are read.
    fn of<const N: usize>(dir: &Path, file: &TableFile<N>) -> io::Result<Self> {
        Self::create(dir, file.name, &file.columns.join("|"))
    }

    fn row(&mut self, cells: &[&dyn Display]) -> io::Result<()> {
        let cells: Vec<String> = cells.iter().map(ToString::to_string).collect();
        if let Some(cell) = cells.iter().find(|cell| cell.contains(['|', '\n', '\r'])) {
            let message = format!("{}: the format cannot hold {cell:?}", self.name);
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        writeln!(self.file, "{}", cells.join("|"))
    }

    fn finish(mut self) -> io::Result<()> {
        self.file.flush()
    }
}
