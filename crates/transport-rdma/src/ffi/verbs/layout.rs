//! The structs that the bindings declare by hand have the layout of C, as a C program printed it on
//! Linux with 64-bit pointers (rdma-core 44; the interface is stable). The bindings' own tests
//! leave these out.

use std::mem::{align_of, offset_of, size_of};

use rdma_sys::*;

/// Size and alignment, then offsets of fields.
macro_rules! has_layout {
    ($name:ident, $size:literal, $align:literal $(, $field:ident at $offset:literal)*) => {
        assert_eq!(size_of::<$name>(), $size, "size of {}", stringify!($name));
        assert_eq!(align_of::<$name>(), $align, "alignment of {}", stringify!($name));
        $(assert_eq!(
            offset_of!($name, $field), $offset, "{}.{}", stringify!($name), stringify!($field)
        );)*
    };
}

#[test]
fn work_requests_and_completions_are_as_in_c() {
    has_layout!(ibv_wc, 48, 8, wr_id at 0, status at 8, opcode at 12, vendor_err at 16, byte_len at 20,
        imm_data_invalidated_rkey_union at 24, qp_num at 28, wc_flags at 36, dlid_path_bits at 45);
    has_layout!(ibv_send_wr, 128, 8, wr_id at 0, next at 8, sg_list at 16, num_sge at 24, opcode at 28,
        send_flags at 32, imm_data_invalidated_rkey_union at 36, wr at 40, qp_type at 72,
        bind_mw_tso_union at 80);
    has_layout!(ibv_recv_wr, 32, 8);
    has_layout!(ibv_sge, 16, 8);
}

#[test]
fn events_are_as_in_c() {
    has_layout!(ibv_async_event, 16, 8, element at 0, event_type at 8);
    has_layout!(rdma_cm_event, 80, 8, id at 0, listen_id at 8, event at 16, status at 20, param at 24);
    has_layout!(rdma_conn_param, 24, 8, private_data at 0, private_data_len at 8, retry_count at 12,
        rnr_retry_count at 13, qp_num at 16);
    has_layout!(rdma_ud_param, 56, 8);
}

#[test]
fn identifiers_and_attributes_are_as_in_c() {
    has_layout!(rdma_cm_id, 416, 8, verbs at 0, context at 16, qp at 24, route at 32, ps at 344, qp_type at 408);
    has_layout!(rdma_addr, 296, 8, src_addr_union at 0, dst_addr_union at 128, addr at 256);
    has_layout!(ibv_qp_attr, 144, 8, timeout at 130, retry_cnt at 131, rnr_retry at 132);
    has_layout!(ibv_qp_init_attr, 64, 8);
    has_layout!(ibv_device_attr, 232, 8);
}
