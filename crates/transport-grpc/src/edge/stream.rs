//! A gRPC request of many messages as the items of one call.
//!
//! A task of its own passes the items on, so that replies come meanwhile. It ends with the call,
//! whoever ends that.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use convoke_core::wire::Executed;
use convoke_core::{Call, RawMessage, RequestStream, SendError};
use tokio::sync::oneshot;
use tonic::body::Body;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status, Streaming};

use super::answer::{Answer, Terms};
use super::request::Several;
use super::service::{One, Replies, answer, only_reply};
use super::{metadata, status};

/// The passing on of a client's messages. Dropped, it stops; unless the client had finished, that
/// cancels the call.
pub(super) struct Pump {
    fault: Arc<OnceLock<Status>>,
    _until_dropped: oneshot::Sender<()>,
}

impl Pump {
    fn start(mut messages: Streaming<Bytes>, mut items: RequestStream<RawMessage>) -> Self {
        let fault = Arc::<OnceLock<Status>>::default();
        let found = Arc::clone(&fault);
        let (until_dropped, dropped) = oneshot::channel();
        tokio::spawn(async move {
            let passed = tokio::select! {
                passed = pass_on(&mut messages, &mut items) => Some(passed),
                _ = dropped => None,
            };
            match passed {
                Some(Ok(())) => items.finish(),
                // Known before the call is cancelled, as which it ends.
                Some(Err(status)) => drop((found.set(status), items)),
                None => drop(items),
            }
        });
        Self { fault, _until_dropped: until_dropped }
    }

    /// Fault of the client, if its call was cancelled for one.
    pub(super) fn fault(&self) -> Option<Status> {
        self.fault.get().cloned()
    }
}

/// # Errors
/// The client's: it went away, or sent what cannot be taken.
async fn pass_on(
    messages: &mut Streaming<Bytes>,
    items: &mut RequestStream<RawMessage>,
) -> Result<(), Status> {
    loop {
        let message = match messages.message().await {
            Ok(Some(message)) => message,
            Ok(None) => return Ok(()),
            Err(error) => {
                return Err(status::own(error.code(), error.message(), Executed::Maybe));
            }
        };
        match items.send(&RawMessage::new(message)).await {
            Ok(()) => {}
            Err(error @ SendError::TooLarge { .. }) => {
                return Err(status::own(
                    Code::ResourceExhausted,
                    error.to_string(),
                    Executed::Maybe,
                ));
            }
            // The call says how it ends.
            Err(_) => return Ok(()),
        }
    }
}

type Opened = (Call<RawMessage>, Pump, Terms);

impl One {
    async fn open_stream(&mut self, (headers, messages): Several) -> Result<Opened, Status> {
        self.coming = None;
        let is_set = headers.contains_key(metadata::TIMEOUT);
        let builder = self.stream_builder(&headers)?;
        let terms = self.terms(is_set, builder.budget());
        let opened = builder.open_when_writable().await;
        let (items, call) = opened.map_err(|error| status::of_error(&error))?;
        Ok((call, Pump::start(messages, items), terms))
    }

    pub(super) async fn client_streaming(
        mut self,
        request: Several,
    ) -> Result<http::Response<Body>, Status> {
        let (call, pump, terms) = self.open_stream(request).await?;
        match only_reply(call, self.known).await {
            Ok(reply) => Ok(answer(reply, terms)),
            Err(status) => Err(pump.fault().unwrap_or(status)),
        }
    }

    /// Answers at once: a client may wait for that before it sends anything.
    pub(super) async fn streaming(
        mut self,
        request: Several,
    ) -> Result<http::Response<Body>, Status> {
        let (call, pump, terms) = self.open_stream(request).await?;
        let replies = Some(Replies::new(call, Some(pump)));
        Ok(Answer { headers: MetadataMap::new(), first: None, replies, terms }.into_http())
    }
}
