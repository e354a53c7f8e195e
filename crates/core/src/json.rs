//! Messages in JSON.

use bytes::{Buf, BufMut as _, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::message::{DecodeError, Payload};

/// A message of a serde type, in JSON on the wire: for services without a `.proto` file, and a
/// model for other formats.
///
/// A value that JSON has no words for, such as a map whose keys are no strings, leaves as an empty
/// message with an error in the log, and its receiver cannot decode it.
/// ```
/// use convoke_core::{Context, Endpoint, Json, Method, Service, Status};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Order {
///     goods: String,
///     count: u32,
/// }
///
/// const PRICE: Method<Json<Order>, Json<u64>> = Method::new("shop.Shop/Price");
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let shop = Service::new().unary(PRICE, |Json(order): Json<Order>, _: Context| async move {
///     Ok::<_, Status>(Json(u64::from(order.count) * 5))
/// });
/// let endpoint = Endpoint::builder().serve(shop).start().await?;
/// let order = Order { goods: "lamp".into(), count: 3 };
/// let Json(price) = endpoint.call(PRICE, Json(order)).to(endpoint.me()).await?;
/// assert_eq!(price, 15);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Json<T>(pub T);

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned + Send + Sync> Payload for Json<T> {
    fn encode(&self, out: &mut BytesMut) {
        let start = out.len();
        if let Err(error) = serde_json::to_writer(out.writer(), &self.0) {
            out.truncate(start);
            tracing::error!(%error, "a message cannot be JSON: it leaves empty");
        }
    }

    fn decode(mut bytes: impl Buf) -> Result<Self, DecodeError> {
        let bytes = bytes.copy_to_bytes(bytes.remaining());
        serde_json::from_slice(&bytes).map(Self).map_err(DecodeError::new)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    type Map = Json<BTreeMap<String, Vec<Option<i64>>>>;

    #[test]
    fn a_value_is_its_json_and_back() {
        let map: Map = Json([("a".to_owned(), vec![Some(-1), None])].into());
        let mut out = BytesMut::from(&b"before"[..]);
        map.encode(&mut out);
        assert_eq!(&out[..], br#"before{"a":[-1,null]}"#);
        // Whatever pieces it comes in.
        let pieces = (&out[6..9]).chain(&out[9..]);
        assert_eq!(Payload::decode(pieces), Ok(map));
    }

    #[test]
    fn what_is_not_the_type_says_where() {
        let decode = |text: &[u8]| Map::decode(text).map_err(|error| error.to_string());
        let error = decode(b"{\"a\":\n[\"x\"]}").expect_err("not a number");
        assert!(error.contains("line 2"), "{error}");
        assert!(decode(b"").is_err());
        assert!(decode(b"{} {}").is_err(), "something follows");
        assert!(decode(&[b'['; 100_000]).is_err(), "nested without end");
    }

    #[test]
    fn what_cannot_be_json_leaves_empty() {
        let keys: Json<BTreeMap<Vec<u8>, u8>> = Json([(vec![1], 1)].into());
        let mut out = BytesMut::from(&b"before"[..]);
        keys.encode(&mut out);
        assert_eq!(&out[..], b"before");
    }
}
