//! Telling clients what has changed: `notifications/…/list_changed` and `notifications/resources/updated`.
//!
//! Who is told is known in this process alone, and so are the changes that it makes. A client that misses a
//! notification, because it reads too slowly or is connected elsewhere, sees the change when it asks again.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::ResourceUpdatedNotificationParam;
use rmcp::service::{Peer, SubscriptionSink};
use tokio::sync::Semaphore;
use tokio::time;

use super::identity::Identity;

/// How many resources a client is told of.
pub(super) const MOST_URIS: usize = 256;
/// How many notifications wait for a client.
const WAITING: usize = 8;
/// How long one waits.
const PATIENCE: Duration = Duration::from_secs(10);

/// What has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// An agent's role, and with it the tools, the prompts, and which resources may be seen.
    Role {
        /// The agent's company.
        company_id: String,
        /// The agent.
        agent_id: String,
    },
    /// A resource.
    Resource {
        /// The company whose it is.
        company_id: String,
        /// Its address.
        uri: String,
    },
    /// Which resources there are.
    Resources {
        /// The company whose they are.
        company_id: String,
    },
}

/// Who is to be told of what.
#[derive(Default)]
pub(super) struct Changes(Mutex<Watchers>);

#[derive(Default)]
struct Watchers {
    last: u64,
    all: HashMap<u64, Watcher>,
}

struct Watcher {
    company_id: String,
    agent_id: String,
    outlet: Outlet,
    room: Arc<Semaphore>,
}

/// How a client is told.
#[derive(Clone)]
enum Outlet {
    /// By its session: of all lists, and of the resources that it has named.
    Session(Peer<RoleServer>, HashSet<String>),
    /// By its subscription, which has a filter of its own: of the lists in it, and of these resources.
    Subscription(SubscriptionSink, HashSet<String>),
}

/// A client that is told until this is dropped.
pub(super) struct Watch {
    changes: Arc<Changes>,
    number: u64,
}

impl Changes {
    fn lock(&self) -> MutexGuard<'_, Watchers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells a session of changes from now on.
    pub(super) fn watch_session(self: &Arc<Self>, who: &Identity, peer: Peer<RoleServer>) -> Watch {
        self.watch(who, Outlet::Session(peer, HashSet::new()))
    }

    /// Tells a subscription of changes from now on, of resources only of `uris`.
    pub(super) fn watch_subscription(
        self: &Arc<Self>,
        who: &Identity,
        sink: SubscriptionSink,
        uris: HashSet<String>,
    ) -> Watch {
        self.watch(who, Outlet::Subscription(sink, uris))
    }

    fn watch(self: &Arc<Self>, who: &Identity, outlet: Outlet) -> Watch {
        let watcher = Watcher {
            company_id: who.context.company_id.clone(),
            agent_id: who.context.agent_id.clone(),
            outlet,
            room: Arc::new(Semaphore::new(WAITING)),
        };
        let mut watchers = self.lock();
        watchers.last += 1;
        let number = watchers.last;
        watchers.all.insert(number, watcher);
        Watch { changes: self.clone(), number }
    }

    /// Tells whom it concerns. Nobody is waited for.
    pub(super) fn announce(&self, change: &Change) {
        for watcher in self.lock().all.values() {
            let Some(notify) = watcher.notification(change) else { continue };
            let Ok(room) = watcher.room.clone().try_acquire_owned() else { continue };
            tokio::spawn(async move {
                // A client that is gone or does not read is none of the change's business.
                let _ = time::timeout(PATIENCE, notify).await;
                drop(room);
            });
        }
    }
}

impl Watcher {
    fn notification(&self, change: &Change) -> Option<impl Future<Output = ()> + Send + 'static> {
        let (company_id, concerned) = match change {
            Change::Role { company_id, agent_id } => (company_id, *agent_id == self.agent_id),
            Change::Resource { company_id, uri } => (company_id, self.outlet.follows(uri)),
            Change::Resources { company_id } => (company_id, true),
        };
        let outlet = self.outlet.without_uris();
        let change = change.clone();
        (concerned && *company_id == self.company_id).then_some(outlet.tell(change))
    }
}

impl Outlet {
    fn follows(&self, uri: &str) -> bool {
        let (Self::Session(_, uris) | Self::Subscription(_, uris)) = self;
        uris.contains(uri)
    }

    fn without_uris(&self) -> Self {
        match self {
            Self::Session(peer, _) => Self::Session(peer.clone(), HashSet::new()),
            Self::Subscription(sink, _) => Self::Subscription(sink.clone(), HashSet::new()),
        }
    }

    async fn tell(self, change: Change) {
        // What cannot be sent, or was filtered out, is not sent.
        match (self, change) {
            (Self::Session(peer, _), Change::Role { .. }) => {
                let _ = peer.notify_tool_list_changed().await;
                let _ = peer.notify_prompt_list_changed().await;
                let _ = peer.notify_resource_list_changed().await;
            }
            (Self::Session(peer, _), Change::Resource { uri, .. }) => {
                let _ = peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)).await;
            }
            (Self::Session(peer, _), Change::Resources { .. }) => {
                let _ = peer.notify_resource_list_changed().await;
            }
            (Self::Subscription(sink, _), Change::Role { .. }) => {
                let _ = sink.notify_tool_list_changed().await;
                let _ = sink.notify_prompt_list_changed().await;
                let _ = sink.notify_resource_list_changed().await;
            }
            (Self::Subscription(sink, _), Change::Resource { uri, .. }) => {
                let _ = sink.notify_resource_updated(uri).await;
            }
            (Self::Subscription(sink, _), Change::Resources { .. }) => {
                let _ = sink.notify_resource_list_changed().await;
            }
        }
    }
}

impl Watch {
    /// Tells the session of a resource's changes too, and says whether there is room for that.
    pub(super) fn follow(&self, uri: String) -> bool {
        let mut watchers = self.changes.lock();
        let Some(Watcher { outlet: Outlet::Session(_, uris), .. }) = watchers.all.get_mut(&self.number)
        else {
            return false;
        };
        if uris.len() >= MOST_URIS && !uris.contains(&uri) {
            return false;
        }
        uris.insert(uri);
        true
    }

    /// Tells the session of a resource's changes no more.
    pub(super) fn forget(&self, uri: &str) {
        if let Some(Watcher { outlet: Outlet::Session(_, uris), .. }) =
            self.changes.lock().all.get_mut(&self.number)
        {
            uris.remove(uri);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // The watcher holds a way to its client, whose end must not run while the others are locked.
        let watcher = self.changes.lock().all.remove(&self.number);
        drop(watcher);
    }
}
