//! Names of generated persons, and their words.

pub(super) const FIRST_NAMES: [&str; 28] = [
    "Amina", "André", "Bjørn", "Carla", "Chen", "Dmitri", "Elif", "Fatou", "Giulia", "Hana",
    "Ingrid", "Jack", "Jun", "Kofi", "Lucía", "Mei", "Mohamed", "Nadia", "Olga", "Pedro", "Priya",
    "Rahul", "Samira", "Tomás", "Uwe", "Wanjiru", "Yusuf", "Zoë",
];

pub(super) const LAST_NAMES: [&str; 28] = [
    "Abebe",
    "Andersson",
    "Bianchi",
    "Costa",
    "Da Silva",
    "Demir",
    "Diallo",
    "Fernández",
    "Gupta",
    "Haddad",
    "Ivanov",
    "Jensen",
    "Kim",
    "Kowalski",
    "Li",
    "Mensah",
    "Müller",
    "Nakamura",
    "Nguyen",
    "O'Brien",
    "Okafor",
    "Petrov",
    "Rossi",
    "Sharma",
    "Smith",
    "Sørensen",
    "Wang",
    "Yılmaz",
];

/// The first ones are the most used.
pub(super) const BROWSERS: [&str; 5] =
    ["Firefox", "Chrome", "Internet Explorer", "Safari", "Opera"];

pub(super) const TOPICS: [&str; 16] = [
    "chess",
    "jazz",
    "mountain huts",
    "old maps",
    "tea",
    "railways",
    "comets",
    "sourdough",
    "lighthouses",
    "the Silk Road",
    "tango",
    "beetles",
    "kites",
    "bridges",
    "opera",
    "volcanoes",
];

pub(super) const OPINIONS: [&str; 10] = [
    "nobody told me that it could be like this.",
    "I have read three books about it and know less than before.",
    "it is all a matter of patience, as my grandmother used to say.",
    "who wants to come along on Saturday?",
    "here is what I learned in ten years of doing it every week.",
    "is there a good introduction for a friend of mine?",
    "the museum has opened a new room for it.",
    "I still think that the old way was better.",
    "it began much earlier than people believe.",
    "half of what is written about it is wrong.",
];

pub(super) const SHORT_REPLIES: [&str; 10] =
    ["yes", "no", "thanks", "great", "I see", "right", "maybe", "no way!", "good", "LOL"];
