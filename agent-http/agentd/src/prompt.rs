//! `agentd prompt`: preview of an agent's prompt for the terminal.

mod report;

use std::io::{IsTerminal, Write};

use crate::config::{AppConfig, Env};
use crate::stores::Stores;
use crate::{compose, weights};
use agent_core::Message;
use agent_core::ids::{AgentId, CompanyId, UserId};
use agent_core::request::{Principal, TurnRequest};
use agent_core::role::RoleSource as _;
use agent_core::tool::Caller;
use agent_core::turn::TurnError;
use agent_http::shutdown::Shutdown;
use agent_platform::approval_floor::load_approval_floor;
use agent_platform::preview::{SelectionReport, preview_turn};

use self::report::Styles;
use crate::cli::{AgentArgs, PromptArgs};
use crate::command_error::CommandError;

/// Writes the preview of a turn. Nothing is sent.
pub(crate) async fn show(args: PromptArgs, env: &dyn Env, out: &mut dyn Write) -> Result<(), CommandError> {
    let PromptArgs { agent: AgentArgs { agent, company, settings }, message, user, todo_list, json } = args;
    let config = settings.load(env)?;
    let stores = Stores::open_existing(&config).await?;
    let preview_args = PreviewArgs { agent, company, message, user, todo_list };
    let styles = if should_use_colours(env) { Styles::coloured() } else { Styles::plain() };
    show_from(&config, stores, preview_args, json, &styles, out).await
}

/// Returns true if standard output is a terminal and `NO_COLOR` is unset (<https://no-color.org>).
fn should_use_colours(env: &dyn Env) -> bool {
    std::io::stdout().is_terminal()
        && matches!(env.var("NO_COLOR"), Ok(value) if value.as_deref().unwrap_or_default().is_empty())
}

/// Parameters of the turn to preview.
struct PreviewArgs {
    agent: AgentId,
    company: Option<CompanyId>,
    message: Option<String>,
    user: Option<UserId>,
    todo_list: Option<String>,
}

async fn show_from(
    config: &AppConfig,
    stores: Stores,
    preview_args: PreviewArgs,
    json: bool,
    styles: &Styles,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let principal = principal(&stores, &preview_args).await?;
    let floor = load_approval_floor(&*stores.records, &principal.company_id).await?;
    let platform = compose::application(
        config,
        config.server.listen,
        stores,
        weights::open_configured(config)?,
        &Shutdown::default(),
    )?
    .platform;
    let messages = preview_args.message.map(Message::user).into_iter().collect();
    let turn = TurnRequest {
        todo_list_id: preview_args.todo_list,
        ..TurnRequest::new(preview_args.agent, messages)
    };
    let preview = match preview_turn(&platform, &principal, turn).await {
        Ok(preview) => preview.with_approval_floor(&floor),
        Err(TurnError::NoConnector(selection)) => {
            if !json {
                report::selection(&SelectionReport::from(&*selection), styles, out)?;
            }
            return Err(TurnError::NoConnector(selection).into());
        }
        Err(error) => return Err(error.into()),
    };
    if json {
        serde_json::to_writer(&mut *out, &preview).map_err(std::io::Error::from)?;
        return Ok(writeln!(out)?);
    }
    Ok(report::write(&preview, styles, out)?)
}

/// Returns the principal of the preview: the given user, or else the agent's owner.
async fn principal(stores: &Stores, preview_args: &PreviewArgs) -> Result<Principal, CommandError> {
    let company = stores.company_of(&preview_args.agent, preview_args.company.as_ref()).await?;
    let no_agent = || CommandError::no_agent(&preview_args.agent, Some(&company));
    let user = match &preview_args.user {
        Some(user) => user.clone(),
        None => {
            stores.roles.role(&company, &preview_args.agent).await?.ok_or_else(no_agent)?.owner_id.clone()
        }
    };
    if user.is_empty() {
        return Err(CommandError::NoUser);
    }
    Ok(Principal::new(user, company, Caller::Session))
}

#[cfg(test)]
mod tests;
