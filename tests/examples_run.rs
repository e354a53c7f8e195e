//! Runs every tutorial of `examples/`; each asserts what it shows.

type Result = std::result::Result<(), Box<dyn std::error::Error>>;

macro_rules! examples {
    ($($($feature:literal)+: $name:ident in $path:literal),* $(,)?) => {$(
        #[cfg(all($(feature = $feature),+))]
        #[path = $path]
        mod $name;

        #[cfg(all($(feature = $feature),+))]
        #[test]
        fn $name() -> Result {
            $name::main()
        }
    )*};
}

examples! {
    "tcp": hello in "../examples/hello.rs",
    "tcp": clients in "../examples/clients.rs",
    "tcp": branches in "../examples/branches.rs",
    "tcp": tree in "../examples/tree.rs",
    "tcp": streaming in "../examples/streaming.rs",
    "tcp": upload in "../examples/upload.rs",
    "tcp": partial in "../examples/partial.rs",
    "tcp": first_of in "../examples/first_of.rs",
    "overlay": overlay in "../examples/overlay.rs",
    "quorum": quorum in "../examples/quorum.rs",
    "quorum": echo in "../examples/echo.rs",
    "tcp": discovery in "../examples/discovery.rs",
    "tcp": operations in "../examples/operations.rs",
    "quorum": recipes_calls in "../examples/recipes_calls.rs",
    "tcp": recipes_servers in "../examples/recipes_servers.rs",
    "tcp": stuck in "../examples/stuck.rs",
    "tcp": node in "../examples/node.rs",
    "tcp": unix in "../examples/unix.rs",
    "tls": tls in "../examples/tls.rs",
    "tls": secured in "../examples/secured.rs",
    "quic": quic in "../examples/quic.rs",
    "grpc": edge in "../examples/edge.rs",
    "grpc" "tls": edge_tls in "../examples/edge_tls.rs",
    "zstd": compression in "../examples/compression.rs",
    "metrics": metrics in "../examples/metrics.rs",
    "tower": middleware in "../examples/middleware.rs",
    "sim": simulated in "../examples/simulated.rs",
    "sim": hooked in "../examples/hooked.rs",
    "sim": simulated_disk in "../examples/simulated_disk.rs",
}
