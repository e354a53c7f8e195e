//! Addresses as users write them.

use convoke_proto::address::{Address, AddressError};

/// Addresses at which a node listens or can be dialled: text, an [`Address`], or several of either.
/// A scheme is always written, as in `tcp://127.0.0.1:7000`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an address with a scheme",
    label = "should be text such as \"tcp://127.0.0.1:7000\", or several",
    note = "an address says its scheme: `format!(\"tcp://{{}}\", socket_address)`",
    note = "another endpoint has `addresses()`"
)]
pub trait ToAddresses {
    /// The addresses, in the order in which they are tried.
    ///
    /// # Errors
    /// [`AddressError`] when a text is not one.
    fn to_addresses(&self) -> Result<Vec<Address>, AddressError>;
}

impl ToAddresses for str {
    fn to_addresses(&self) -> Result<Vec<Address>, AddressError> {
        Ok(vec![self.parse()?])
    }
}

impl ToAddresses for String {
    fn to_addresses(&self) -> Result<Vec<Address>, AddressError> {
        self.as_str().to_addresses()
    }
}

impl ToAddresses for Address {
    fn to_addresses(&self) -> Result<Vec<Address>, AddressError> {
        Ok(vec![self.clone()])
    }
}

impl<A: ToAddresses> ToAddresses for [A] {
    fn to_addresses(&self) -> Result<Vec<Address>, AddressError> {
        let each: Vec<Vec<Address>> =
            self.iter().map(ToAddresses::to_addresses).collect::<Result<_, _>>()?;
        Ok(each.concat())
    }
}

impl<A: ToAddresses, const N: usize> ToAddresses for [A; N] {
    fn to_addresses(&self) -> Result<Vec<Address>, AddressError> {
        self.as_slice().to_addresses()
    }
}

impl<A: ToAddresses> ToAddresses for Vec<A> {
    fn to_addresses(&self) -> Result<Vec<Address>, AddressError> {
        self.as_slice().to_addresses()
    }
}

impl<A: ToAddresses + ?Sized> ToAddresses for &A {
    fn to_addresses(&self) -> Result<Vec<Address>, AddressError> {
        (**self).to_addresses()
    }
}
