//! Memory a device may access.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::*;

use super::context::Context;
use super::error;
use crate::ffi::slab::Slab;
use crate::provider::VerbsError;

/// Domain of queue pairs and memory: a queue pair may use the memory made in the same one.
pub(crate) struct ProtectionDomain {
    raw: NonNull<ibv_pd>,
    context: Arc<Context>,
}

// SAFETY: libibverbs is thread-safe, and nothing of a domain is tied to a thread.
unsafe impl Send for ProtectionDomain {}
// SAFETY: the same.
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Arc<Self>, VerbsError> {
        // SAFETY: the context is open.
        let raw = unsafe { ibv_alloc_pd(context.raw()) };
        let raw = NonNull::new(raw).ok_or_else(|| error::last("ibv_alloc_pd"))?;
        Ok(Arc::new(Self { raw, context: Arc::clone(context) }))
    }

    pub(super) fn raw(&self) -> *mut ibv_pd {
        self.raw.as_ptr()
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`; the regions and queue pairs of the domain hold it, so none is
        // left.
        unsafe { ibv_dealloc_pd(self.raw()) };
    }
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProtectionDomain").field(&self.context).finish()
    }
}

/// A slab the device may read and write, for work requests of this end alone.
pub(crate) struct MemoryRegion {
    raw: NonNull<ibv_mr>,
    slab: Arc<Slab>,
    domain: Arc<ProtectionDomain>,
}

// SAFETY: libibverbs is thread-safe, and nothing of a region is tied to a thread.
unsafe impl Send for MemoryRegion {}
// SAFETY: the same.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    /// Registers a slab; `used_bytes` are registered already, for the message of an error.
    pub(crate) fn new(
        domain: &Arc<ProtectionDomain>,
        slab: &Arc<Slab>,
        used_bytes: u64,
    ) -> Result<Self, VerbsError> {
        // No remote access: a peer that can write here could change a message after it was checked.
        let access = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 as libc::c_int;
        // SAFETY: the slab's memory is allocated, all its bytes are initialised, and it outlives
        // the region, which holds it.
        let raw =
            unsafe { ibv_reg_mr(domain.raw(), slab.start().as_ptr().cast(), slab.bytes(), access) };
        let raw = NonNull::new(raw)
            .ok_or_else(|| error::of_registration(slab.bytes() as u64, used_bytes))?;
        Ok(Self { raw, slab: Arc::clone(slab), domain: Arc::clone(domain) })
    }

    pub(crate) fn slab(&self) -> &Arc<Slab> {
        &self.slab
    }

    pub(crate) fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.domain
    }

    /// The first bytes of a slot, as a work request names them.
    ///
    /// # Panics
    /// When the slot does not exist or is shorter.
    pub(super) fn entry(&self, slot: u32, bytes: u32) -> ibv_sge {
        assert!(slot < self.slab.slot_count() && bytes as usize <= self.slab.slot_bytes());
        let offset = slot as usize * self.slab.slot_bytes();
        let addr = self.slab.start().as_ptr() as u64 + offset as u64;
        // SAFETY: the region is registered; its key never changes.
        let lkey = unsafe { self.raw.as_ref() }.lkey;
        ibv_sge { addr, length: bytes, lkey }
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // SAFETY: registered in `new`; the queue pairs that use it hold it, so no work request
        // does.
        let code = unsafe { ibv_dereg_mr(self.raw.as_ptr()) };
        if code != 0 {
            // The device may still write there: better to lose the memory than to give it to
            // somebody else.
            std::mem::forget(Arc::clone(&self.slab));
        }
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryRegion").field(&self.slab).finish()
    }
}
