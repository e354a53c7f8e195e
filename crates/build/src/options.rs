//! Options of `convoke/options.proto`, as the files set them, checked.

mod method;

use std::collections::BTreeMap;

use prost_reflect::{DynamicMessage, ExtensionDescriptor, ServiceDescriptor, Value};

use crate::compile::Compiled;
use crate::error::Error;

pub(crate) use method::MethodOptions;

/// Options of all services, by full name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    services: BTreeMap<String, ServiceOptions>,
    methods: BTreeMap<String, MethodOptions>,
}

/// Options of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceOptions {
    /// Its methods are ordered among each other.
    pub(crate) is_ordered: bool,
}

impl Options {
    /// Reads those of all services.
    pub(crate) fn read(compiled: &Compiled) -> Result<Self, Error> {
        let mut options = Self::default();
        for service in compiled.pool().services() {
            let of_service = read_service(&service).map_err(|what| {
                compiled.misuse(&service.parent_file(), service.path(), service.full_name(), what)
            })?;
            options.services.insert(service.full_name().to_owned(), of_service);
            for method in service.methods() {
                let name = format!("{}/{}", service.full_name(), method.name());
                let of_method = method::read(&method, of_service).map_err(|what| {
                    compiled.misuse(&service.parent_file(), method.path(), &name, what)
                })?;
                options.methods.insert(name, of_method);
            }
        }
        Ok(options)
    }

    /// Of the service `package.Service`.
    pub(crate) fn service(&self, name: &str) -> ServiceOptions {
        self.services.get(name).copied().unwrap_or_default()
    }

    /// Of the method `package.Service/Method`.
    pub(crate) fn method(&self, name: &str) -> MethodOptions {
        self.methods.get(name).copied().unwrap_or_default()
    }
}

fn read_service(service: &ServiceDescriptor) -> Result<ServiceOptions, String> {
    let mut options = ServiceOptions::default();
    for (name, value) in ours(&service.options()) {
        match (name.as_str(), value) {
            ("convoke.ordered_service", Value::Bool(value)) => options.is_ordered = value,
            _ => return Err(unknown(&name)),
        }
    }
    Ok(options)
}

/// The options of package `convoke`.
fn ours(options: &DynamicMessage) -> Vec<(String, Value)> {
    let is_ours = |extension: &ExtensionDescriptor| extension.package_name() == "convoke";
    let set = options.extensions().filter(|(extension, _)| is_ours(extension));
    set.map(|(extension, value)| (extension.full_name().to_owned(), value.clone())).collect()
}

fn unknown(name: &str) -> String {
    format!("this version does not know the option `{name}`: see convoke/options.proto")
}
