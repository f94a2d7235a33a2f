//! The scheduler's own metrics, beside the metrics of HTTP requests.

use agent_jobs::job::{AttemptOutcome, JobCounts, JobState};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use crate::metrics::Metrics;

/// Upper bounds, in seconds, of the lateness histogram's buckets.
const LATENESS_BUCKETS_SECONDS: [f64; 12] =
    [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 10.0, 60.0, 600.0];

/// Metrics of the job store and the delivery worker.
#[derive(Debug)]
pub struct SchedulerMetrics {
    jobs: Family<StateLabel, Gauge>,
    lag: Gauge<f64, std::sync::atomic::AtomicU64>,
    deliveries: Family<OutcomeLabel, Counter>,
    lateness: Histogram,
    delivering: Gauge,
    ahead: Gauge,
    store_errors: Counter,
    unreadable: Gauge,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

impl SchedulerMetrics {
    /// Registers the scheduler's metrics.
    pub fn new(metrics: &Metrics) -> Self {
        let meters = Self {
            jobs: Family::default(),
            lag: Gauge::default(),
            deliveries: Family::default(),
            lateness: Histogram::new(LATENESS_BUCKETS_SECONDS),
            delivering: Gauge::default(),
            ahead: Gauge::default(),
            store_errors: Counter::default(),
            unreadable: Gauge::default(),
        };
        metrics.register(|registry| {
            registry.register("jobs", "Number of jobs by state", meters.jobs.clone());
            registry.register(
                "job_lag_seconds",
                "Time for which the oldest due job has waited to be claimed",
                meters.lag.clone(),
            );
            registry.register("job_deliveries", "Deliveries by outcome", meters.deliveries.clone());
            registry.register(
                "job_lateness_seconds",
                "Delay from the due time of a delivery to its start",
                meters.lateness.clone(),
            );
            registry.register(
                "job_deliveries_in_flight",
                "Number of deliveries in progress in this process",
                meters.delivering.clone(),
            );
            registry.register(
                "jobs_claimed_ahead",
                "Number of jobs that this process has claimed but not started to deliver",
                meters.ahead.clone(),
            );
            registry.register(
                "job_store_errors",
                "Number of failed store operations of the worker",
                meters.store_errors.clone(),
            );
            registry.register(
                "jobs_unreadable",
                "Number of stored jobs that this process could not read",
                meters.unreadable.clone(),
            );
        });
        meters
    }

    pub(super) fn record_lateness(&self, lateness: f64) {
        self.lateness.observe(lateness);
    }

    pub(super) fn record_outcome(&self, outcome: &'static str) {
        self.deliveries.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    pub(super) fn record_store_error(&self) {
        self.store_errors.inc();
    }

    pub(super) fn set_claimed(&self, delivering: usize, waiting: usize) {
        self.delivering.set(i64::try_from(delivering).unwrap_or(i64::MAX));
        self.ahead.set(i64::try_from(waiting).unwrap_or(i64::MAX));
    }

    pub(super) fn set_job_counts(&self, counts: &JobCounts) {
        for state in JobState::ALL {
            let count = counts.by_state.get(&state).copied().unwrap_or_default();
            let gauge = self.jobs.get_or_create_owned(&StateLabel { state: state.as_str() });
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        self.unreadable.set(i64::try_from(counts.unreadable).unwrap_or(i64::MAX));
        self.lag.set(counts.lag.as_secs_f64());
    }
}

/// Returns the metric label of an outcome.
pub(super) fn outcome_label(outcome: &AttemptOutcome) -> &'static str {
    match outcome {
        AttemptOutcome::Succeeded => "succeeded",
        AttemptOutcome::Failed { .. } | AttemptOutcome::Abandoned { .. } => "failed",
        AttemptOutcome::Rejected { .. } => "rejected",
        AttemptOutcome::Deferred { .. } => "deferred",
        AttemptOutcome::Postponed { .. } => "postponed",
        AttemptOutcome::Gone => "gone",
    }
}
