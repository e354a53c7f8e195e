//! Peers that misbehave, over raw sockets: each is closed, and nobody else notices.

/// Tests that are the same over every kind of socket: async functions that take the [`Kind`].
///
/// [`Kind`]: crate::places::Kind
macro_rules! over_every_socket {
    ($($name:ident),* $(,)?) => {
        mod over_tcp {
            $(
                #[tokio::test]
                async fn $name() {
                    super::$name(crate::places::Kind::Tcp).await;
                }
            )*
        }

        #[cfg(unix)]
        mod over_unix {
            $(
                #[tokio::test]
                async fn $name() {
                    super::$name(crate::places::Kind::File).await;
                }
            )*
        }

        #[cfg(target_os = "linux")]
        mod over_unix_names {
            $(
                #[tokio::test]
                async fn $name() {
                    super::$name(crate::places::Kind::Name).await;
                }
            )*
        }
    };
}

mod deeds;
mod flows;
mod handshake;
mod life;
mod one_flow;
#[path = "../support/places.rs"]
mod places;
mod raw;
mod shares;
#[path = "../support/wire.rs"]
mod wire;
