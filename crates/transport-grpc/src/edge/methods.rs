//! What a descriptor set says of methods.

use std::collections::BTreeMap;

use prost::Message;
use prost_types::FileDescriptorSet;

/// Methods by `package.Service/Method`.
#[derive(Debug, Default)]
pub(super) struct Methods {
    methods: BTreeMap<String, Shape>,
    services: Vec<String>,
}

/// What a method takes and gives, as gRPC sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// One message, one message.
    Unary,
    /// One message, several.
    ServerStreaming,
    /// Several messages, which convoke does not have.
    ClientStreaming,
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
                    let shape = match (method.client_streaming(), method.server_streaming()) {
                        (true, _) => Shape::ClientStreaming,
                        (false, true) => Shape::ServerStreaming,
                        (false, false) => Shape::Unary,
                    };
                    this.methods.insert(format!("{service_name}/{}", method.name()), shape);
                }
                this.services.push(service_name);
            }
        }
        Ok(this)
    }

    pub(super) fn shape(&self, method: &str) -> Option<Shape> {
        self.methods.get(method).copied()
    }

    pub(super) fn services(&self) -> &[String] {
        &self.services
    }
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
        assert_eq!(methods.shape("shop.v1.Stock/One"), Some(Shape::Unary));
        assert_eq!(methods.shape("shop.v1.Stock/Many"), Some(Shape::ServerStreaming));
        assert_eq!(methods.shape("Bare/In"), Some(Shape::ClientStreaming));
        assert_eq!(methods.shape("Bare/Both"), Some(Shape::ClientStreaming));
        assert_eq!(methods.shape("Stock/One"), None);
    }

    #[test]
    fn bytes_that_are_no_descriptor_set_are_an_error() {
        assert!(Methods::of(b"\xff\xff").is_err());
    }
}
