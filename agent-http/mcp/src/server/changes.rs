//! Change notifications: `notifications/…/list_changed` and `notifications/resources/updated`.
//!
//! Subscribers and changes are local to this process. A client that misses a notification, because it reads too slowly
//! or is connected to another process, sees the change at its next request.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_core::ids::{AgentId, CompanyId};
use rmcp::RoleServer;
use rmcp::model::ResourceUpdatedNotificationParam;
use rmcp::service::{Peer, SubscriptionSink};
use tokio::sync::Semaphore;
use tokio::time;

use super::identity::Identity;

/// Maximum number of resources that a client can subscribe to.
pub(super) const MAX_SUBSCRIBED_URIS: usize = 256;
/// Maximum number of pending notifications per client; further ones are dropped.
const MAX_PENDING_NOTIFICATIONS: usize = 8;
/// Timeout for sending a notification.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(10);

/// A change that clients are notified of.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// An agent's role, and with it the tools, the prompts, and the visible resources.
    Role {
        /// The agent's company.
        company_id: CompanyId,
        /// The agent.
        agent_id: AgentId,
    },
    /// The content of a resource.
    Resource {
        /// The company that owns the resource.
        company_id: CompanyId,
        /// The resource's URI.
        uri: String,
    },
    /// The list of resources.
    Resources {
        /// The company that owns the resources.
        company_id: CompanyId,
    },
}

/// Registry of the clients that are notified of changes.
#[derive(Default)]
pub(super) struct ChangeNotifier(Mutex<Watchers>);

#[derive(Default)]
struct Watchers {
    last: u64,
    all: HashMap<u64, Watcher>,
}

struct Watcher {
    company_id: CompanyId,
    agent_id: AgentId,
    channel: NotificationChannel,
    send_permits: Arc<Semaphore>,
}

/// Channel that notifies a client.
#[derive(Clone)]
enum NotificationChannel {
    /// A session: notified of all list changes, and of the resources that it has subscribed to.
    Session(Peer<RoleServer>, HashSet<String>),
    /// A subscription with its own filter: notified of the lists in the filter, and of these resources.
    Subscription(SubscriptionSink, HashSet<String>),
}

/// Registration of a client; dropping it ends the notifications.
pub(super) struct WatchGuard {
    changes: Arc<ChangeNotifier>,
    number: u64,
}

impl ChangeNotifier {
    fn lock(&self) -> MutexGuard<'_, Watchers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a session for notifications.
    pub(super) fn watch_session(self: &Arc<Self>, identity: &Identity, peer: Peer<RoleServer>) -> WatchGuard {
        self.watch(identity, NotificationChannel::Session(peer, HashSet::new()))
    }

    /// Registers a subscription for notifications, with resource updates limited to `uris`.
    pub(super) fn watch_subscription(
        self: &Arc<Self>,
        identity: &Identity,
        sink: SubscriptionSink,
        uris: HashSet<String>,
    ) -> WatchGuard {
        self.watch(identity, NotificationChannel::Subscription(sink, uris))
    }

    fn watch(self: &Arc<Self>, identity: &Identity, channel: NotificationChannel) -> WatchGuard {
        let watcher = Watcher {
            company_id: identity.context.company_id.clone(),
            agent_id: identity.context.agent_id.clone(),
            channel,
            send_permits: Arc::new(Semaphore::new(MAX_PENDING_NOTIFICATIONS)),
        };
        let mut watchers = self.lock();
        watchers.last += 1;
        let number = watchers.last;
        watchers.all.insert(number, watcher);
        WatchGuard { changes: self.clone(), number }
    }

    /// Notifies the clients that the change concerns, without waiting for them.
    pub(super) fn announce(&self, change: &Change) {
        for watcher in self.lock().all.values() {
            let Some(notify) = watcher.notification(change) else { continue };
            let Ok(permit) = watcher.send_permits.clone().try_acquire_owned() else { continue };
            tokio::spawn(async move {
                // A client that is gone or does not read is ignored.
                let _ = time::timeout(NOTIFY_TIMEOUT, notify).await;
                drop(permit);
            });
        }
    }
}

impl Watcher {
    fn notification(&self, change: &Change) -> Option<impl Future<Output = ()> + Send + 'static> {
        let (company_id, is_concerned) = match change {
            Change::Role { company_id, agent_id } => (company_id, *agent_id == self.agent_id),
            Change::Resource { company_id, uri } => (company_id, self.channel.is_subscribed(uri)),
            Change::Resources { company_id } => (company_id, true),
        };
        let channel = self.channel.without_uris();
        let change = change.clone();
        (is_concerned && *company_id == self.company_id).then_some(channel.send(change))
    }
}

impl NotificationChannel {
    fn is_subscribed(&self, uri: &str) -> bool {
        let (Self::Session(_, uris) | Self::Subscription(_, uris)) = self;
        uris.contains(uri)
    }

    fn without_uris(&self) -> Self {
        match self {
            Self::Session(peer, _) => Self::Session(peer.clone(), HashSet::new()),
            Self::Subscription(sink, _) => Self::Subscription(sink.clone(), HashSet::new()),
        }
    }

    async fn send(self, change: Change) {
        // Notifications that cannot be sent, or that the filter excludes, are dropped.
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

impl WatchGuard {
    /// Adds a resource to the session's subscriptions; returns `false` if their limit is reached.
    pub(super) fn subscribe(&self, uri: String) -> bool {
        let mut watchers = self.changes.lock();
        let Some(Watcher { channel: NotificationChannel::Session(_, uris), .. }) =
            watchers.all.get_mut(&self.number)
        else {
            return false;
        };
        if uris.len() >= MAX_SUBSCRIBED_URIS && !uris.contains(&uri) {
            return false;
        }
        uris.insert(uri);
        true
    }

    /// Removes a resource from the session's subscriptions.
    pub(super) fn unsubscribe(&self, uri: &str) {
        if let Some(Watcher { channel: NotificationChannel::Session(_, uris), .. }) =
            self.changes.lock().all.get_mut(&self.number)
        {
            uris.remove(uri);
        }
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        // Dropped outside of the lock: the watcher owns a channel to its client, whose destructor must not run under
        // it.
        let watcher = self.changes.lock().all.remove(&self.number);
        drop(watcher);
    }
}
