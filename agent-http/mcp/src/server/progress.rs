//! Forwards a tool's progress as `notifications/progress`, if the client requested it.

use agent_core::tool::{NoProgress, Progress};
use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::RequestContext;
use tokio::sync::mpsc;

/// Maximum number of pending reports. A tool never waits for the client: reports above the limit are dropped.
const MAX_PENDING_REPORTS: usize = 16;

/// Sends a tool's reports to a channel, as notifications for `token`.
pub(super) struct ProgressSender {
    token: ProgressToken,
    sender: mpsc::Sender<ProgressNotificationParam>,
}

impl ProgressSender {
    /// Returns a sender and its channel.
    pub(super) fn channel(token: ProgressToken) -> (Self, mpsc::Receiver<ProgressNotificationParam>) {
        let (sender, reports) = mpsc::channel(MAX_PENDING_REPORTS);
        (Self { token, sender }, reports)
    }
}

impl Progress for ProgressSender {
    fn report(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        let mut report = ProgressNotificationParam::new(self.token.clone(), progress);
        report.total = total;
        report.message = message.map(str::to_owned);
        let _ = self.sender.try_send(report);
    }
}

/// Returns the reporter for a tool, and a future that sends its reports; the future ends when the reporter is dropped
/// and all reports are sent.
pub(super) fn progress_channel(
    context: &RequestContext<RoleServer>,
) -> (Box<dyn Progress>, impl Future<Output = ()> + Send + '_) {
    let (progress, mut reports): (Box<dyn Progress>, _) = match context.meta.get_progress_token() {
        Some(token) => {
            let (sender, reports) = ProgressSender::channel(token);
            (Box::new(sender), Some(reports))
        }
        None => (Box::new(NoProgress), None),
    };
    let send_reports = async move {
        let Some(reports) = &mut reports else { return };
        while let Some(report) = reports.recv().await {
            // Errors are ignored: the client has disconnected.
            let _ = context.peer.notify_progress(report).await;
        }
    };
    (progress, send_reports)
}
