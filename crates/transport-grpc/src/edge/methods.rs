//! The methods of a descriptor set.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use prost::Message;
use prost_types::{FileDescriptorSet, MethodDescriptorProto};

/// Methods by `package.Service/Method`.
#[derive(Debug, Default)]
pub(super) struct Methods {
    methods: BTreeMap<&'static str, Known>,
    services: Vec<String>,
}

/// A method, as its file describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// `package.Service/Method`.
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    /// The message it answers with, as its file may call it.
    pub(super) answer: &'static str,
}

/// The messages a method takes and gives, as gRPC sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// One message, one message.
    Unary,
    /// One message, several.
    ServerStreaming,
    /// Several messages, one message.
    ClientStreaming,
    /// Several messages, several.
    Streaming,
}

impl Shape {
    pub(super) fn takes_one(self) -> bool {
        matches!(self, Self::Unary | Self::ServerStreaming)
    }
}

impl Methods {
    pub(super) fn of(descriptor_set: &[u8]) -> Result<Self, prost::DecodeError> {
        let mut this = Self::default();
        for file in FileDescriptorSet::decode(descriptor_set)?.file {
            for service in &file.service {
                let service_name = match file.package() {
                    "" => service.name().to_owned(),
                    package => format!("{package}.{}", service.name()),
                };
                for method in &service.method {
                    let known = Known::new(file.package(), &service_name, method);
                    this.methods.insert(known.name, known);
                }
                this.services.push(service_name);
            }
        }
        Ok(this)
    }

    pub(super) fn find(&self, method: &str) -> Option<Known> {
        self.methods.get(method).copied()
    }

    pub(super) fn services(&self) -> &[String] {
        &self.services
    }
}

impl Known {
    fn new(package: &str, service: &str, method: &MethodDescriptorProto) -> Self {
        let answer = method.output_type().trim_start_matches('.');
        let local = answer.strip_prefix(package).and_then(|rest| rest.strip_prefix('.'));
        let shape = match (method.client_streaming(), method.server_streaming()) {
            (true, true) => Shape::Streaming,
            (true, false) => Shape::ClientStreaming,
            (false, true) => Shape::ServerStreaming,
            (false, false) => Shape::Unary,
        };
        let name = lasting(&format!("{service}/{}", method.name()));
        Self { name, shape, answer: lasting(local.unwrap_or(answer)) }
    }
}

/// The same text for as long as the program runs, as spans and metrics keep names. It is kept once,
/// however many edges there are; what is kept comes from the operator, in descriptor sets.
fn lasting(text: &str) -> &'static str {
    static KEPT: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(text) = kept.get(text) {
        return text;
    }
    let text: &'static str = Box::leak(text.into());
    kept.insert(text);
    text
}

#[cfg(test)]
mod tests {
    use prost_types::{FileDescriptorProto, MethodDescriptorProto, ServiceDescriptorProto};

    use super::*;

    fn method(name: &str, client: bool, server: bool) -> MethodDescriptorProto {
        MethodDescriptorProto {
            name: Some(name.into()),
            client_streaming: Some(client),
            server_streaming: Some(server),
            output_type: Some(".shop.v1.Hit".into()),
            ..Default::default()
        }
    }

    fn file(package: Option<&str>, service: &str) -> FileDescriptorProto {
        let method = vec![
            method("One", false, false),
            method("Many", false, true),
            method("In", true, false),
            method("Both", true, true),
        ];
        let name = Some(service.into());
        FileDescriptorProto {
            package: package.map(Into::into),
            service: vec![ServiceDescriptorProto { name, method, ..Default::default() }],
            ..Default::default()
        }
    }

    #[test]
    fn methods_are_found_by_their_full_names() {
        let set =
            FileDescriptorSet { file: vec![file(Some("shop.v1"), "Stock"), file(None, "Bare")] };
        let methods = Methods::of(&set.encode_to_vec()).unwrap();
        assert_eq!(methods.services(), ["shop.v1.Stock", "Bare"]);
        let shape = |name| methods.find(name).map(|known| known.shape);
        assert_eq!(shape("shop.v1.Stock/One"), Some(Shape::Unary));
        assert_eq!(shape("shop.v1.Stock/Many"), Some(Shape::ServerStreaming));
        assert_eq!(shape("Bare/In"), Some(Shape::ClientStreaming));
        assert_eq!(shape("Bare/Both"), Some(Shape::Streaming));
        assert_eq!(shape("Stock/One"), None);
        let answer = |name| methods.find(name).map(|known| known.answer);
        assert_eq!(answer("shop.v1.Stock/One"), Some("Hit"));
        assert_eq!(answer("Bare/One"), Some("shop.v1.Hit"));
    }

    #[test]
    fn a_name_is_kept_once_for_all_edges() {
        let set = FileDescriptorSet { file: vec![file(Some("shop.v1"), "Kept")] };
        let name = || Methods::of(&set.encode_to_vec()).unwrap().find("shop.v1.Kept/One");
        let (first, second) = (name().unwrap().name, name().unwrap().name);
        assert!(std::ptr::eq(first, second));
    }

    #[test]
    fn bytes_that_are_no_descriptor_set_are_an_error() {
        assert!(Methods::of(b"\xff\xff").is_err());
    }
}
