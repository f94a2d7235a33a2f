//! Spawner of background tasks.

use std::pin::Pin;
use std::sync::Arc;

use agent_platform::spawner::Spawner;
use tokio::runtime::Handle;

/// Task that outlives the request that needs it.
type BackgroundTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Creates the spawner of background tasks. They do not run on the runtime of the connection that needs them: those end
/// with the server.
pub(super) fn background_spawner() -> Arc<dyn Spawner> {
    let process = Handle::current();
    Arc::new(move |task: BackgroundTask| drop(process.spawn(task)))
}
