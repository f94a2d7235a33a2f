//! `agentd budget`: the operator's commands on budgets, also on budgets of whole companies.

use std::io::Write;
use std::sync::Arc;

use agent_core::clock::SystemClock;
use agent_core::ids::CompanyId;
use agent_platform::records::Precondition;
use agent_platform::roles::RoleStore as _;
use agent_platform::usage::{Budget, BudgetKind, BudgetOptions, BudgetTimeZone, Budgets, LimitStatus};
use agent_platform::workspace::utc_time;
use serde_json::{Map, Value};

use crate::cli::{BudgetArgs, BudgetCommand};
use crate::command_error::CommandError;
use crate::config::Env;
use crate::stores::Stores;

/// Runs a subcommand.
pub(crate) async fn run(
    command: BudgetCommand,
    env: &dyn Env,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let (args, change) = match command {
        BudgetCommand::Show(args) => (args, None),
        BudgetCommand::Set { budget, limits, timezone } => {
            let new_budget = read_budget(budget.kind, &limits, timezone.as_ref())?;
            (budget, Some(Some(new_budget)))
        }
        BudgetCommand::Delete(args) => (args, Some(None)),
    };
    let BudgetArgs { kind, id, company, settings } = args;
    let id = subject(kind, id, &company)?;
    let stores = Stores::open_existing(&settings.load(env)?).await?;
    if matches!(change, Some(Some(_)))
        && kind.is_of_agent()
        && stores.roles.masked_role(&company, &id.as_str().into()).await?.is_none()
    {
        writeln!(out, "warning: there is no agent {id:?} at {company}")?;
    }
    let spawner = Arc::new(|task| drop(tokio::spawn(task)));
    let budgets =
        Budgets::new(stores.records, stores.usage, Arc::new(SystemClock), spawner, BudgetOptions::default());
    let subject = (kind, id.as_str());
    match change {
        Some(Some(budget)) => {
            set(&budgets, &company, subject, budget).await?;
            writeln!(out, "The budget of the {} {id:?} at {company} is set.", kind.as_str())?;
        }
        Some(None) => match budgets.delete(&company, subject, Precondition::Any).await? {
            true => writeln!(out, "The budget of the {} {id:?} at {company} is deleted.", kind.as_str())?,
            false => return Err(no_budget(kind, &id, &company)),
        },
        None => show(&budgets, &company, subject, out).await?,
    }
    Ok(())
}

/// Returns the subject's identifier. That of a company is its own.
fn subject(kind: BudgetKind, id: Option<String>, company: &CompanyId) -> Result<String, CommandError> {
    let problem = match (kind, id) {
        (BudgetKind::Company, None) => return Ok(company.to_string()),
        (BudgetKind::Company, Some(id)) if id == company.as_str() => return Ok(id),
        (BudgetKind::Company, Some(_)) => "must be that of --company",
        (_, Some(id)) => return Ok(id),
        (_, None) => "is missing",
    };
    Err(CommandError::Argument { argument: "ID", problem: problem.to_owned() })
}

/// Writes a budget. It keeps its time zone unless a new one is given.
async fn set(
    budgets: &Budgets,
    company: &CompanyId,
    (kind, id): (BudgetKind, &str),
    budget: Budget,
) -> Result<(), CommandError> {
    let current = budgets.get(company, kind, id).await?;
    let precondition = Precondition::unchanged_since(current.as_ref().map(|current| current.version));
    let Budget { limits, timezone } = budget;
    let timezone = timezone.or_else(|| current.and_then(|current| current.value.timezone));
    budgets.put(company, (kind, id), &Budget { limits, timezone }, precondition).await?;
    Ok(())
}

fn read_budget(
    kind: BudgetKind,
    text: &str,
    timezone: Option<&BudgetTimeZone>,
) -> Result<Budget, CommandError> {
    let invalid = |problem: String| CommandError::Argument { argument: "--limits", problem };
    let limits: Value =
        serde_json::from_str(text).map_err(|error| invalid(format!("is not JSON: {error}")))?;
    let mut body = Map::from_iter([("limits".to_owned(), limits)]);
    if let Some(zone) = timezone {
        body.insert("timezone".to_owned(), zone.name().into());
    }
    Budget::read(kind, &body).map_err(|error| match error.path.as_str() {
        "timezone" => CommandError::Argument { argument: "--timezone", problem: error.message },
        _ => invalid(format!("is not valid: {error}")),
    })
}

fn no_budget(kind: BudgetKind, id: &str, company: &CompanyId) -> CommandError {
    CommandError::NoBudget { kind: kind.as_str(), id: id.to_owned(), company: company.to_string() }
}

async fn show(
    budgets: &Budgets,
    company: &CompanyId,
    (kind, id): (BudgetKind, &str),
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let budget = budgets.get(company, kind, id).await?.ok_or_else(|| no_budget(kind, id, company))?;
    if let Some(zone) = &budget.value.timezone {
        writeln!(out, "timezone\t{}", zone.name())?;
    }
    writeln!(out, "unit\twindow\tamount\tused\treserved\tresets")?;
    for status in budgets.status(company, (kind, id), &budget.value).await?.limits {
        let LimitStatus { limit, used, reserved, resets_at } = status;
        let amounts = [limit.amount, used, reserved].map(|amount| match limit.unit.amount_json(amount) {
            Value::String(text) => text,
            number => number.to_string(),
        });
        let window = limit.window.map_or("-", agent_platform::usage::BudgetWindow::as_str);
        let resets = resets_at.map_or("-".to_owned(), utc_time);
        writeln!(out, "{}\t{window}\t{}\t{resets}", limit.unit.as_str(), amounts.join("\t"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use agent_platform::memory::MemoryRecords;
    use agent_platform::usage::MemoryUsage;

    use super::*;

    #[test]
    fn arguments_are_checked() {
        let company = CompanyId::from("c1");
        assert_eq!(subject(BudgetKind::Company, None, &company).expect("the company"), "c1");
        for (kind, id) in [(BudgetKind::Company, Some("c2".to_owned())), (BudgetKind::Agent, None)] {
            subject(kind, id, &company).expect_err("no subject");
        }
        for limits in ["", "{}", "[]", r#"[{"unit":"cost","amount":5,"window":"day"}]"#] {
            read_budget(BudgetKind::Company, limits, None).expect_err(limits);
        }
        let limits = r#"[{"unit":"cost","amount":"50","window":"month"}]"#;
        assert_eq!(read_budget(BudgetKind::Company, limits, None).expect("a budget").limits.len(), 1);
        let zone: BudgetTimeZone = "Europe/Berlin".parse().expect("a zone");
        for limits in [limits, "[]"] {
            let budget = read_budget(BudgetKind::Company, limits, Some(&zone)).expect("a budget");
            assert_eq!(budget.timezone.as_ref(), Some(&zone));
        }
        let error = read_budget(BudgetKind::User, limits, Some(&zone)).expect_err("a zone of a user");
        assert!(matches!(error, CommandError::Argument { argument: "--timezone", .. }), "{error:?}");
        let error = no_budget(BudgetKind::Company, "c1", &company).to_string();
        assert!(error.starts_with("the company \"c1\" of \"c1\" has no budget"), "{error}");
    }

    #[tokio::test]
    async fn a_budget_keeps_its_time_zone_unless_it_is_given_another_one() {
        let (records, usage) = (Arc::new(MemoryRecords::default()), Arc::new(MemoryUsage::default()));
        let spawner = Arc::new(|task| drop(tokio::spawn(task)));
        let budgets = Budgets::new(records, usage, Arc::new(SystemClock), spawner, BudgetOptions::default());
        let (company, subject) = (CompanyId::from("c1"), (BudgetKind::Company, "c1"));
        let limits = r#"[{"unit":"cost","amount":"50","window":"month"}]"#;
        let zone = |name: &str| name.parse::<BudgetTimeZone>().expect("a zone");
        let (tokyo, utc) = (zone("Asia/Tokyo"), zone("UTC"));
        for (argument, kept) in
            [(None, None), (Some(&tokyo), Some(&tokyo)), (None, Some(&tokyo)), (Some(&utc), Some(&utc))]
        {
            let budget = read_budget(BudgetKind::Company, limits, argument).expect("a budget");
            set(&budgets, &company, subject, budget).await.expect("written");
            let stored_budget = budgets.get(&company, subject.0, subject.1).await.expect("read");
            assert_eq!(stored_budget.expect("a budget").value.timezone.as_ref(), kept);
        }
        let mut shown: Vec<u8> = Vec::new();
        show(&budgets, &company, subject, &mut shown).await.expect("shown");
        let shown = String::from_utf8(shown).expect("UTF-8");
        assert!(shown.starts_with("timezone\tUTC\nunit\t"), "{shown}");
    }
}
