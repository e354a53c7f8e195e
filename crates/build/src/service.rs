//! The code of a service: constants, trait, server, client.

mod members;
mod method;

use prost_build::{Comments, Service, ServiceGenerator};

use crate::options::Options;

use method::MethodCode;

/// Generates what a service becomes, and lets another generator do the same.
pub(crate) struct Generator {
    convoke: String,
    options: Options,
    also: Option<Box<dyn ServiceGenerator>>,
}

impl Generator {
    pub(crate) fn new(
        convoke: String,
        options: Options,
        also: Option<Box<dyn ServiceGenerator>>,
    ) -> Self {
        Self { convoke, options, also }
    }
}

impl ServiceGenerator for Generator {
    fn generate(&mut self, service: Service, buf: &mut String) {
        buf.push_str(&ServiceCode::new(&self.convoke, &self.options, &service).all());
        if let Some(also) = &mut self.also {
            also.generate(service, buf);
        }
    }

    fn finalize(&mut self, buf: &mut String) {
        if let Some(also) = &mut self.also {
            also.finalize(buf);
        }
    }

    fn finalize_package(&mut self, package: &str, buf: &mut String) {
        if let Some(also) = &mut self.also {
            also.finalize_package(package, buf);
        }
    }
}

/// Types are written with their whole path, since a message may be called `Result` or `Send`.
struct ServiceCode<'a> {
    convoke: &'a str,
    /// The trait.
    name: &'a str,
    /// The type parameter of the server.
    inner: &'static str,
    /// The module of the constants.
    module: String,
    /// `package.Service`.
    full_name: String,
    is_ordered: bool,
    docs: String,
    methods: Vec<MethodCode<'a>>,
}

impl<'a> ServiceCode<'a> {
    fn new(convoke: &'a str, options: &Options, service: &'a Service) -> Self {
        let full_name = match service.package.as_str() {
            "" => service.proto_name.clone(),
            package => format!("{package}.{}", service.proto_name),
        };
        let methods = service.methods.iter().map(|method| {
            let full_name = format!("{full_name}/{}", method.proto_name);
            MethodCode::new(method, options.method(&full_name), full_name)
        });
        let mut methods: Vec<_> = methods.collect();
        if methods.iter().any(MethodCode::has_members) {
            methods.iter_mut().for_each(MethodCode::make_room_for_on);
        }
        let is_ordered = options.service(&full_name).is_ordered;
        Self {
            convoke,
            name: &service.name,
            inner: if service.name == "T" { "S" } else { "T" },
            module: module_name(&service.name),
            docs: docs(&service.comments, &format!("The service `{full_name}`.")),
            full_name,
            is_ordered,
            methods,
        }
    }

    fn all(&self) -> String {
        let parts = [self.constants(), self.service_trait(), self.server(), self.conversion()];
        parts.concat() + &self.client() + &self.at_members()
    }

    fn constants(&self) -> String {
        let (convoke, module, full_name) = (self.convoke, &self.module, &self.full_name);
        let constants: String =
            self.methods.iter().map(|method| method.constant(convoke)).collect();
        format!(
            "/// The methods of `{full_name}`, by which a task delegates to them.
            pub mod {module} {{ {constants} }}"
        )
    }

    fn service_trait(&self) -> String {
        let Self { convoke, name, docs, .. } = self;
        let methods: String = self.methods.iter().map(|method| method.signature(convoke)).collect();
        format!(
            "{docs}
            ///
            /// To be implemented with `async fn`s and served as [`{name}Server`].
            pub trait {name}: ::core::marker::Send + ::core::marker::Sync + 'static {{ {methods} }}"
        )
    }

    fn server(&self) -> String {
        let Self { name, inner, full_name, .. } = self;
        let [field, none, setter] = self.echo_members();
        format!(
            "/// Serves `{full_name}` by an implementation of [`{name}`]: an endpoint's `serve` takes it.
            pub struct {name}Server<{inner}> {{ inner: ::std::sync::Arc<{inner}>, {field} }}

            impl<{inner}: {name}> {name}Server<{inner}> {{
                /// Serves by `inner`.
                pub fn new(inner: {inner}) -> Self {{
                    Self::from_arc(::std::sync::Arc::new(inner))
                }}

                /// Serves by `inner`, which others hold too.
                pub fn from_arc(inner: ::std::sync::Arc<{inner}>) -> Self {{
                    Self {{ inner, {none} }}
                }}
                {setter}
            }}

            impl<{inner}> ::core::fmt::Debug for {name}Server<{inner}> {{
                fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {{
                    f.debug_struct(\"{name}Server\").finish_non_exhaustive()
                }}
            }}"
        )
    }

    fn conversion(&self) -> String {
        let Self { convoke, name, inner, full_name, .. } = self;
        let new = format!("{convoke}::Service::with_arc(self.inner)");
        let ordered =
            if self.is_ordered { format!(".ordered(\"{full_name}\")") } else { String::new() };
        let required = self.require_members();
        let trait_of_inner = format!("<{inner} as {name}>");
        let add =
            |method: &MethodCode<'_>| method.registration(convoke, &self.module, &trait_of_inner);
        let methods: String = self.methods.iter().map(add).collect();
        format!(
            "impl<{inner}: {name}> {convoke}::IntoService for {name}Server<{inner}> {{
                fn into_service(self) -> {convoke}::Service {{
                    let service = {new}{ordered};
                    {required}
                    {methods}
                    {convoke}::IntoService::into_service(service)
                }}
            }}"
        )
    }

    fn client(&self) -> String {
        let Self { convoke, name, full_name, module, .. } = self;
        let methods: String =
            self.methods.iter().map(|method| method.call(convoke, module)).collect();
        let on = self.on();
        format!(
            "/// Calls `{full_name}`. Cheap to clone.
            #[derive(Clone, Debug)]
            pub struct {name}Client {{ client: {convoke}::Client }}

            impl {name}Client {{
                /// Makes its calls by this client, endpoint, context or task.
                pub fn new(client: impl ::core::convert::Into<{convoke}::Client>) -> Self {{
                    Self {{ client: ::core::convert::Into::into(client) }}
                }}
                {on}
                {methods}
            }}"
        )
    }
}

/// The comments of the file, or `default` where it has none. Ends without a line break.
fn docs(comments: &Comments, default: &str) -> String {
    let attached = Comments { leading_detached: Vec::new(), ..comments.clone() };
    let mut docs = String::new();
    attached.append_with_indent(0, &mut docs);
    if docs.is_empty() { format!("/// {default}") } else { docs.trim_end().to_owned() }
}

/// `friend_graph` for `FriendGraph`, as prost names the modules of messages.
fn module_name(service: &str) -> String {
    let module = prost_build::Module::from_protobuf_package_name(service);
    module.to_string()
}
