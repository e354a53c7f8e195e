//! An opened device.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::{fmt, ptr};

use rdma_sys::*;

use super::async_event::AsyncEvent;
use super::{duplicate, error};
use crate::provider::VerbsError;

/// An opened device. Everything made on it holds it, so it is closed last.
pub(crate) struct Context {
    raw: NonNull<ibv_context>,
    name: String,
}

// SAFETY: libibverbs is thread-safe, and nothing of a context is tied to the thread that opened it.
unsafe impl Send for Context {}
// SAFETY: the same.
unsafe impl Sync for Context {}

/// Limits of a device.
pub(crate) struct ContextLimits {
    pub(crate) work_requests_max: u32,
    pub(crate) completions_max: u32,
}

/// The devices of this machine, as long as the list is needed to open one.
struct DeviceList {
    raw: NonNull<*mut ibv_device>,
    count: usize,
}

impl Context {
    /// Opens the device of this name, or the first.
    pub(crate) fn open(name: Option<&str>) -> Result<Arc<Self>, VerbsError> {
        let wanted = || name.map_or_else(|| "at all".into(), |name| format!("named {name:?}"));
        let devices = DeviceList::read(&wanted())?;
        let found = devices.entries().iter().copied().find_map(|device| {
            let found = name_of(device);
            name.is_none_or(|name| name == found).then_some((device, found))
        });
        let (device, name) = found.ok_or_else(|| error::no_device(&wanted()))?;
        // SAFETY: the device is of the list, which lives until the end of this function.
        let raw = unsafe { ibv_open_device(device) };
        let raw = NonNull::new(raw).ok_or_else(|| error::last("ibv_open_device"))?;
        Ok(Arc::new(Self { raw, name }))
    }

    /// The name of the device, such as `mlx5_0`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn limits(&self) -> Result<ContextLimits, VerbsError> {
        let mut attributes = MaybeUninit::<ibv_device_attr>::zeroed();
        // SAFETY: the context is open, and the attributes outlive the call.
        let code = unsafe { ibv_query_device(self.raw(), attributes.as_mut_ptr()) };
        if code != 0 {
            return Err(error::of_code("ibv_query_device", code));
        }
        // SAFETY: zeroed, then filled; all fields are integers and byte arrays.
        let attributes = unsafe { attributes.assume_init() };
        Ok(ContextLimits {
            work_requests_max: u32::try_from(attributes.max_qp_wr).unwrap_or(0),
            completions_max: u32::try_from(attributes.max_cqe).unwrap_or(0),
        })
    }

    /// Descriptor that becomes readable with an asynchronous event.
    pub(crate) fn descriptor(&self) -> Result<OwnedFd, VerbsError> {
        // SAFETY: the context is open, and so is its descriptor.
        unsafe { duplicate((*self.raw()).async_fd) }
            .map_err(|error| error::of_code("fcntl", error.raw_os_error().unwrap_or(0)))
    }

    /// The next asynchronous event of this device, acknowledged; `None` when there is none. To be
    /// called only once [`descriptor`](Self::descriptor) was, which keeps it from blocking.
    pub(crate) fn take_event(&self) -> Option<AsyncEvent> {
        AsyncEvent::take(self.raw)
    }

    pub(super) fn raw(&self) -> *mut ibv_context {
        self.raw.as_ptr()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: open until here, and everything made on it holds it and is gone.
        unsafe { ibv_close_device(self.raw()) };
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Context").field(&self.name).finish()
    }
}

impl DeviceList {
    fn read(wanted: &str) -> Result<Self, VerbsError> {
        let mut count = 0;
        // SAFETY: the count outlives the call.
        let raw = unsafe { ibv_get_device_list(&mut count) };
        // Without any RDMA in the kernel the list itself fails, with ENOSYS.
        let raw = NonNull::new(raw).ok_or_else(|| match error::last("ibv_get_device_list") {
            VerbsError::System { code: libc::ENOSYS, .. } => error::no_device(wanted),
            error => error,
        })?;
        Ok(Self { raw, count: usize::try_from(count).unwrap_or(0) })
    }

    fn entries(&self) -> &[*mut ibv_device] {
        // SAFETY: the library returned so many entries at this address, valid until the list is
        // freed.
        unsafe { std::slice::from_raw_parts(self.raw.as_ptr(), self.count) }
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: of `ibv_get_device_list`, freed only here; an opened device keeps what it needs.
        unsafe { ibv_free_device_list(self.raw.as_ptr()) };
    }
}

/// The name of a device that is listed or opened.
pub(super) fn name_of(device: *mut ibv_device) -> String {
    if ptr::eq(device, ptr::null()) {
        return String::new();
    }
    // SAFETY: callers hold the list or the context of the device; its name is a terminated string
    // inside it.
    unsafe { CStr::from_ptr(ibv_get_device_name(device)) }.to_string_lossy().into_owned()
}
