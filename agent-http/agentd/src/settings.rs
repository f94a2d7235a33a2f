//! `agentd config`: checks and prints the configuration of services.

use std::io::Write;

use crate::config::{
    AppConfig, ConfigError, Env, ResolvedSettings, RuntimeConfig, SchedulerConfig, misspelt_variables,
};

use crate::cli::{ConfigArgs, ServiceName};
use crate::command_error::CommandError;

const SERVICES: &[ServiceName] = &[ServiceName::App, ServiceName::Runtime, ServiceName::Scheduler];

/// Writes all configuration errors, by service, and warnings of variables that are probably misspelt settings.
pub(crate) fn check(args: &ConfigArgs, env: &dyn Env, out: &mut dyn Write) -> Result<(), CommandError> {
    let mut has_errors = false;
    for name in services(args) {
        if args.name.is_none() && is_unconfigured(name, args, env)? {
            writeln!(out, "{}: not configured", name.service())?;
            continue;
        }
        match load(name, args, env) {
            Ok(()) => writeln!(out, "{}: ok", name.service())?,
            Err(errors) => {
                has_errors = true;
                for error in errors.0 {
                    writeln!(out, "{}: {error}", name.service())?;
                }
            }
        }
    }
    for warning in misspelt_variables(env) {
        writeln!(out, "warning: {warning}")?;
    }
    if has_errors { Err(CommandError::InvalidConfig) } else { Ok(()) }
}

/// Writes the settings as TOML, by service.
pub(crate) fn print(args: &ConfigArgs, env: &dyn Env, out: &mut dyn Write) -> Result<(), CommandError> {
    for name in services(args) {
        let resolved = ResolvedSettings::new(name.service(), &args.service.flags(), env)?;
        write!(out, "# {}\n{}", name.service(), resolved.print())?;
    }
    Ok(())
}

fn services(args: &ConfigArgs) -> Vec<ServiceName> {
    args.name.map_or_else(|| SERVICES.to_vec(), |name| vec![name])
}

/// Returns true if the scheduler is not configured. It cannot run without these two settings, and not every
/// installation has a scheduler, so `config check` without a service reports it as not configured instead of
/// failing.
fn is_unconfigured(name: ServiceName, args: &ConfigArgs, env: &dyn Env) -> Result<bool, ConfigError> {
    if !matches!(name, ServiceName::Scheduler) {
        return Ok(false);
    }
    let resolved = ResolvedSettings::new(name.service(), &args.service.flags(), env)?;
    Ok(!resolved.is_given("PULSE_SECRET") && !resolved.is_given("CALLBACK_URL"))
}

fn load(name: ServiceName, args: &ConfigArgs, env: &dyn Env) -> Result<(), ConfigError> {
    let flags = args.service.flags();
    match name {
        ServiceName::App => AppConfig::load(&flags, env).map(drop),
        ServiceName::Runtime => RuntimeConfig::load(&flags, env).map(drop),
        ServiceName::Scheduler => SchedulerConfig::load(&flags, env).map(drop),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::cli::ServiceArgs;

    type Command = fn(&ConfigArgs, &dyn Env, &mut dyn Write) -> Result<(), CommandError>;

    fn run(command: Command, name: Option<ServiceName>, env: &[(&str, &str)]) -> (bool, String) {
        let args = ConfigArgs { name, service: ServiceArgs::default() };
        let mut out = Vec::new();
        let done = command(&args, &env.iter().copied().collect::<BTreeMap<_, _>>(), &mut out).is_ok();
        (done, String::from_utf8(out).expect("the output is text"))
    }

    #[test]
    fn checks_each_service() {
        assert_eq!(
            run(check, None, &[]),
            (true, "app: ok\nruntime: ok\nscheduler: not configured\n".to_owned())
        );
        let env = [("HOST", "0.0.0.0"), ("SESSION_SECRET", "sk-1")];
        let (done, output) = run(check, None, &env);
        assert!(!done && !output.contains("sk-1"), "{output}");
        assert_eq!(output.lines().count(), 3, "{output}");
        assert!(output.starts_with("app: SESSION_SECRET (environment) must"), "{output}");
        assert!(output.contains("\nruntime: RUNTIME_SECRET is required"), "{output}");
        assert!(!run(check, Some(ServiceName::Runtime), &env).0);
        let scheduler = Some(ServiceName::Scheduler);
        let (done, output) = run(check, scheduler, &[]);
        assert!(!done && output.contains("PULSE_SECRET is missing"), "{output}");
        assert!(output.contains("CALLBACK_URL is missing"), "{output}");
        let env = [("PULSE_SECRET", "0123456789abcdef"), ("CALLBACK_URL", "http://127.0.0.1:3000/x")];
        assert_eq!(run(check, scheduler, &env), (true, "scheduler: ok\n".to_owned()));
        assert_eq!(
            run(check, None, &env[..1]).1.lines().last(),
            Some("scheduler: CALLBACK_URL is missing: jobs are delivered to this URL")
        );
        assert_eq!(run(check, Some(ServiceName::Runtime), &[("SESSION_SECRET", "x")]).1, "runtime: ok\n");
    }

    #[test]
    fn a_scheduler_whose_secret_cannot_be_read_is_configured() {
        let (done, output) = run(check, None, &[("PULSE_SECRET_FILE", "/nowhere/at/all")]);
        assert!(!done, "{output}");
        let expected = "\nscheduler: PULSE_SECRET_FILE (environment) names a file that cannot be read";
        assert!(output.contains(expected), "{output}");
    }

    #[test]
    fn misspelt_variables_are_warnings() {
        let env = [("SESSION_SECRT", "secret-canary-0000"), ("RUN_TIMEOUT", "5"), ("PATH", "/bin")];
        let expected = "runtime: ok\n\
            warning: RUN_TIMEOUT (environment) is not a setting; did you mean RUN_TIMEOUT_MS?\n\
            warning: SESSION_SECRT (environment) is not a setting; did you mean SESSION_SECRET?\n";
        assert_eq!(run(check, Some(ServiceName::Runtime), &env), (true, expected.to_owned()));
    }

    #[test]
    fn prints_what_would_be_used() {
        let env = [("RUNTIME_SECRET", "runtime-secret-0"), ("TOOL_ROUNDS", "4")];
        let (done, output) = run(print, Some(ServiceName::Runtime), &env);
        assert!(done && output.starts_with("# runtime\nHOST = \"127.0.0.1\" # default\n"), "{output}");
        assert!(output.contains("TOOL_ROUNDS = \"4\" # environment\n"), "{output}");
        assert!(!output.contains("runtime-secret-0") && !output.contains("SESSION_SECRET"), "{output}");
    }
}
