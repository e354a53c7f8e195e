//! File descriptors for tests of many sockets.

/// Raises the limit of this process to what the system allows it.
pub(crate) fn allow_many() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, getrlimit, setrlimit};
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = limit.maximum;
        setrlimit(Resource::Nofile, limit).expect("a process may raise it so far");
    }
}
