//! Tools over the user's notifications.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::builtin::{ADDITIVE, Stores, tool};
use super::page;
use crate::records::{MAX_PAGE_RECORDS, Record, StoreError, UPDATE_ATTEMPTS};
use crate::workspace::{self, MAX_NOTIFICATION_BYTES, MAX_TITLE_BYTES, local_time};
use agent_core::tool::{ExecutionContext, LocalToolRegistry, ToolError};

pub(super) fn add(tools: LocalToolRegistry, stores: &Arc<Stores>) -> LocalToolRegistry {
    tools
        .with_tool(tool(
            stores,
            "readNotifications",
            "Reads the user's notifications, the newest first, and marks them as read if requested.",
            // Marking is a write, although reading is not.
            ADDITIVE,
            read_notifications,
        ))
        .with_tool(tool(
            stores,
            "sendNotification",
            "Sends the user a notification.",
            ADDITIVE,
            send_notification,
        ))
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ReadNotificationsArguments {
    /// True to return only unread notifications.
    #[serde(default)]
    unread_only: bool,
    /// True to mark the returned notifications as read.
    #[serde(default)]
    mark_read: bool,
    /// Maximum number of notifications; 50 if omitted.
    #[schemars(range(min = 1, max = MAX_PAGE_RECORDS))]
    limit: Option<usize>,
    /// The nextCursor of the previous page.
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ReadNotificationsResult {
    /// The notifications, as they were before being marked.
    notifications: Vec<NotificationResult>,
    /// The cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NotificationResult {
    /// The notification's id.
    id: String,
    /// The subject.
    title: String,
    /// The body text.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// The time of sending, RFC 3339 in UTC.
    at: String,
    /// The same time in the user's time zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    local_time: Option<String>,
    /// The thread in which the agent sent it, if it is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    thread_id: Option<String>,
    /// The run that sent it, if it is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<String>,
    /// True if it has been read.
    read: bool,
}

impl NotificationResult {
    fn new(notification: workspace::Notification, context: &ExecutionContext) -> Self {
        let workspace::Notification { id, title, text, at, thread_id, run_id, read, .. } = notification;
        let (thread_id, run_id) = (thread_id.map(|id| id.to_string()), run_id.map(|id| id.to_string()));
        let zone = context.timezone.as_deref();
        let local_time = zone.and_then(|zone| local_time(at.parse().ok()?, zone));
        Self { id, title, text, at, local_time, thread_id, run_id, read }
    }
}

async fn read_notifications(
    stores: &Stores,
    context: &ExecutionContext,
    read: ReadNotificationsArguments,
) -> Result<ReadNotificationsResult, ToolError> {
    let records = &*stores.records;
    let list = page::parse_page(read.limit, read.cursor)?;
    let mut attempt = 1;
    loop {
        let page = workspace::list_notifications(records, context, read.unread_only, list.clone()).await?;
        if read.mark_read {
            match workspace::mark_read(records, context, &page.items).await {
                Err(StoreError::Conflict { .. }) if attempt < UPDATE_ATTEMPTS => {
                    attempt += 1;
                    continue;
                }
                marked => marked?,
            }
        }
        let shown = |record: Record<_>| NotificationResult::new(record.value, context);
        let notifications = page.items.into_iter().map(shown).collect();
        return Ok(ReadNotificationsResult { notifications, next_cursor: page.next_cursor });
    }
}

#[derive(Deserialize, JsonSchema)]
struct SendNotificationArguments {
    /// The subject, in one line.
    #[schemars(length(min = 1, max = MAX_TITLE_BYTES))]
    title: String,
    /// The body text.
    #[schemars(length(min = 1, max = MAX_NOTIFICATION_BYTES))]
    text: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct SendNotificationResult {
    /// The notification.
    notification: NotificationResult,
}

async fn send_notification(
    stores: &Stores,
    context: &ExecutionContext,
    send: SendNotificationArguments,
) -> Result<SendNotificationResult, ToolError> {
    let (records, text) = (&*stores.records, send.text.as_deref());
    let sent = workspace::send_notification(records, context, &send.title, text, stores.now()).await?;
    Ok(SendNotificationResult { notification: NotificationResult::new(sent, context) })
}
