//! Names that protobuf allows and Rust does not: those of underscores alone, which a change of case
//! drops, and those of one place that the change makes equal.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};

use heck::{ToSnakeCase, ToUpperCamelCase};
use prost_build::Module;
use prost_reflect::{
    EnumDescriptor, FieldDescriptor, FileDescriptor, MessageDescriptor, MethodDescriptor,
    OneofDescriptor, ServiceDescriptor,
};

use crate::compile::Compiled;
use crate::error::Error;
use crate::options::Options;

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

/// Refuses the second of two types or modules that would have one name in one place. That is to be
/// asked where a clash is known: a type that is taken from elsewhere has no name here.
///
/// # Errors
/// [`Error::Options`], which says where it is.
pub(crate) fn check_items(compiled: &Compiled, options: &Options) -> Result<(), Error> {
    let pool = compiled.pool();
    let mut items = Items::default();
    pool.files().for_each(|file| items.take_packages(file.package_name()));
    for message in pool.all_messages().filter(|message| !message.is_map_entry()) {
        let names = Names { compiled, file: &message.parent_file() };
        names.place(items.of_message(&message), message.path(), message.full_name())?;
        for oneof in message.oneofs().filter(|oneof| !oneof.is_synthetic()) {
            names.place(items.of_oneof(&oneof), oneof.path(), oneof.full_name())?;
        }
    }
    for kind in pool.all_enums() {
        let names = Names { compiled, file: &kind.parent_file() };
        names.place(items.of_type(kind.full_name(), kind.name()), kind.path(), kind.full_name())?;
    }
    for service in pool.services() {
        let names = Names { compiled, file: &service.parent_file() };
        let taken = items.of_service(&service, options);
        names.place(taken, service.path(), service.full_name())?;
    }
    Ok(())
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
        let mut methods = Taken::default();
        service.methods().try_for_each(|method| {
            let (full_name, name) = (full_name(&method), method.name());
            self.check(method.path(), &full_name, name)?;
            let taken = methods.take(name.to_snake_case(), name, "the method");
            self.place(taken, method.path(), &full_name)
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
            self.place(taken, path, full_name)
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
                self.place(taken, field.path(), field.full_name())
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
            let taken = variants.take(variant(name), name, "the variant");
            self.place(taken, value.path(), value.full_name())?;
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
        self.place(Err(what), path, full_name)
    }

    /// Says of a defect where it is.
    fn place(&self, found: Result<(), String>, path: &[i32], full_name: &str) -> Result<(), Error> {
        found.map_err(|what| self.compiled.misuse(self.file, path, full_name, what))
    }
}

/// Types and modules, by the module of Rust that they are in.
#[derive(Default)]
struct Items(BTreeMap<String, Taken>);

impl Items {
    /// Takes the modules of a package, which may have several files and others below it.
    fn take_packages(&mut self, package: &str) {
        for (end, _) in package.match_indices('.').chain([(package.len(), "")]) {
            let package = &package[..end];
            let name = package.rsplit('.').next().unwrap_or(package);
            // That another file has taken it is no clash.
            let _ = self.place_of(package).take(name.to_snake_case(), package, MODULE);
        }
    }

    fn of_message(&mut self, message: &MessageDescriptor) -> Result<(), String> {
        let (full_name, name) = (message.full_name(), message.name());
        self.of_type(full_name, name)?;
        let has_module = message.child_messages().any(|inner| !inner.is_map_entry())
            || message.child_enums().len() > 0
            || message.oneofs().any(|oneof| !oneof.is_synthetic());
        match has_module {
            true => self.place_of(full_name).take(name.to_snake_case(), name, MODULE),
            false => Ok(()),
        }
    }

    fn of_type(&mut self, full_name: &str, name: &str) -> Result<(), String> {
        self.place_of(full_name).take(name.to_upper_camel_case(), name, TYPE)
    }

    /// Takes a name beside those of the types in its message, from which prost tells it apart.
    fn of_oneof(&mut self, oneof: &OneofDescriptor) -> Result<(), String> {
        let (message, name) = (oneof.parent_message(), oneof.name().to_upper_camel_case());
        let is_same = |other: &str| other.to_upper_camel_case() == name;
        let is_taken = message.child_messages().any(|inner| is_same(inner.name()))
            || message.child_enums().any(|kind| is_same(kind.name()));
        let end = if is_taken { "OneOf" } else { "" };
        self.place_of(oneof.full_name()).take(format!("{name}{end}"), oneof.name(), TYPE)
    }

    fn of_service(&mut self, service: &ServiceDescriptor, options: &Options) -> Result<(), String> {
        let (place, name) = (self.place_of(service.full_name()), service.name());
        let rust = name.to_upper_camel_case();
        let has_members =
            service.methods().any(|method| options.method(&full_name(&method)).has_members());
        for end in ["", "Server", "Client"].into_iter().chain(has_members.then_some("Members")) {
            place.take(format!("{rust}{end}"), name, TYPE)?;
        }
        place.take(name.to_snake_case(), name, MODULE)
    }

    /// Names in the module of what has this full name.
    fn place_of(&mut self, full_name: &str) -> &mut Taken {
        let outer = full_name.rsplit_once('.').map_or("", |(outer, _)| outer);
        self.0.entry(Module::from_protobuf_package_name(outer).to_string()).or_default()
    }
}

const TYPE: &str = "the type";
const MODULE: &str = "the module";

/// `package.Service/Method`.
fn full_name(method: &MethodDescriptor) -> String {
    format!("{}/{}", method.parent_service().full_name(), method.name())
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
