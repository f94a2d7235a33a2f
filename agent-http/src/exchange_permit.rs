//! Permits of a company's requests, which a large response holds until its client has read it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use agent_core::ids::CompanyId;
use agent_platform::company_permits::{CompanyPermit, CompanyPermits};
use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;

use crate::body::{BodyError, ResponseBody};
use crate::error::HttpError;
use crate::service::HandlerResult;

/// Size of a whole response, in bytes, from which it holds a permit. The kernel's buffer of a connection takes a smaller one at
/// once: its memory is freed, and its connection is idle, although its client does not read.
const MIN_HELD_BYTES: u64 = 32 * 1024;

/// Permit of one exchange of a company.
#[derive(Debug)]
pub(crate) enum ExchangePermit {
    /// Held from the authentication of the request on, for one that may have an effect: the effect is not made if its
    /// response may not be sent.
    Held(CompanyPermit),
    /// Acquired for the response alone, of a request without an effect: few have a large one.
    ForResponse {
        /// Permits to acquire one of.
        permits: Arc<CompanyPermits>,
        /// Company of the request.
        company_id: CompanyId,
        /// Error if no permit is free.
        refusal: fn() -> HttpError,
    },
    /// Acquired for the response of a request that has waited for its work. It is not refused, since the work has had its
    /// effect: requests that begin later are.
    AfterWork {
        /// Permits to acquire one of.
        permits: Arc<CompanyPermits>,
        /// Company of the request.
        company_id: CompanyId,
    },
}

impl ExchangePermit {
    /// Divides the permit of a request that waits for a run or an extraction into one for its body and one for its response.
    /// None is held meanwhile: the work may last for minutes, and other limits bound how many requests wait.
    pub(crate) fn split_around_work(self) -> (Option<CompanyPermit>, Self) {
        match self {
            Self::Held(permit) => {
                let (permits, company_id) = permit.origin();
                let response = Self::AfterWork { permits: permits.clone(), company_id: company_id.clone() };
                (Some(permit), response)
            }
            other => (None, other),
        }
    }

    /// Returns the response, which holds the permit until all of it is sent if it is whole and large. A stream holds none, nor
    /// does a response that [holds one](hold_until_sent) already.
    ///
    /// # Errors
    /// 429 if the company has no permit for the response.
    pub(crate) fn hold(self, response: Response<ResponseBody>) -> HandlerResult {
        let is_small = response.body().size_hint().exact().is_none_or(|bytes| bytes < MIN_HELD_BYTES);
        if is_small || response.extensions().get::<HoldsPermit>().is_some() {
            return Ok(response);
        }
        let permit = match self {
            Self::Held(permit) => permit,
            Self::ForResponse { permits, company_id, refusal } => {
                permits.try_acquire(&company_id).ok_or_else(refusal)?
            }
            Self::AfterWork { permits, company_id } => permits.acquire_beyond(&company_id),
        };
        Ok(hold_until_sent(response, permit))
    }
}

/// Marker in the extensions of a response that holds a permit.
#[derive(Clone, Copy)]
struct HoldsPermit;

/// Returns the response, whose data hold the permit until they are sent: the server drops a body before the last of its data are.
pub(crate) fn hold_until_sent<P: Send + Sync + 'static>(
    mut response: Response<ResponseBody>,
    permit: P,
) -> Response<ResponseBody> {
    response.extensions_mut().insert(HoldsPermit);
    response.map(|body| HeldBody { body, permit: Arc::new(permit) }.boxed_unsync())
}

/// Returns bytes that hold a permit until they are dropped, as the server does once it has sent them.
pub(crate) fn hold_bytes<P: Send + Sync + 'static>(bytes: Bytes, permit: &Arc<P>) -> Bytes {
    Bytes::from_owner(HeldBytes { bytes, _permit: permit.clone() })
}

/// Bytes with their permit.
struct HeldBytes<P> {
    bytes: Bytes,
    _permit: Arc<P>,
}

impl<P> AsRef<[u8]> for HeldBytes<P> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Body whose data hold a permit.
struct HeldBody<P> {
    body: ResponseBody,
    permit: Arc<P>,
}

impl<P: Send + Sync + 'static> Body for HeldBody<P> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Self { body, permit } = self.get_mut();
        let frame = ready!(Pin::new(body).poll_frame(cx));
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(|bytes| hold_bytes(bytes, permit)))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::{full, streaming};
    use crate::error::Code;

    fn refusal() -> HttpError {
        HttpError::rate_limited(None)
    }

    fn hold(permits: &Arc<CompanyPermits>, body: ResponseBody) -> HandlerResult {
        let (permits, company_id) = (permits.clone(), CompanyId::from("c"));
        ExchangePermit::ForResponse { permits, company_id, refusal }.hold(Response::new(body))
    }

    #[tokio::test]
    async fn a_large_whole_response_holds_its_permit_until_its_data_are_dropped() {
        let permits = CompanyPermits::new(usize::MAX, 1);
        let large = || full(vec![7; MIN_HELD_BYTES as usize]);
        let mut body = hold(&permits, large()).expect("a permit").into_body();
        assert_eq!(body.size_hint().exact(), Some(MIN_HELD_BYTES), "its length is sent");
        assert_eq!(hold(&permits, large()).expect_err("it is held").code(), Code::RateLimited);
        let data = body.frame().await.expect("a frame").expect("data").into_data().expect("data");
        assert!(body.is_end_stream() && data.iter().all(|byte| *byte == 7));
        drop(body);
        assert!(hold(&permits, large()).is_err(), "the data are not sent yet");
        assert!(hold(&permits, full("small")).is_ok(), "needs none");
        let stream = futures_util::stream::iter([Ok::<_, BodyError>(Bytes::from_static(&[7; 1 << 16]))]);
        assert!(hold(&permits, streaming(stream)).is_ok(), "is counted elsewhere");
        let (permits_of_company, company_id) = (permits.clone(), CompanyId::from("c"));
        let permit = ExchangePermit::ForResponse { permits: permits_of_company, company_id, refusal };
        assert!(permit.hold(hold_until_sent(Response::new(large()), ())).is_ok(), "holds another");
        drop(data);
        assert!(hold(&permits, large()).is_ok());
    }

    #[test]
    fn a_request_holds_no_permit_while_it_waits_for_its_work() {
        let (permits, company_id) = (CompanyPermits::new(usize::MAX, 1), CompanyId::from("c"));
        let admit = || permits.try_acquire(&company_id).map(ExchangePermit::Held);
        let large = || full(vec![7; MIN_HELD_BYTES as usize]);
        let (of_body, of_response) = admit().expect("a permit").split_around_work();
        assert!(of_body.is_some() && admit().is_none(), "its body is read");
        drop(of_body);
        let other = admit().expect("it waits for its work");
        let response = of_response.hold(Response::new(large())).expect("what was begun is not refused");
        drop(other);
        assert!(admit().is_none(), "its response is read");
        drop(response);
        assert!(admit().is_some());
    }
}
