//! One end of a connection, as raw as it gets.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::{io, mem, ptr, thread};

use rdma_sys::*;

/// Work requests of either queue; deep enough for the widest window.
pub(crate) const DEPTH: u32 = 128;
/// One send in so many is signalled.
pub(crate) const SIGNAL_EVERY: u32 = 16;
/// The largest message.
const BYTES_MAX: u32 = 1 << 20;
/// Inline bytes asked for; a device grants as much or more.
const INLINE_BYTES: u32 = 220;
/// Receive buffers overlap: nobody reads them, and so the region stays small enough for a cache.
const REGION_BYTES: usize = 2 * BYTES_MAX as usize;
const RECEIVE: u64 = 1 << 63;

/// One queue pair with its own completion queue and channel. Its handles live as long as the
/// process.
pub(crate) struct End {
    qp: *mut ibv_qp,
    cq: *mut ibv_cq,
    channel: *mut ibv_comp_channel,
    receives: &'static mut [ibv_recv_wr],
    sends: &'static mut [ibv_send_wr],
    /// Entry that the sends gather from.
    entry: *mut ibv_sge,
    completions: Box<[ibv_wc; 32]>,
    inline_bytes: usize,
    sent: u32,
    /// Sends whose completion has been seen, counted by the signalled ones.
    completed: u32,
    unacknowledged: u32,
}

// SAFETY: all verbs called on these handles are thread-safe, and an end has one owner at a time.
unsafe impl Send for End {}

/// Connects two ends over the device that owns `address`.
pub(crate) fn pair(address: SocketAddr) -> (End, End) {
    let (port, bound) = mpsc::channel();
    let listening = thread::spawn(move || listen(SocketAddr::new(address.ip(), 0), &port));
    let port = bound.recv().expect("the listener says its port before it waits");
    let dialled = dial(SocketAddr::new(address.ip(), port));
    (dialled, listening.join().expect("the listener does not panic"))
}

fn listen(address: SocketAddr, port: &mpsc::Sender<u16>) -> End {
    let id = create_id();
    let address = socket2::SockAddr::from(address);
    let mut child = ptr::null_mut();
    // SAFETY: `id` is a fresh synchronous id; the address outlives the call; `child` is only read
    // once the call has filled it.
    unsafe {
        check(rdma_bind_addr(id, address.as_ptr().cast_mut().cast()), "bind");
        check(rdma_listen(id, 1), "listen");
        port.send(u16::from_be(rdma_get_src_port(id))).expect("the dialler waits for it");
        check(rdma_get_request(id, &mut child), "get request");
    }
    let mut end = End::new(child);
    end.post_receives(DEPTH);
    // SAFETY: `child` has a queue pair with its receives posted, and the parameters outlive the
    // call.
    unsafe { check(rdma_accept(child, &mut parameters()), "accept") };
    end
}

fn dial(address: SocketAddr) -> End {
    let id = create_id();
    let address = socket2::SockAddr::from(address);
    // SAFETY: `id` is a fresh synchronous id, and the address outlives the call.
    unsafe {
        let target = address.as_ptr().cast_mut().cast();
        check(rdma_resolve_addr(id, ptr::null_mut(), target, 2_000), "resolve address");
        check(rdma_resolve_route(id, 2_000), "resolve route");
    }
    let mut end = End::new(id);
    end.post_receives(DEPTH);
    // SAFETY: `id` has a queue pair, and the parameters outlive the call.
    unsafe { check(rdma_connect(id, &mut parameters()), "connect") };
    end
}

fn create_id() -> *mut rdma_cm_id {
    let mut id = ptr::null_mut();
    // SAFETY: without an event channel the library makes one and every call waits for its event.
    let result = unsafe {
        let space = rdma_port_space::RDMA_PS_TCP;
        rdma_create_id(ptr::null_mut(), &mut id, ptr::null_mut(), space)
    };
    check(result, "create an id");
    id
}

fn parameters() -> rdma_conn_param {
    // SAFETY: the struct is integers and one pointer, for which null says no private data.
    let mut parameters: rdma_conn_param = unsafe { mem::zeroed() };
    parameters.retry_count = 6;
    parameters.responder_resources = 1;
    parameters.initiator_depth = 1;
    parameters
}

impl End {
    fn new(id: *mut rdma_cm_id) -> Self {
        let region = vec![0_u8; REGION_BYTES].leak();
        // SAFETY: `id` has a device; all handles made here live until the process ends, and the
        // region is leaked. Attributes are integers and pointers, null where optional.
        unsafe {
            let access = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
            let access = i32::try_from(access).expect("an access flag is a small number");
            let pd = ibv_alloc_pd((*id).verbs);
            require(pd, "allocate a protection domain");
            let mr = ibv_reg_mr(pd, region.as_mut_ptr().cast(), region.len(), access);
            require(mr, "register memory");
            let channel = ibv_create_comp_channel((*id).verbs);
            require(channel, "create a completion channel");
            let cq = ibv_create_cq((*id).verbs, 512, ptr::null_mut(), channel, 0);
            require(cq, "create a completion queue");
            let mut attributes: ibv_qp_init_attr = mem::zeroed();
            attributes.send_cq = cq;
            attributes.recv_cq = cq;
            attributes.qp_type = ibv_qp_type::IBV_QPT_RC;
            attributes.cap.max_send_wr = DEPTH;
            attributes.cap.max_recv_wr = DEPTH;
            attributes.cap.max_send_sge = 1;
            attributes.cap.max_recv_sge = 1;
            attributes.cap.max_inline_data = INLINE_BYTES;
            check(rdma_create_qp(id, pd, &mut attributes), "create a queue pair");
            let entry = |offset: usize, length| {
                let addr = region.as_ptr().add(offset) as u64;
                Box::leak(Box::new(ibv_sge { addr, length, lkey: (*mr).lkey }))
            };
            let receive_entry = entry(BYTES_MAX as usize, BYTES_MAX);
            let entry: *mut _ = entry(0, 0);
            let (receives, sends) = chains(receive_entry, entry);
            Self {
                qp: (*id).qp,
                cq,
                channel,
                receives,
                sends,
                entry,
                completions: Box::new(mem::zeroed()),
                inline_bytes: attributes.cap.max_inline_data as usize,
                sent: 0,
                completed: 0,
                unacknowledged: 0,
            }
        }
    }

    /// Posts `count` receives in one chain.
    pub(crate) fn post_receives(&mut self, count: u32) {
        let Some(last) = (count as usize).checked_sub(1) else { return };
        let rest = mem::replace(&mut self.receives[last].next, ptr::null_mut());
        let mut bad = ptr::null_mut();
        // SAFETY: the chain and its entry are leaked, and the region, too.
        let result = unsafe { ibv_post_recv(self.qp, self.receives.as_mut_ptr(), &mut bad) };
        assert_eq!(result, 0, "post receives");
        self.receives[last].next = rest;
    }

    /// Sends `count` messages of `bytes` with one post.
    pub(crate) fn send(&mut self, bytes: usize, count: u32) {
        let last = count as usize - 1;
        let inline = if bytes <= self.inline_bytes { ibv_send_flags::IBV_SEND_INLINE.0 } else { 0 };
        let length = u32::try_from(bytes).expect("at most a mebibyte");
        // SAFETY: the entry is leaked and nobody else has it.
        unsafe { (*self.entry).length = length };
        for request in &mut self.sends[..=last] {
            self.sent = self.sent.wrapping_add(1);
            request.wr_id = self.sent.into();
            request.send_flags = inline;
            if self.sent.is_multiple_of(SIGNAL_EVERY) {
                request.send_flags |= ibv_send_flags::IBV_SEND_SIGNALED.0;
            }
        }
        let rest = mem::replace(&mut self.sends[last].next, ptr::null_mut());
        let mut bad = ptr::null_mut();
        // SAFETY: the chain and its entry are leaked, and the region, too; the callers keep fewer
        // under way than the queue holds.
        let result = unsafe { ibv_post_send(self.qp, self.sends.as_mut_ptr(), &mut bad) };
        assert_eq!(result, 0, "post sends");
        self.sends[last].next = rest;
    }

    /// Room in the send queue, by what was signalled.
    pub(crate) fn room(&self) -> u32 {
        DEPTH - self.sent.wrapping_sub(self.completed)
    }

    /// Takes up to 32 completions: how many were receives.
    pub(crate) fn poll(&mut self) -> u32 {
        let completions = &mut *self.completions;
        // SAFETY: the array is as long as is said.
        let count = unsafe { ibv_poll_cq(self.cq, 32, completions.as_mut_ptr()) };
        let count = usize::try_from(count).expect("polling does not fail");
        let mut received = 0;
        for completion in &completions[..count] {
            assert_eq!(completion.status, ibv_wc_status::IBV_WC_SUCCESS, "a work request failed");
            if completion.wr_id == RECEIVE {
                received += 1;
            } else {
                self.completed = u32::try_from(completion.wr_id).expect("a send's count");
            }
        }
        received
    }

    /// Asks for an event with the next completion.
    pub(crate) fn arm(&mut self) {
        // SAFETY: the queue lives as long as the process.
        let result = unsafe { ibv_req_notify_cq(self.cq, 0) };
        assert_eq!(result, 0, "arm the completion queue");
    }

    /// Waits for an event; it is acknowledged with many others, for that takes a lock.
    pub(crate) fn wait(&mut self) {
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel lives as long as the process.
        let result = unsafe { ibv_get_cq_event(self.channel, &mut cq, &mut context) };
        check(result, "get a completion event");
        self.unacknowledged += 1;
        if self.unacknowledged == 1_000 {
            // SAFETY: so many events of this queue were taken and not acknowledged.
            unsafe { ibv_ack_cq_events(self.cq, self.unacknowledged) };
            self.unacknowledged = 0;
        }
    }
}

/// Receives that all take the same buffer, and sends from one that is set per post, in chains.
///
/// # Safety
/// The entries must stay where they are for as long as the chains are used.
unsafe fn chains(
    receive_entry: &'static mut ibv_sge,
    send_entry: *mut ibv_sge,
) -> (&'static mut [ibv_recv_wr], &'static mut [ibv_send_wr]) {
    // SAFETY: work requests are integers and pointers, null where optional.
    let zeroed = || unsafe { (mem::zeroed::<ibv_recv_wr>(), mem::zeroed::<ibv_send_wr>()) };
    let receives: Vec<_> = (0..DEPTH).map(|_| zeroed().0).collect();
    let sends: Vec<_> = (0..SIGNAL_EVERY).map(|_| zeroed().1).collect();
    let (receives, sends) = (receives.leak(), sends.leak());
    let receive_entry: *mut _ = receive_entry;
    for i in (0..receives.len()).rev() {
        let next = receives.get_mut(i + 1).map_or(ptr::null_mut(), |next| next as *mut _);
        receives[i].wr_id = RECEIVE;
        receives[i].next = next;
        receives[i].sg_list = receive_entry;
        receives[i].num_sge = 1;
    }
    for i in (0..sends.len()).rev() {
        let next = sends.get_mut(i + 1).map_or(ptr::null_mut(), |next| next as *mut _);
        sends[i].next = next;
        sends[i].sg_list = send_entry;
        sends[i].num_sge = 1;
        sends[i].opcode = ibv_wr_opcode::IBV_WR_SEND;
    }
    (receives, sends)
}

fn check(result: i32, what: &str) {
    assert!(result == 0, "cannot {what}: {}", io::Error::last_os_error());
}

fn require<T>(handle: *mut T, what: &str) {
    assert!(!handle.is_null(), "cannot {what}: {}", io::Error::last_os_error());
}
