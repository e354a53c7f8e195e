//! A service of Thrift, as its interface file would say:
//!
//! ```thrift
//! exception NotFound { 1: required string message }
//! service Echo {
//!   binary Unary(1: required binary body)
//!   binary Refused(1: required binary body) throws (1: NotFound not_found)
//! }
//! ```
//!
//! By hand, where volo-build would generate it: that brings a git library in C and a crate under a
//! licence that is not permissive. Arguments and results have one field each, so one type does for
//! all of them.

use std::pin::Pin;

use bytes::Bytes;
use pilota::FastStr;
use pilota::thrift::{
    Message, ProtocolExceptionKind, TAsyncInputProtocol, TInputProtocol, TLengthProtocol,
    TLengthProtocolExt as _, TMessageIdentifier, TOutputProtocol, TOutputProtocolExt as _,
    TStructIdentifier, TType, ThriftException, new_protocol_exception,
};
use volo_thrift::EntryMessage;

/// Name of the method that echoes.
pub(crate) const UNARY: &str = "Unary";
/// Name of the method that fails.
pub(crate) const REFUSED: &str = "Refused";

/// A call or an answer: its method, and the one field of the struct that it carries.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) method: FastStr,
    pub(crate) field: Field,
}

/// A struct by its one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    /// Bytes or text.
    Plain(i16, Bytes),
    /// A struct of one plain field with the number 1, such as an exception.
    Nested(i16, Bytes),
}

impl Entry {
    /// A call of a method.
    pub(crate) fn call(method: &'static str, body: Bytes) -> Self {
        Self { method: FastStr::from_static_str(method), field: Field::Plain(1, body) }
    }

    /// The answer to a call: what it echoes, or the exception that it throws.
    pub(crate) fn answer(self) -> Self {
        let field = match self.field {
            Field::Plain(1, body) if self.method == UNARY => Field::Plain(0, body),
            _ => Field::Nested(1, Bytes::from_static(b"nothing here")),
        };
        Self { field, ..self }
    }

    /// The body of an answer, or the text of the exception.
    pub(crate) fn into_result(self) -> Result<Bytes, String> {
        match self.field {
            Field::Plain(_, body) => Ok(body),
            Field::Nested(_, text) => Err(String::from_utf8_lossy(&text).into_owned()),
        }
    }
}

impl EntryMessage for Entry {
    fn encode<T: TOutputProtocol>(&self, protocol: &mut T) -> Result<(), ThriftException> {
        self.field.encode(protocol)
    }

    fn decode<T: TInputProtocol>(
        protocol: &mut T,
        named: &TMessageIdentifier,
    ) -> Result<Self, ThriftException> {
        Ok(Self { method: named.name.clone(), field: Field::decode(protocol)? })
    }

    async fn decode_async<T: TAsyncInputProtocol>(
        protocol: &mut T,
        named: &TMessageIdentifier,
    ) -> Result<Self, ThriftException> {
        Ok(Self { method: named.name.clone(), field: Field::decode_async(protocol).await? })
    }

    fn size<T: TLengthProtocol>(&self, protocol: &mut T) -> usize {
        self.field.size(protocol)
    }
}

/// Names of structs do not travel.
const STRUCT: TStructIdentifier = TStructIdentifier { name: "" };

impl Field {
    /// The inner struct of a nested field.
    fn inner(bytes: &Bytes) -> Self {
        Self::Plain(1, bytes.clone())
    }

    fn nested(id: i16, inner: Self) -> Result<Self, ThriftException> {
        match inner {
            Self::Plain(_, bytes) => Ok(Self::Nested(id, bytes)),
            Self::Nested(..) => Err(unexpected()),
        }
    }
}

impl Message for Field {
    fn encode<T: TOutputProtocol>(&self, protocol: &mut T) -> Result<(), ThriftException> {
        protocol.write_struct_begin(&STRUCT)?;
        match self {
            Self::Plain(id, bytes) => protocol.write_bytes_field(*id, bytes.clone())?,
            Self::Nested(id, bytes) => {
                protocol.write_struct_field(*id, &Self::inner(bytes), TType::Struct)?;
            }
        }
        protocol.write_field_stop()?;
        protocol.write_struct_end()
    }

    fn decode<T: TInputProtocol>(protocol: &mut T) -> Result<Self, ThriftException> {
        let mut found = None;
        protocol.read_struct_begin()?;
        loop {
            let field = protocol.read_field_begin()?;
            match (field.field_type, field.id) {
                (TType::Stop, _) => break,
                (TType::Binary, Some(id)) => found = Some(Self::Plain(id, protocol.read_bytes()?)),
                (TType::Struct, Some(id)) => {
                    found = Some(Self::nested(id, Self::decode(protocol)?)?);
                }
                (other, _) => drop(protocol.skip(other)?),
            }
            protocol.read_field_end()?;
        }
        protocol.read_struct_end()?;
        found.ok_or_else(unexpected)
    }

    #[expect(refining_impl_trait, reason = "it waits for itself, so it has to be boxed")]
    fn decode_async<T: TAsyncInputProtocol>(
        protocol: &mut T,
    ) -> Pin<Box<dyn Future<Output = Result<Self, ThriftException>> + Send + '_>> {
        Box::pin(async move {
            let mut found = None;
            protocol.read_struct_begin().await?;
            loop {
                let field = protocol.read_field_begin().await?;
                match (field.field_type, field.id) {
                    (TType::Stop, _) => break,
                    (TType::Binary, Some(id)) => {
                        found = Some(Self::Plain(id, protocol.read_bytes().await?));
                    }
                    (TType::Struct, Some(id)) => {
                        found = Some(Self::nested(id, Self::decode_async(protocol).await?)?);
                    }
                    (other, _) => protocol.skip(other).await?,
                }
                protocol.read_field_end().await?;
            }
            protocol.read_struct_end().await?;
            found.ok_or_else(unexpected)
        })
    }

    fn size<T: TLengthProtocol>(&self, protocol: &mut T) -> usize {
        let field = match self {
            Self::Plain(id, bytes) => protocol.bytes_field_len(Some(*id), bytes),
            Self::Nested(id, bytes) => protocol.struct_field_len(Some(*id), &Self::inner(bytes)),
        };
        protocol.struct_begin_len(&STRUCT)
            + field
            + protocol.field_stop_len()
            + protocol.struct_end_len()
    }
}

fn unexpected() -> ThriftException {
    new_protocol_exception(ProtocolExceptionKind::InvalidData, "not the field of this service")
}
