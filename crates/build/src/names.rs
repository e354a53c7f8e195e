//! Names that protobuf allows and of which none can be made in Rust: those of underscores alone,
//! which a change of case drops.

use prost_reflect::{EnumDescriptor, FileDescriptor, MessageDescriptor, ServiceDescriptor};

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
        message.oneofs().try_for_each(|it| self.check(it.path(), it.full_name(), it.name()))
    }

    fn of_enum(&self, kind: &EnumDescriptor) -> Result<(), Error> {
        self.check(kind.path(), kind.full_name(), kind.name())?;
        kind.values().try_for_each(|it| self.check(it.path(), it.full_name(), it.name()))
    }

    fn check(&self, path: &[i32], full_name: &str, name: &str) -> Result<(), Error> {
        if name.contains(|letter| letter != '_') {
            return Ok(());
        }
        let what = format!(
            "`{name}` has no letter, of which a name in Rust could be made: rename it in the \
             .proto file"
        );
        Err(self.compiled.misuse(self.file, path, full_name, what))
    }
}

/// Path of the package in the descriptor of a file.
const PACKAGE: [i32; 1] = [2];
