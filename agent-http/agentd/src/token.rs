//! `agentd token`: credentials, made on the operator's own machine.

use std::io::Write;

use agent_http::auth::mint_session;
use agent_http::config::{AppConfig, Env, Flags};

use crate::cli::SessionArgs;
use crate::failure::CommandError;

/// Writes a session token, alone on the last line, so that scripts can take it from there.
pub(crate) fn session(args: &SessionArgs, env: &dyn Env, out: &mut dyn Write) -> Result<(), CommandError> {
    let flags = Flags { config: args.config.clone(), ..Flags::default() };
    let config = AppConfig::load(&flags, env)?;
    let secret = config.session_secret.ok_or(CommandError::Missing("SESSION_SECRET"))?;
    let token = mint_session(&secret, &args.user, &args.company, args.ttl)?;
    let life = humantime::format_duration(args.ttl);
    writeln!(out, "Session of {} at {}, valid for {life}:", args.user, args.company)?;
    writeln!(out, "{token}")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use agent_core::role::Secret;
    use agent_http::auth::{Authenticator, Credential};
    use agent_http::request::Query;

    use super::*;

    fn run(user: &str, env: &[(&str, &str)]) -> Result<String, CommandError> {
        let args = SessionArgs {
            user: user.to_owned(),
            company: "acme".to_owned(),
            ttl: Duration::from_secs(3600),
            config: None,
        };
        let mut out = Vec::new();
        session(&args, &env.iter().copied().collect::<BTreeMap<_, _>>(), &mut out)?;
        Ok(String::from_utf8(out).expect("the output is text"))
    }

    #[test]
    fn the_last_line_signs_in() {
        let secret = "session-secret-0";
        let output = run("ann", &[("SESSION_SECRET", secret)]).expect("a token");
        assert!(output.starts_with("Session of ann at acme, valid for 1h:\n"), "{output}");
        let token = output.lines().last().expect("a last line");
        let request = http::Request::builder().header("authorization", format!("Bearer {token}")).body(());
        let (head, ()) = request.expect("a request").into_parts();
        let sessions = Authenticator::new(Some(&Secret::new(secret)), None, None);
        let Ok(Credential::Session(principal)) = sessions.authenticate(&head, &Query::of(&head.uri)) else {
            panic!("the token holds")
        };
        assert_eq!((&*principal.user_id, &*principal.company_id), ("ann", "acme"));
    }

    #[test]
    fn what_is_missing_is_named() {
        let missing = run("ann", &[]).expect_err("no secret");
        assert_eq!(
            missing.to_string(),
            "SESSION_SECRET is not configured; set it, or name a file with --config"
        );
        let short = run("ann", &[("SESSION_SECRET", "sk-1")]).expect_err("a short secret").to_string();
        assert!(short.contains("at least 16 bytes") && !short.contains("sk-1"), "{short}");
        assert!(matches!(run("", &[("SESSION_SECRET", "session-secret-0")]), Err(CommandError::Mint(_))));
    }
}
