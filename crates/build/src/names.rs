//! Names that protobuf allows and Rust does not: those of underscores alone, which a change of case
//! drops, and those of one place that the change makes equal.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};

use heck::{ToSnakeCase, ToUpperCamelCase};
use prost_reflect::{
    EnumDescriptor, FieldDescriptor, FileDescriptor, MessageDescriptor, ServiceDescriptor,
};

use crate::compile::Compiled;
use crate::error::Error;

/// Refuses the first such name.
///
/// # Errors
/// [`Error::Options`], which says where it is.
pub(crate) fn check(compiled: &Compiled) -> Result<(), Error> {
    let pool = compiled.pool();
    for file in pool.files() {
        let names = Names { compiled, file: &file };
        names.of_package()?;
        file.services().try_for_each(|service| names.of_service(&service))?;
    }
    for message in pool.all_messages() {
        Names { compiled, file: &message.parent_file() }.of_message(&message)?;
    }
    for kind in pool.all_enums() {
        Names { compiled, file: &kind.parent_file() }.of_enum(&kind)?;
    }
    Ok(())
}

/// Refuses the first enum of which two values differ in its own name alone, which prost leaves out
/// of variants unless it is told to keep it.
///
/// # Errors
/// [`Error::Options`], which says where it is.
pub(crate) fn check_without_prefix(compiled: &Compiled) -> Result<(), Error> {
    compiled.pool().all_enums().try_for_each(|kind| {
        let prefix = kind.name().to_upper_camel_case();
        let names = Names { compiled, file: &kind.parent_file() };
        names.variants(&kind, |value| without(&prefix, value))
    })
}

/// The names in a file.
struct Names<'a> {
    compiled: &'a Compiled,
    file: &'a FileDescriptor,
}

impl Names<'_> {
    fn of_package(&self) -> Result<(), Error> {
        let package = self.file.package_name();
        let mut parts = package.split('.').filter(|part| !part.is_empty());
        parts.try_for_each(|part| self.check(&PACKAGE, package, part))
    }

    fn of_service(&self, service: &ServiceDescriptor) -> Result<(), Error> {
        self.check(service.path(), service.full_name(), service.name())?;
        service.methods().try_for_each(|method| {
            let full_name = format!("{}/{}", service.full_name(), method.name());
            self.check(method.path(), &full_name, method.name())
        })
    }

    fn of_message(&self, message: &MessageDescriptor) -> Result<(), Error> {
        self.check(message.path(), message.full_name(), message.name())?;
        message.fields().try_for_each(|it| self.check(it.path(), it.full_name(), it.name()))?;
        message.oneofs().try_for_each(|it| self.check(it.path(), it.full_name(), it.name()))?;
        self.fields(message)
    }

    /// Refuses two fields, or two choices of a oneof, that would have one name.
    fn fields(&self, message: &MessageDescriptor) -> Result<(), Error> {
        let choices = || message.oneofs().filter(|oneof| !oneof.is_synthetic());
        let mut names = Taken::default();
        let mut take = |name: &str, path: &[i32], full_name: &str| {
            let taken = names.take(name.to_snake_case(), name, "the field");
            taken.map_err(|what| self.misuse(path, full_name, what))
        };
        let is_alone = |field: &FieldDescriptor| {
            field.containing_oneof().is_none_or(|oneof| oneof.is_synthetic())
        };
        for field in message.fields().filter(is_alone) {
            take(field.name(), field.path(), field.full_name())?;
        }
        choices().try_for_each(|it| take(it.name(), it.path(), it.full_name()))?;
        choices().try_for_each(|oneof| {
            let mut variants = Taken::default();
            oneof.fields().try_for_each(|field| {
                let name = field.name();
                let taken = variants.take(name.to_upper_camel_case(), name, "the variant");
                taken.map_err(|what| self.misuse(field.path(), field.full_name(), what))
            })
        })
    }

    fn of_enum(&self, kind: &EnumDescriptor) -> Result<(), Error> {
        self.check(kind.path(), kind.full_name(), kind.name())?;
        kind.values().try_for_each(|it| self.check(it.path(), it.full_name(), it.name()))?;
        self.variants(kind, str::to_upper_camel_case)
    }

    /// Refuses two values of an enum whose variants would have one name.
    fn variants(
        &self,
        kind: &EnumDescriptor,
        variant: impl Fn(&str) -> String,
    ) -> Result<(), Error> {
        let (mut variants, mut numbers) = (Taken::default(), BTreeSet::new());
        // Of several values with one number the first has the variant.
        for value in kind.values().filter(|value| numbers.insert(value.number())) {
            let name = value.name();
            variants
                .take(variant(name), name, "the variant")
                .map_err(|what| self.misuse(value.path(), value.full_name(), what))?;
        }
        Ok(())
    }

    fn check(&self, path: &[i32], full_name: &str, name: &str) -> Result<(), Error> {
        if name.contains(|letter| letter != '_') {
            return Ok(());
        }
        let what = format!(
            "`{name}` has no letter, of which a name in Rust could be made: rename it in the \
             .proto file"
        );
        Err(self.misuse(path, full_name, what))
    }

    fn misuse(&self, path: &[i32], full_name: &str, what: String) -> Error {
        self.compiled.misuse(self.file, path, full_name, what)
    }
}

/// Names in Rust that are taken in one place, each with that in the file.
#[derive(Default)]
struct Taken(BTreeMap<String, String>);

impl Taken {
    /// Takes `rust` for `name`, or says of whom it is.
    fn take(&mut self, rust: String, name: &str, what: &str) -> Result<(), String> {
        match self.0.entry(rust) {
            Entry::Vacant(free) => drop(free.insert(name.to_owned())),
            Entry::Occupied(taken) => {
                return Err(format!(
                    "`{name}` and `{}` would both be {what} `{}` in Rust: rename one in the \
                     .proto file",
                    taken.get(),
                    taken.key(),
                ));
            }
        }
        Ok(())
    }
}

/// The variant that prost makes of an enum's value, without the name of the enum before it.
fn without(prefix: &str, value: &str) -> String {
    let name = value.to_upper_camel_case();
    let short = name.strip_prefix(prefix).filter(|rest| rest.starts_with(char::is_uppercase));
    short.unwrap_or(&name).to_owned()
}

/// Path of the package in the descriptor of a file.
const PACKAGE: [i32; 1] = [2];
