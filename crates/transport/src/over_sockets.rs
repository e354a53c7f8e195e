//! The front of a transport over sockets of the system.

/// Makes the type of a transport over sockets from its parts: its `Config`, which has `common`
/// settings, `security` and `schemes`, the functions `listener::listen` and `dial::dial`, and with
/// the feature `tls` the name `tls::PROTOCOL`, all of the crate's root. A builder calls
/// `from_config`.
#[macro_export]
macro_rules! over_sockets {
    ($(#[$doc:meta])* $transport:ident, $builder:ident, $secured:literal) => {
        $(#[$doc])*
        ///
        /// Its futures, and the connections they make, run on the tokio runtime they are polled on,
        /// which needs I/O and time enabled.
        #[derive(Clone, Debug)]
        pub struct $transport {
            config: ::std::sync::Arc<Config>,
            admission: ::std::sync::Arc<$crate::parts::Admission>,
        }

        impl $transport {
            #[doc = concat!("With the defaults that [`", stringify!($builder), "`] lists.")]
            pub fn new() -> Self {
                Self::from_config(Config::default())
            }

            #[doc = concat!("With the defaults, for `", $secured, "` addresses; see")]
            #[doc = concat!("[`", stringify!($builder), "::tls`].")]
            #[cfg(feature = "tls")]
            pub fn tls(identity: $crate::identity::Identity) -> Self {
                let security = $crate::security::Security::tls(identity, tls::PROTOCOL);
                Self::from_config(Config { security, ..Config::default() })
            }

            /// For other settings than the defaults.
            pub fn builder() -> $builder {
                $builder::default()
            }

            fn from_config(config: Config) -> Self {
                let admission = ::std::sync::Arc::new(config.common.admission());
                Self { config: ::std::sync::Arc::new(config), admission }
            }
        }

        impl Default for $transport {
            fn default() -> Self {
                Self::new()
            }
        }

        impl $crate::Transport for $transport {
            fn schemes(&self) -> &'static [&'static str] {
                self.config.schemes()
            }

            fn security(&self) -> Option<&$crate::security::Security> {
                Some(&self.config.security)
            }

            /// Accepts until the listener is closed or dropped. A connection that was in its
            /// handshake then may still open.
            fn listen(
                &self,
                address: &$crate::Address,
                sink: ::std::sync::Arc<dyn $crate::Sink>,
            ) -> $crate::ListenFuture {
                let Self { config, admission } = self.clone();
                let address = $crate::own_address(self.schemes(), address);
                Box::pin(async move { listener::listen(config, admission, address?, sink).await })
            }

            /// # Cancel safety
            /// A future dropped before it is ready leaves no connection behind.
            fn dial(
                &self,
                address: &$crate::Address,
                expected: Option<$crate::id::NodeId>,
                sink: ::std::sync::Arc<dyn $crate::Sink>,
            ) -> $crate::DialFuture {
                let Self { config, admission } = self.clone();
                let address = $crate::own_address(self.schemes(), address);
                Box::pin(async move {
                    dial::dial(config, admission, address?, expected, sink).await
                })
            }
        }
    };
}
