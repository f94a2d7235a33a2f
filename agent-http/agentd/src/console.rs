//! `agentd console`: signs people in to the console.

use std::io::Write;

use agent_platform::console::NewConsoleCode;

use crate::cli::LinkArgs;
use crate::command_error::CommandError;
use crate::config::Env;
use crate::sign_in_link::create_link;
use crate::stores::Stores;

/// Creates a link and writes it alone on the last line, where scripts can read it.
pub(crate) async fn link(args: LinkArgs, env: &dyn Env, out: &mut dyn Write) -> Result<(), CommandError> {
    let LinkArgs { user, company, ttl, session, settings } = args;
    let config = settings.load(env)?;
    let public_url = config.public_url(config.server.listen);
    let stores = Stores::open_existing(&config).await?;
    let new = NewConsoleCode { ttl, session_idle: session, ..NewConsoleCode::new(company, user) };
    let life = humantime::format_duration(ttl);
    let heading =
        format!("Link to the console for {} at {}, valid once, for {life}:", new.user_id, new.company_id);
    let link = create_link(&stores, &public_url, new).await?;
    writeln!(out, "{heading}\n{link}")?;
    Ok(())
}
