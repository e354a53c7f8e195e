//! Lookups of names, of each name one at a time.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use tokio::sync::watch;
use tokio::task::spawn_blocking;

use crate::parts::Mutex;

/// Lookups under way, by `host:port`, each with its outcome to come.
///
/// A lookup keeps a thread until the system gives up, though nobody waits for it any more. Those of
/// a name that hangs would keep one for each dial, and a runtime has only so many for them and for
/// its disks.
#[derive(Debug)]
pub(super) struct Lookups(Mutex<BTreeMap<String, watch::Receiver<Option<Found>>>>);

/// An error of the system is not to be cloned: its kind and its text are.
type Found = Result<Vec<SocketAddr>, (io::ErrorKind, String)>;

impl Lookups {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// The outcome of the lookup under way, or of one that this begins. It goes on when the future
    /// is dropped, for those who come while it does.
    ///
    /// # Errors
    /// That of the lookup.
    pub(super) async fn find(
        &'static self,
        name: &str,
        look_up: impl FnOnce(&str) -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> io::Result<Vec<SocketAddr>> {
        let (sender, begun) = watch::channel(None);
        let mut outcome = self.0.lock().entry(name.to_owned()).or_insert(begun.clone()).clone();
        if outcome.same_channel(&begun) {
            let place = Place { lookups: self, name: name.to_owned() };
            spawn_blocking(move || {
                let found = look_up(&place.name);
                drop(place);
                sender.send_replace(Some(found.map_err(|error| (error.kind(), error.to_string()))));
            });
        }
        let found = outcome.wait_for(Option::is_some).await.ok().and_then(|found| found.clone());
        let stopped = || Err((io::ErrorKind::Other, "its lookup was stopped".to_owned()));
        found.unwrap_or_else(stopped).map_err(|(kind, text)| io::Error::new(kind, text))
    }
}

/// Place of a lookup under way, however it ends.
struct Place {
    lookups: &'static Lookups,
    name: String,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.lookups.0.lock().remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn who_looks_up_a_name_that_hangs_shares_one_thread() {
        static LOOKUPS: Lookups = Lookups::new();
        let (count, found) = (Arc::new(AtomicUsize::new(0)), SocketAddr::from(([10, 1, 1, 1], 7)));
        let (answers, waiting) = mpsc::channel();
        let waiting = Arc::new(std::sync::Mutex::new(waiting));
        let find = || {
            let (count, waiting) = (count.clone(), waiting.clone());
            LOOKUPS.find("hangs:7", move |name| {
                assert_eq!(name, "hangs:7");
                count.fetch_add(1, Ordering::Relaxed);
                waiting.lock().expect("nobody panics").recv().expect("it is answered")
            })
        };
        for _ in 0..10 {
            assert!(timeout(Duration::ZERO, find()).await.is_err(), "it hangs");
        }
        let mut last = pin!(find());
        assert!(timeout(Duration::ZERO, last.as_mut()).await.is_err(), "it hangs");
        answers.send(Ok(vec![found])).expect("it is waited for");
        assert_eq!(last.await.expect("it is found"), [found]);
        assert_eq!(count.load(Ordering::Relaxed), 1);
        // Once it is over the next begins, and fails as the system says.
        answers
            .send(Err(io::Error::new(io::ErrorKind::NotFound, "no such host")))
            .expect("as above");
        let error = find().await.expect_err("it has failed");
        assert_eq!(
            (error.kind(), error.to_string()),
            (io::ErrorKind::NotFound, "no such host".into())
        );
        assert_eq!(count.load(Ordering::Relaxed), 2);
    }
}
