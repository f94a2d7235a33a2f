//! The suite of scheduler clients, with the HTTP client and a real scheduler.

use agent_client::outbound::{OutboundClient, OutboundConfig};
use agent_client::pulse::PulseClient;
use agent_core::conformance::Scenario;
use agent_platform::conformance::{self, PulseSubject};
use url::Url;

use super::*;
use crate::support::vendor::{Step, Vendor};

fn client_of(url: &str, secret: &str) -> PulseClient {
    let outbound = OutboundClient::new(OutboundConfig::default()).expect("a client");
    PulseClient::new(outbound, Url::parse(url).expect("an address"), Secret::new(secret))
}

/// Starts a server whose response to every call of the suite is `steps`.
async fn broken_scheduler(steps: Vec<Step>) -> Vendor {
    let vendor = Vendor::start().await;
    vendor.on_all(steps);
    vendor
}

#[tokio::test]
async fn the_http_client_of_the_scheduler_conforms() {
    let jobs: Arc<dyn JobStore> = Arc::new(MemoryJobStore::default());
    let scheduler = server::scheduler(jobs, "http://127.0.0.1:9/callback", &[]).await;
    let hanging = broken_scheduler(vec![Step::Stall]).await;
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"job";
    let breaking_off = broken_scheduler(vec![Step::Send(head.into()), Step::Close]).await;
    conformance::pulse(async |scenario| {
        let subject = |url: &str| PulseSubject { pulse: Arc::new(client_of(url, PULSE_SECRET)), open: None };
        Some(match scenario {
            Scenario::Completes => subject(&scheduler.url("")),
            Scenario::Hangs => {
                let (received, ended) = (hanging.request_counter(), hanging.disconnect_counter());
                let open = Box::new(move || received() - ended());
                PulseSubject { open: Some(open), ..subject(&format!("http://{}", hanging.address)) }
            }
            Scenario::Truncates => subject(&format!("http://{}", breaking_off.address)),
            _ => subject(&refused_url()),
        })
    })
    .await;
}

#[tokio::test]
async fn a_scheduler_that_refuses_the_secret_is_an_outage() {
    let jobs: Arc<dyn JobStore> = Arc::new(MemoryJobStore::default());
    let scheduler = server::scheduler(jobs, "http://127.0.0.1:9/callback", &[]).await;
    conformance::pulse(async |scenario| {
        let secret = match scenario {
            Scenario::Completes => PULSE_SECRET,
            Scenario::Rejects => "another-secret-of-enough-length",
            _ => return None,
        };
        let pulse = Arc::new(client_of(&scheduler.url(""), secret));
        Some(PulseSubject { pulse, open: None })
    })
    .await;
}
