//! A tool's progress as `notifications/progress`, where the caller has asked for it.

use agent_core::tool::{NoProgress, Progress};
use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::RequestContext;
use tokio::sync::mpsc;

/// How many reports wait for the client. A tool does not wait for it: what is too much is left out.
const WAITING: usize = 16;

struct Reports {
    token: ProgressToken,
    sender: mpsc::Sender<ProgressNotificationParam>,
}

impl Progress for Reports {
    fn report(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        let mut report = ProgressNotificationParam::new(self.token.clone(), progress);
        report.total = total;
        report.message = message.map(str::to_owned);
        let _ = self.sender.try_send(report);
    }
}

/// Where a tool reports to, and what sends its reports, until that is dropped and all are sent.
pub(super) fn of(
    context: &RequestContext<RoleServer>,
) -> (Box<dyn Progress>, impl Future<Output = ()> + Send + '_) {
    let (progress, mut reports): (Box<dyn Progress>, _) = match context.meta.get_progress_token() {
        Some(token) => {
            let (sender, reports) = mpsc::channel(WAITING);
            (Box::new(Reports { token, sender }), Some(reports))
        }
        None => (Box::new(NoProgress), None),
    };
    let sending = async move {
        let Some(reports) = &mut reports else { return };
        while let Some(report) = reports.recv().await {
            // A client that is gone does not follow any more.
            let _ = context.peer.notify_progress(report).await;
        }
    };
    (progress, sending)
}
