//! Code of a service whose methods are for configurations: a client of all members, and a server
//! that knows among whom it echoes.

use super::ServiceCode;
use super::method::MethodCode;

impl ServiceCode<'_> {
    fn has_members(&self) -> bool {
        self.methods.iter().any(MethodCode::has_members)
    }

    fn has_echo(&self) -> bool {
        self.methods.iter().any(MethodCode::has_echo)
    }

    /// The client's function that leads to the one of all members.
    pub(super) fn on(&self) -> String {
        if !self.has_members() {
            return String::new();
        }
        let Self { convoke, name, .. } = self;
        format!(
            "/// Its calls to the members of a configuration.
            pub fn on(&self, members: &{convoke}::quorum::Configuration) -> {name}Members {{
                {name}Members {{
                    client: ::core::clone::Clone::clone(&self.client),
                    members: ::core::clone::Clone::clone(members),
                }}
            }}"
        )
    }

    /// The client of all members.
    pub(super) fn at_members(&self) -> String {
        if !self.has_members() {
            return String::new();
        }
        let Self { convoke, name, full_name, module, .. } = self;
        let calls = self.methods.iter().map(|method| method.call_of_members(convoke, module));
        let calls: String = calls.collect();
        format!(
            "{convoke}::requires_quorum!();

            /// Calls `{full_name}` at the members of a configuration. Cheap to clone.
            #[derive(Clone, Debug)]
            pub struct {name}Members {{
                client: {convoke}::Client,
                members: {convoke}::quorum::Configuration,
            }}

            impl {name}Members {{ {calls} }}"
        )
    }

    /// Of the server: the field of the members, its first value, what sets it.
    pub(super) fn echo_members(&self) -> [String; 3] {
        if !self.has_echo() {
            return Default::default();
        }
        let configuration = format!("{}::quorum::Configuration", self.convoke);
        [
            format!("members: ::core::option::Option<{configuration}>"),
            "members: ::core::option::Option::None".to_owned(),
            format!(
                "/// Echoes among these members. An endpoint starts with it only if it is one of them, and not
                /// at all if it was not told.
                #[must_use]
                pub fn members(mut self, members: {configuration}) -> Self {{
                    self.members = ::core::option::Option::Some(members);
                    self
                }}"
            ),
        ]
    }

    /// Of the conversion: a service that no endpoint starts with unless there are members.
    pub(super) fn require_members(&self) -> String {
        if !self.has_echo() {
            return String::new();
        }
        let Self { convoke, name, full_name, .. } = self;
        let reason =
            format!("{full_name} has echo phases: say among whom by `{name}Server::members`");
        format!(
            "let ::core::option::Option::Some(members) = self.members else {{
                let service = service.requires(|_| {{
                    ::core::result::Result::Err(::std::string::String::from(\"{reason}\"))
                }});
                return {convoke}::IntoService::into_service(service);
            }};"
        )
    }
}
