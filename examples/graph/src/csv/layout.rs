//! The names of the files and of the columns that are read.

use super::links::LinkFile;
use super::table::TableFile;
use crate::model::Entity;

pub(super) const PERSON: TableFile<8> = TableFile {
    name: "person_0_0.csv",
    columns: [
        "id",
        "firstName",
        "lastName",
        "gender",
        "birthday",
        "creationDate",
        "locationIP",
        "browserUsed",
    ],
};

pub(super) const PLACE: TableFile<2> = TableFile { name: "place_0_0.csv", columns: ["id", "type"] };

pub(super) const FORUM: TableFile<2> =
    TableFile { name: "forum_0_0.csv", columns: ["id", "title"] };

pub(super) const POST: TableFile<4> =
    TableFile { name: "post_0_0.csv", columns: ["id", "imageFile", "creationDate", "content"] };

pub(super) const COMMENT: TableFile<3> =
    TableFile { name: "comment_0_0.csv", columns: ["id", "creationDate", "content"] };

/// Two of its columns have one name, so they are known by their order.
pub(super) const PERSON_KNOWS_PERSON: TableFile<3> = TableFile {
    name: "person_knows_person_0_0.csv",
    columns: ["Person.id", "Person.id", "creationDate"],
};

pub(super) const PERSON_IS_LOCATED_IN_PLACE: LinkFile = LinkFile {
    table: TableFile {
        name: "person_isLocatedIn_place_0_0.csv",
        columns: ["Person.id", "Place.id"],
    },
    source: Entity::Person,
    source_column: 0,
};

pub(super) const FORUM_HAS_MODERATOR_PERSON: LinkFile = LinkFile {
    table: TableFile {
        name: "forum_hasModerator_person_0_0.csv",
        columns: ["Forum.id", "Person.id"],
    },
    source: Entity::Forum,
    source_column: 0,
};

/// Written from the forum's side, but it is the post that has exactly one forum.
pub(super) const FORUM_CONTAINER_OF_POST: LinkFile = LinkFile {
    table: TableFile { name: "forum_containerOf_post_0_0.csv", columns: ["Forum.id", "Post.id"] },
    source: Entity::Post,
    source_column: 1,
};

pub(super) const POST_HAS_CREATOR_PERSON: LinkFile = LinkFile {
    table: TableFile { name: "post_hasCreator_person_0_0.csv", columns: ["Post.id", "Person.id"] },
    source: Entity::Post,
    source_column: 0,
};

pub(super) const COMMENT_HAS_CREATOR_PERSON: LinkFile = LinkFile {
    table: TableFile {
        name: "comment_hasCreator_person_0_0.csv",
        columns: ["Comment.id", "Person.id"],
    },
    source: Entity::Comment,
    source_column: 0,
};

pub(super) const COMMENT_REPLY_OF_POST: LinkFile = LinkFile {
    table: TableFile { name: "comment_replyOf_post_0_0.csv", columns: ["Comment.id", "Post.id"] },
    source: Entity::Comment,
    source_column: 0,
};

pub(super) const COMMENT_REPLY_OF_COMMENT: LinkFile = LinkFile {
    table: TableFile {
        name: "comment_replyOf_comment_0_0.csv",
        columns: ["Comment.id", "Comment.id"],
    },
    source: Entity::Comment,
    source_column: 0,
};

/// The names of all of them.
pub(super) const NAMES: [&str; 13] = [
    PERSON.name,
    PLACE.name,
    FORUM.name,
    POST.name,
    COMMENT.name,
    PERSON_KNOWS_PERSON.name,
    PERSON_IS_LOCATED_IN_PLACE.table.name,
    FORUM_HAS_MODERATOR_PERSON.table.name,
    FORUM_CONTAINER_OF_POST.table.name,
    POST_HAS_CREATOR_PERSON.table.name,
    COMMENT_HAS_CREATOR_PERSON.table.name,
    COMMENT_REPLY_OF_POST.table.name,
    COMMENT_REPLY_OF_COMMENT.table.name,
];
