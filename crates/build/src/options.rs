//! What the files ask for: the options of `convoke/options.proto`, checked.

use std::collections::BTreeMap;

use prost_reflect::{
    DynamicMessage, ExtensionDescriptor, FileDescriptor, MethodDescriptor, ServiceDescriptor, Value,
};

use crate::compile::Compiled;
use crate::error::Error;

/// What all services ask for, by full name.
#[derive(Debug, Default)]
pub(crate) struct Options {
    services: BTreeMap<String, ServiceOptions>,
    methods: BTreeMap<String, MethodOptions>,
}

/// What a service asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceOptions {
    /// Its methods are ordered among each other.
    pub(crate) is_ordered: bool,
}

/// What a method asks for, its service's wishes included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MethodOptions {
    /// The handler holds a task.
    pub(crate) is_tree: bool,
    /// Handlers run one at a time for each peer.
    pub(crate) is_ordered: bool,
    /// It changes nothing.
    pub(crate) is_read_only: bool,
}

impl Options {
    /// Reads those of all services.
    pub(crate) fn read(compiled: &Compiled) -> Result<Self, Error> {
        let mut options = Self::default();
        for service in compiled.pool().services() {
            let of_service = read_service(&service).map_err(|what| {
                misuse(compiled, &service.parent_file(), service.path(), service.full_name(), what)
            })?;
            options.services.insert(service.full_name().to_owned(), of_service);
            for method in service.methods() {
                let name = format!("{}/{}", service.full_name(), method.name());
                let of_method = read_method(&method, of_service).map_err(|what| {
                    misuse(compiled, &service.parent_file(), method.path(), &name, what)
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
            ("convoke.ordered_service", Some(value)) => options.is_ordered = value,
            _ => return Err(unknown(&name)),
        }
    }
    Ok(options)
}

fn read_method(method: &MethodDescriptor, of: ServiceOptions) -> Result<MethodOptions, String> {
    let (mut tree, mut ordered, mut read_only) = (None, None, None);
    for (name, value) in ours(&method.options()) {
        match (name.as_str(), value) {
            ("convoke.tree", Some(value)) => tree = Some(value),
            ("convoke.ordered", Some(value)) => ordered = Some(value),
            ("convoke.read_only", Some(value)) => read_only = Some(value),
            _ => return Err(unknown(&name)),
        }
    }
    let streams = method.is_server_streaming();
    let contradiction = if method.is_client_streaming() {
        Some("a stream of requests is not supported: take one message, or open a call for each")
    } else if streams && tree == Some(false) {
        Some("`returns (stream ..)` implies `tree`, which the option denies: remove one of them")
    } else if of.is_ordered && ordered == Some(false) {
        Some("`ordered_service` orders all methods, and the option denies it: remove one of them")
    } else {
        None
    };
    match contradiction {
        Some(contradiction) => Err(contradiction.to_owned()),
        None => Ok(MethodOptions {
            is_tree: streams || tree == Some(true),
            is_ordered: of.is_ordered || ordered == Some(true),
            is_read_only: read_only == Some(true),
        }),
    }
}

/// The options of package `convoke`, with their values where they are true or false.
fn ours(options: &DynamicMessage) -> Vec<(String, Option<bool>)> {
    let is_ours = |extension: &ExtensionDescriptor| extension.package_name() == "convoke";
    let set = options.extensions().filter(|(extension, _)| is_ours(extension));
    set.map(|(extension, value)| (extension.full_name().to_owned(), Value::as_bool(value)))
        .collect()
}

fn unknown(name: &str) -> String {
    format!("this version does not know the option `{name}`: see convoke/options.proto")
}

/// The error that `what` is wrong at the descriptor with this path in its file.
fn misuse(
    compiled: &Compiled,
    file: &FileDescriptor,
    path: &[i32],
    subject: &str,
    what: String,
) -> Error {
    let source = compiled.source(file.name()).display().to_string();
    let info = file.file_descriptor_proto().source_code_info.as_ref();
    let location = info.and_then(|info| info.location.iter().find(|place| place.path == path));
    let place = match location.map(|location| location.span.as_slice()) {
        Some([line, column, ..]) => format!("{source}:{}:{}", line + 1, column + 1),
        _ => source,
    };
    Error::Options { place, subject: subject.to_owned(), message: what }
}
