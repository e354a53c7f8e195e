//! The `Debug` of messages with maps.

use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, ItemStruct, Meta, parse_quote};

/// Derives it. That of prost 0.14 names the crate `::prost` where a message has a `BTreeMap`,
/// wherever prost was told to find itself; a crate of users need not depend on it.
pub(super) struct DerivedDebug;

impl VisitMut for DerivedDebug {
    fn visit_item_struct_mut(&mut self, item: &mut ItemStruct) {
        let has_map = item.fields.iter().any(|field| says(&field.attrs, "btree_map"));
        if has_map && !says(&item.attrs, "skip_debug") {
            item.attrs.push(parse_quote!(#[prost(skip_debug)]));
            item.attrs.push(parse_quote!(#[derive(Debug)]));
        }
        visit_mut::visit_item_struct_mut(self, item);
    }
}

/// True when prost is told so by one of these attributes.
fn says(attributes: &[Attribute], what: &str) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("prost") => list.tokens.to_string().contains(what),
        _ => false,
    })
}
