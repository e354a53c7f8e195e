//! TOML to the types of a program, strictly: an unknown key is an error, wherever it stands.
//!
//! Serde's own errors have neither the line of a key nor the one that was meant, and whether a type
//! takes keys that it does not know is left to each. So this is a deserializer of its own over the
//! parsed text: it knows the place of every value, and compares the keys of a table with the fields
//! of the type before the type sees them. Only a type with `#[serde(flatten)]` does not say what
//! its fields are.

use std::fmt;
use std::ops::Range;

use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess,
    SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use toml::Spanned;
use toml::de::{DeArray, DeString, DeTable, DeValue};

/// Similarity from which on a known word is taken for the one that was meant; 1 is the same word.
const LIKENESS_MIN: f64 = 0.6;

/// The defect of a text, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Defect {
    span: Option<Range<usize>>,
    /// Keys that lead there, the outermost last.
    path: Vec<String>,
    what: String,
}

impl Defect {
    /// Its line, from 1 on.
    pub(super) fn line(&self, text: &str) -> Option<usize> {
        self.span.as_ref().map(|span| line_of(text, span.start))
    }

    /// Place and defect in words.
    pub(super) fn words(&self) -> String {
        let keys = self.path.iter().rev();
        let path =
            keys.fold(String::new(), |path, key| match path.is_empty() || key.starts_with('[') {
                true => path + key,
                false => path + "." + key,
            });
        if path.is_empty() { self.what.clone() } else { format!("{path}: {}", self.what) }
    }

    fn new(what: String) -> Self {
        Self { span: None, path: Vec::new(), what }
    }

    /// The innermost place is the one that is told.
    fn at(mut self, span: Range<usize>) -> Self {
        self.span.get_or_insert(span);
        self
    }

    fn below(mut self, key: impl Into<String>) -> Self {
        self.path.push(key.into());
        self
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words())
    }
}

impl std::error::Error for Defect {}

impl de::Error for Defect {
    fn custom<T: fmt::Display>(what: T) -> Self {
        Self::new(what.to_string())
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::new(unknown("key", field, expected))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::new(unknown("word", variant, expected))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(format!("the key {field:?} is missing"))
    }
}

/// The line of a byte, from 1 on.
pub(super) fn line_of(text: &str, byte: usize) -> usize {
    text.bytes().take(byte).filter(|byte| *byte == b'\n').count() + 1
}

/// Words for something unknown, with the known one that is most like it, or else all of them.
pub(super) fn unknown(what: &str, found: &str, known: &[&str]) -> String {
    let likeness = |known: &str| strsim::normalized_damerau_levenshtein(found, known);
    let nearest = known.iter().map(|known| (likeness(known), known));
    let nearest = nearest.max_by(|one, other| one.0.total_cmp(&other.0));
    match nearest {
        Some((likeness, nearest)) if likeness >= LIKENESS_MIN => {
            format!("unknown {what} {found:?}: did you mean {nearest:?}?")
        }
        Some(_) => format!("unknown {what} {found:?}: known are {}", known.join(", ")),
        None => format!("unknown {what} {found:?}: none is known here"),
    }
}

/// Reads a text as this type.
pub(super) fn read<T: DeserializeOwned>(text: &str) -> Result<T, Defect> {
    let table = parse(text)?;
    T::deserialize(Table { span: table.span(), table: table.get_ref() })
}

/// Lines at which the tables of an array of tables begin.
pub(super) fn lines_of(text: &str, array: &str) -> Vec<usize> {
    let Ok(table) = parse(text) else { return Vec::new() };
    let array = table.get_ref().get(array).and_then(|value| value.get_ref().as_array());
    let spans = array.into_iter().flat_map(|array| array.iter().map(Spanned::span));
    spans.map(|span| line_of(text, span.start)).collect()
}

fn parse(text: &str) -> Result<Spanned<DeTable<'_>>, Defect> {
    DeTable::parse(text).map_err(|error| Defect {
        span: error.span(),
        path: Vec::new(),
        what: error.message().to_owned(),
    })
}

/// A value at its place.
struct Value<'t>(&'t Spanned<DeValue<'t>>);

/// A table at its place.
struct Table<'t> {
    span: Range<usize>,
    table: &'t DeTable<'t>,
}

impl<'t> Value<'t> {
    fn table(&self) -> Option<Table<'t>> {
        let table = self.0.get_ref().as_table()?;
        Some(Table { span: self.0.span(), table })
    }

    fn visit<'de, V: Visitor<'de>>(&self, visitor: V) -> Result<V::Value, Defect> {
        match self.0.get_ref() {
            DeValue::String(text) => visitor.visit_str(text),
            DeValue::Integer(number) => {
                let parsed = i64::from_str_radix(number.as_str(), number.radix());
                visitor.visit_i64(parsed.map_err(|_| Defect::custom("the number is too large"))?)
            }
            DeValue::Float(number) => {
                let parsed = number.as_str().parse();
                visitor.visit_f64(parsed.map_err(|_| Defect::custom("this is not a number"))?)
            }
            DeValue::Boolean(yes) => visitor.visit_bool(*yes),
            DeValue::Datetime(time) => visitor.visit_string(time.to_string()),
            DeValue::Array(array) => visitor.visit_seq(Items { array, next: 0 }),
            DeValue::Table(table) => Table { span: self.0.span(), table }.deserialize_any(visitor),
        }
    }
}

impl<'de> Deserializer<'de> for Value<'_> {
    type Error = Defect;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Defect> {
        self.visit(visitor).map_err(|defect| defect.at(self.0.span()))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Defect> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Defect> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Defect> {
        match self.table() {
            Some(table) => table.deserialize_struct(name, fields, visitor),
            None => {
                let what = format!("expected a table, found {}", self.0.get_ref().type_str());
                Err(Defect::new(what).at(self.0.span()))
            }
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Defect> {
        let result = match (self.0.get_ref().as_str(), self.table()) {
            (Some(word), _) => {
                let word: StrDeserializer<'_, Defect> = word.into_deserializer();
                visitor.visit_enum(word)
            }
            (_, Some(table)) => visitor.visit_enum(MapAccessDeserializer::new(table.entries())),
            (None, None) => Err(Defect::custom("expected a word")),
        };
        result.map_err(|defect| defect.at(self.0.span()))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

impl<'t> Table<'t> {
    fn entries(&self) -> Entries<'t> {
        Entries { entries: self.table.iter(), value: None }
    }
}

impl<'de> Deserializer<'de> for Table<'_> {
    type Error = Defect;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Defect> {
        visitor.visit_map(self.entries()).map_err(|defect| defect.at(self.span))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Defect> {
        let is_unknown = |key: &&Spanned<DeString<'_>>| !fields.contains(&key.get_ref().as_ref());
        // The first of the text, not of the alphabet.
        let unknown = self.table.keys().filter(is_unknown).min_by_key(|key| key.span().start);
        match unknown {
            Some(key) => Err(Defect::unknown_field(key.get_ref(), fields).at(key.span())),
            None => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

struct Items<'t> {
    array: &'t DeArray<'t>,
    next: usize,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Defect;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Defect> {
        let Some(item) = self.array.get(self.next) else { return Ok(None) };
        self.next += 1;
        let value = seed.deserialize(Value(item));
        let place = format!("[{}]", self.next);
        value.map(Some).map_err(|defect| defect.at(item.span()).below(place))
    }
}

struct Entries<'t> {
    entries: toml::map::Iter<'t, Spanned<DeString<'t>>, Spanned<DeValue<'t>>>,
    /// The one whose key was taken.
    value: Option<(&'t str, &'t Spanned<DeValue<'t>>)>,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Defect;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Defect> {
        let Some((key, value)) = self.entries.next() else { return Ok(None) };
        let text: &str = key.get_ref();
        self.value = Some((text, value));
        let text: StrDeserializer<'_, Defect> = text.into_deserializer();
        seed.deserialize(text).map(Some).map_err(|defect| defect.at(key.span()))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Defect> {
        let (key, value) = self.value.take().expect("a key is asked for first");
        let read = seed.deserialize(Value(value));
        // Here once more: a type may find its value wrong after it was read.
        read.map_err(|defect| defect.at(value.span()).below(key))
    }
}
