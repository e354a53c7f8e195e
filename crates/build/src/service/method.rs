//! The code of a method.

use prost_build::Method;

use crate::options::MethodOptions;

use super::docs;

/// One method, in every part of its service.
pub(super) struct MethodCode<'a> {
    method: &'a Method,
    /// In the trait and the client.
    name: String,
    constant: String,
    /// `package.Service/Method`.
    full_name: String,
    options: MethodOptions,
    docs: String,
}

impl<'a> MethodCode<'a> {
    pub(super) fn new(method: &'a Method, options: MethodOptions, full_name: String) -> Self {
        Self {
            name: method_name(&method.name),
            constant: method.name.trim_start_matches("r#").to_uppercase(),
            docs: docs(&method.comments, &format!("The method `{full_name}`.")),
            method,
            full_name,
            options,
        }
    }

    /// Leaves a name to what the client of a service with configurations has besides.
    pub(super) fn make_room_for_on(&mut self) {
        if self.name == "on" {
            self.name.push('_');
        }
    }

    pub(super) fn has_members(&self) -> bool {
        self.options.has_members()
    }

    pub(super) fn has_echo(&self) -> bool {
        self.options.echo_phases > 0
    }

    pub(super) fn constant(&self, convoke: &str) -> String {
        let Self { constant, full_name, docs, .. } = self;
        let (input, output) =
            (one_below(&self.method.input_type), one_below(&self.method.output_type));
        let input = self.request(convoke, &input);
        let ordered = if self.options.is_ordered { ".ordered()" } else { "" };
        let promise = match (self.options.is_read_only, self.options.is_idempotent) {
            (true, _) => ".read_only()",
            (false, true) => ".idempotent()",
            (false, false) => "",
        };
        format!(
            "{docs}
            pub const {constant}: {convoke}::Method<{input}, {output}> =
                {convoke}::Method::new(\"{full_name}\"){ordered}{promise};"
        )
    }

    pub(super) fn signature(&self, convoke: &str) -> String {
        let Self { name, docs, method, .. } = self;
        let (input, output) = (self.request(convoke, &method.input_type), &method.output_type);
        let (argument, answer) = if self.options.is_tree {
            (format!("task: {convoke}::Task<{output}>"), format!("{convoke}::Finish"))
        } else {
            let answer = if self.options.is_multicast { "()" } else { output };
            (format!("context: {convoke}::Context"), answer.to_owned())
        };
        let more = self.handler_docs();
        format!(
            "{docs}{more}
            fn {name}(&self, request: {input}, {argument}) -> impl ::core::future::Future<
                Output = ::core::result::Result<{answer}, {convoke}::Status>,
            > + ::core::marker::Send;"
        )
    }

    /// Type that its handler takes: a message of this type, or items of it.
    fn request(&self, convoke: &str, input: &str) -> String {
        match self.method.client_streaming {
            true => format!("{convoke}::Items<{input}>"),
            false => input.to_owned(),
        }
    }

    /// Documentation for its implementer, beside that of the file.
    fn handler_docs(&self) -> String {
        match self.options {
            MethodOptions { echo_phases: phases @ 1.., .. } => format!(
                "
                ///
                /// Runs first. What it returns is held back for {phases} echo phase{plural}, in which a majority
                /// of the members must cast the same request. Where it fails, this member does not.",
                plural = if phases == 1 { "" } else { "s" }
            ),
            MethodOptions { is_multicast: true, .. } => "
                ///
                /// Nobody reads what becomes of it: an error is for spans and counts."
                .to_owned(),
            _ if self.method.server_streaming => "
                ///
                /// Replies any number of times: by `task.reply`, by `task.stream()`, or by whoever it
                /// delegates and fans out to."
                .to_owned(),
            MethodOptions { is_tree: true, .. } => "
                ///
                /// Replies once, by itself or by whoever it hands the request to. A method that replies
                /// more often, as by `task.fan_out`, says `returns (stream ..)` in its file: to a gRPC
                /// client a second reply is an error."
                .to_owned(),
            _ => String::new(),
        }
    }

    /// Adds it to a service. `implementer` is `<T as Service>`.
    pub(super) fn registration(&self, convoke: &str, module: &str, implementer: &str) -> String {
        let Self { name, constant, options, .. } = self;
        let method = format!("{module}::{constant}");
        let handler = format!("{implementer}::{name}");
        if options.is_multicast && self.method.output_type != "()" {
            // What it returns is nothing, and what leaves is the empty message of its type.
            return format!(
                "let inner = ::std::sync::Arc::clone(service.state());
                let service = service.and(|service| {{
                    service.unary({method}, move |request, context| {{
                        let inner = ::std::sync::Arc::clone(&inner);
                        async move {{
                            let told = {handler}(&inner, request, context).await;
                            told.map(|()| ::core::default::Default::default())
                        }}
                    }})
                }});"
            );
        }
        match options.echo_phases {
            _ if options.is_tree => format!("let service = service.tree({method}, {handler});"),
            0 => format!("let service = service.unary({method}, {handler});"),
            phases => format!(
                "let service = {convoke}::quorum::echo::EchoOf::echo(
                    service, {method}, {phases}, &members, {handler},
                );"
            ),
        }
    }

    /// The call of one node. Where members echo there is none: each must get the request by the
    /// same call.
    pub(super) fn call(&self, convoke: &str, module: &str) -> String {
        if self.has_echo() {
            return String::new();
        }
        let Self { name, docs, method, constant, .. } = self;
        let (input, output) = (&method.input_type, &method.output_type);
        let (deprecated, invocation) = (self.deprecated(), self.invocation(module));
        let more = self.call_docs();
        if method.client_streaming {
            return format!(
                "{docs}{more}
                {deprecated}
                pub fn {name}(&self) -> {convoke}::StreamInvocation<{input}, {output}> {{
                    self.client.call_stream({module}::{constant})
                }}"
            );
        }
        format!(
            "{docs}{more}
            {deprecated}
            pub fn {name}(&self, request: {input}) -> {convoke}::Invocation<{output}> {{
                {invocation}
            }}"
        )
    }

    /// Documentation for its caller, beside that of the file.
    fn call_docs(&self) -> &'static str {
        if self.method.client_streaming && self.method.server_streaming {
            "
            ///
            /// Its request is a stream, and it is answered any number of times: `open()` gives what items
            /// are sent with, and the call to read replies from meanwhile."
        } else if self.method.client_streaming {
            "
            ///
            /// Its request is a stream: `open()` gives what items are sent with, and the call."
        } else if self.method.server_streaming {
            "
            ///
            /// Answered any number of times: `open()` the call to read all replies."
        } else if self.options.is_tree {
            "
            ///
            /// Answered once, by whoever has the reply."
        } else {
            ""
        }
    }

    /// The call of a configuration, if it has one.
    pub(super) fn call_of_members(&self, convoke: &str, module: &str) -> String {
        if !self.has_members() {
            return String::new();
        }
        let Self { name, docs, method, .. } = self;
        let (input, output) = (&method.input_type, &method.output_type);
        let (deprecated, invocation) = (self.deprecated(), self.invocation(module));
        let ext = format!("{convoke}::quorum::QuorumExt");
        let (more, argument, kind, made) = if self.options.is_multicast {
            let made =
                format!("{convoke}::quorum::Multicast::new({invocation}.to_all(&self.members))");
            ("Sent one-way to all members.", String::new(), "Multicast", made)
        } else if self.options.is_led {
            let made = format!("{ext}::among({invocation}.to(root), &self.members)");
            let argument = format!(", root: impl ::core::convert::Into<{convoke}::Peer>");
            ("Asked of `root`, in whose tree the members reply.", argument, "QuorumBuilder", made)
        } else {
            let made = format!("{ext}::quorum_call({invocation}.to_all(&self.members))");
            ("Asked of all members.", String::new(), "QuorumBuilder", made)
        };
        format!(
            "{docs}
            ///
            /// {more}
            {deprecated}
            pub fn {name}(&self, request: {input}{argument}) -> {convoke}::quorum::{kind}<{output}> {{
                {made}
            }}"
        )
    }

    fn deprecated(&self) -> &'static str {
        if self.method.options.deprecated() { "#[deprecated]" } else { "" }
    }

    fn invocation(&self, module: &str) -> String {
        format!("self.client.call({module}::{}, request)", self.constant)
    }
}

/// A client has functions `new` and `clone` already.
fn method_name(name: &str) -> String {
    if matches!(name, "new" | "clone") { format!("{name}_") } else { name.to_owned() }
}

/// Name of a type one module further down.
fn one_below(rust_type: &str) -> String {
    let is_local = !rust_type.starts_with("::")
        && !rust_type.starts_with("crate::")
        && !NOT_PATHS.contains(&rust_type);
    if is_local { format!("super::{rust_type}") } else { rust_type.to_owned() }
}

/// Types that prost makes of `google.protobuf.Empty`, `BoolValue` and the like, as far as they are
/// not paths.
const NOT_PATHS: [&str; 8] = ["()", "bool", "f32", "f64", "i32", "i64", "u32", "u64"];
