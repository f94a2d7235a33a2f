//! Attempts at a run's calls, as its events and the error of its start report them.

use agent_core::turn::TurnError;
use serde::Deserialize;
use serde_json::Value;

use super::RunObserver;
use crate::conversation::MAX_RUN_ATTEMPTS;
use crate::fallback::AttemptReport;

/// Maximum length of the texts of a recorded attempt together, in bytes. Events of a runtime may have longer ones.
const MAX_ATTEMPT_TEXT_BYTES: usize = 1024;

impl RunObserver {
    /// Records the attempts of a run that did not begin, which its error has.
    pub fn record_start_error(&self, error: &TurnError) {
        let TurnError::Backend(error) = error else { return };
        let member = error.members().iter().find(|(name, _)| *name == "attempts");
        let reports = member.and_then(|(_, reports)| Vec::<AttemptReport>::deserialize(reports).ok());
        reports.into_iter().flatten().for_each(|report| self.push_attempt(report));
    }

    /// Records the attempt that an event `agent.debug` reports, if it is such a report.
    pub(super) fn record_attempt(&self, event: &Value) {
        if event["kind"] == "modelAttempt"
            && let Ok(report) = AttemptReport::deserialize(event)
        {
            self.push_attempt(report);
        }
    }

    fn push_attempt(&self, report: AttemptReport) {
        let mut state = self.state();
        let is_short = text_bytes(&report) <= MAX_ATTEMPT_TEXT_BYTES;
        if is_short && state.attempt_reports.len() < MAX_RUN_ATTEMPTS {
            state.attempt_reports.push(report);
        }
    }
}

/// Returns the length of an attempt's texts together, in bytes.
fn text_bytes(report: &AttemptReport) -> usize {
    let AttemptReport { provider, model, reason, request_sha256, .. } = report;
    let optional = [reason, request_sha256].into_iter().flatten();
    provider.len() + model.len() + optional.map(String::len).sum::<usize>()
}
