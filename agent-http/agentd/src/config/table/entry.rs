//! Building blocks of the table's entries.

use super::super::Service;
use super::super::setting::{Setting, SettingKind};

pub(super) const APP: &[Service] = &[Service::App];

pub(super) const RUNTIME: &[Service] = &[Service::Runtime];

pub(super) const SCHEDULER: &[Service] = &[Service::Scheduler];

/// Services that use models and tools.
pub(super) const APP_AND_RUNTIME: &[Service] = &[Service::App, Service::Runtime];

pub(super) const APP_AND_SCHEDULER: &[Service] = &[Service::App, Service::Scheduler];

pub(super) const ALL_SERVICES: &[Service] = &[Service::App, Service::Runtime, Service::Scheduler];

/// Kind of a secret that the operator chooses; the minimum length makes guessing infeasible.
pub(super) const OPERATOR_SECRET: SettingKind = SettingKind::Secret { min_bytes: 16 };

/// Maximum of any duration in milliseconds: one day.
pub(super) const DAY_MS: u64 = 24 * 60 * 60 * 1000;

pub(super) const fn setting(
    name: &'static str,
    services: &'static [Service],
    kind: SettingKind,
    default: &'static [&'static str],
    doc: &'static str,
) -> Setting {
    Setting { name, services, kind, default, doc }
}
