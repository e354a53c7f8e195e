//! Way of a request through middleware.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use convoke_proto::wire::Executed;
use convoke_transport::parts::Mutex;

/// Progress of a request through the middleware, and the values that this left for the handler.
#[derive(Default)]
pub(crate) struct Passage {
    stage: AtomicU8,
    values: Mutex<BTreeMap<TypeId, Arc<dyn Any + Send + Sync>>>,
}

/// The stages after the first, in which the handler is not reached.
const BEGUN: u8 = 1;
const ENDED: u8 = 2;

impl Passage {
    /// The handler is reached.
    pub(crate) fn begin(&self) {
        self.stage.store(BEGUN, Ordering::Release);
    }

    /// The handler has ended by itself.
    pub(crate) fn end(&self) {
        self.stage.store(ENDED, Ordering::Release);
    }

    /// Execution of a task that fails and says `own` of it.
    pub(crate) fn executed(&self, own: Executed) -> Executed {
        match self.stage.load(Ordering::Acquire) {
            ENDED => own, // It may have refused to run.
            BEGUN => Executed::Maybe,
            _ => Executed::No,
        }
    }

    /// Keeps a value, one per type, and gives back the one before.
    pub(crate) fn insert<T: Send + Sync + 'static>(&self, value: T) -> Option<Arc<T>> {
        let old = self.values.lock().insert(TypeId::of::<T>(), Arc::new(value));
        old.and_then(|old| old.downcast().ok())
    }

    pub(crate) fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let value = self.values.lock().get(&TypeId::of::<T>()).cloned();
        value.and_then(|value| value.downcast().ok())
    }
}
