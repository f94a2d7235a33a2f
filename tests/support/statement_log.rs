//! The server's log of statements, and the companies whose rows they touch.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Begins each entry of the log with the server process and the database.
const LOG_LINE_PREFIX: &str = "%p %d ";
/// Maximum length of a logged value in bytes. The server marks a longer one by its end.
const MAX_VALUE_BYTES: usize = 8192;
const TRUNCATION_MARK: &str = "...";

/// Tables whose rows have the company in a column.
const COMPANY_TABLES: [&str; 9] = [
    "records",
    "threads",
    "runs",
    "thread_counts",
    "feedback",
    "usage_calls",
    "usage_days",
    "change",
    "jobs",
];
/// Tables whose rows have the number of a thread or run, which has the company.
const NUMBERED_TABLES: [&str; 4] = ["nodes", "turn_contexts", "run_events", "signals"];
/// Tables without data of companies: versions of the schemas, and leases of the processes that have runs.
const OTHER_TABLES: [&str; 2] = ["schema_version", "processes"];

/// A kind of statement on tenant tables that binds no company.
struct Exception {
    name: &'static str,
    /// Text of the statement that no other has.
    text: &'static str,
}

const fn exception(name: &'static str, text: &'static str) -> Exception {
    Exception { name, text }
}

/// The statements that bind no company, each with the reason. Statements that return rows of companies serve a task of the
/// process itself, which then reads or writes each row under its company.
const EXCEPTIONS: [Exception; 22] = [
    // Each process needs the changes of all companies that it caches, and old ones are deleted by their age.
    exception(
        "change feed: reads changes since a snapshot",
        "LEFT JOIN LATERAL ( SELECT company, collections, ids FROM change",
    ),
    exception("change feed: deletes old changes", "DELETE FROM change WHERE ctid = ANY"),
    // Sweeps of the whole database: retention, search of the index, and deletion of what outlived its time.
    exception("sweep: lists the companies", "SELECT min(company) FROM records WHERE company > $1"),
    exception(
        "sweep: lists threads for retention",
        "SELECT n, company, owner, agent, active_ms FROM threads WHERE n > $1",
    ),
    exception(
        "sweep: finds logs whose time is over",
        "SELECT company, owner, id, log_until_ms, n FROM runs WHERE log_until_ms <= $1",
    ),
    exception("sweep: deletes old entries of the ledger", "SELECT n FROM usage_calls WHERE ended_ms < $1"),
    exception(
        "sweep: finds runs that wait for decisions and are due",
        "FROM runs WHERE state = 'waiting' AND coalesce(due_ms, 0) <= $1",
    ),
    // A process knows only the ids of its own runs; the runs of an ended process concern all processes.
    exception(
        "leases: finds runs whose process has ended",
        "WHERE processes.id = runs.process AND lease_ms > $1",
    ),
    exception(
        "signals: reads those to a process",
        "LEFT JOIN runs ON runs.n = signals.run WHERE signals.process = $1",
    ),
    exception("signals: deletes those that were taken", "DELETE FROM signals WHERE (process, run, kind) IN"),
    // A job's id is random and of one company; the scheduler claims and ends jobs of all, and counts them.
    exception(
        "jobs: claims due ones",
        "FROM jobs WHERE wake_ms <= $1 AND (state <> 'running' OR wake_ms <= $2) ORDER BY wake_ms, id LIMIT $3 FOR UPDATE",
    ),
    exception("jobs: claims due ones of companies below their share", "FROM near WHERE company <> ALL ($3)"),
    exception("jobs: sets a damaged one aside", "UPDATE jobs SET wake_ms = $2 WHERE id = $1"),
    exception(
        "jobs: locks claimed ones to end their attempts",
        "FROM jobs WHERE id = ANY ($1) AND ($2::text IS NULL OR company = $2)",
    ),
    exception(
        "jobs: writes rows that the transaction has locked",
        "UPDATE jobs AS job SET state = new.state",
    ),
    exception("jobs: reads one by its id", "FROM jobs WHERE id = $1 AND ($2::text IS NULL OR company = $2)"),
    exception(
        "jobs: tells whether one is the earliest",
        "WHERE NOT EXISTS (SELECT FROM jobs WHERE wake_ms <= $1)",
    ),
    exception("jobs: finds the earliest", "SELECT wake_ms FROM jobs WHERE wake_ms IS NOT NULL"),
    exception("jobs: counts by state", "SELECT count(*) FILTER (WHERE state ="),
    exception("jobs: counts paused ones", "SELECT count(*) FROM jobs WHERE state = 'paused'"),
    exception("jobs: lists and counts those of all companies for the operator", "FROM jobs WHERE true"),
    exception("jobs: purges old ones", "SELECT id FROM jobs WHERE ended_ms < $1"),
];

/// Statements for an administrator that log everything that `role` executes from its next connection on.
pub(crate) fn log_statements_of(role: &str) -> String {
    format!(
        "ALTER ROLE {role} SET log_statement = 'all';
         ALTER ROLE {role} SET log_parameter_max_length = {MAX_VALUE_BYTES}"
    )
}

/// Statements for an administrator, each of which must be sent alone, that set the format of the log.
pub(crate) fn set_log_format() -> [String; 2] {
    [format!("ALTER SYSTEM SET log_line_prefix = '{LOG_LINE_PREFIX}'"), "SELECT pg_reload_conf()".to_owned()]
}

/// Triggers that note the companies of threads and runs by their numbers, since the rows may be deleted later.
pub(crate) const NOTE_NUMBERS: &str = "
    CREATE TABLE public.numbers (kind text NOT NULL, n int8 NOT NULL, company text NOT NULL);
    CREATE FUNCTION public.note_number() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
    BEGIN
        INSERT INTO public.numbers VALUES (TG_TABLE_NAME, new.n, new.company);
        RETURN NULL;
    END $$;
    CREATE TRIGGER note_number AFTER INSERT ON app.threads FOR EACH ROW EXECUTE FUNCTION public.note_number();
    CREATE TRIGGER note_number AFTER INSERT ON app.runs FOR EACH ROW EXECUTE FUNCTION public.note_number();";

/// Reads the rows that the triggers wrote.
pub(crate) const SELECT_NUMBERS: &str = "SELECT kind, n, company FROM public.numbers";

/// Reads the names of all tables of the application's schemas.
pub(crate) const SELECT_TABLES: &str = "
    SELECT relname::text FROM pg_class
    WHERE relnamespace IN ('app'::regnamespace, 'app_jobs'::regnamespace) AND relkind IN ('r', 'p')
    ORDER BY relname";

/// Kind of a number: `threads` or `runs`.
pub(crate) type NumberKind = &'static str;

/// Companies of threads and runs by database, kind and number.
#[derive(Default)]
pub(crate) struct Numbers(HashMap<(String, NumberKind, i64), String>);

impl Numbers {
    /// Adds a row of [`SELECT_NUMBERS`] of a database.
    pub(crate) fn add(&mut self, database: &str, kind: &str, n: i64, company: String) {
        let kind = if kind == "runs" { "runs" } else { "threads" };
        self.0.insert((database.to_owned(), kind, n), company);
    }
}

/// An executed statement.
#[derive(Debug, Clone)]
struct Statement {
    session: String,
    database: String,
    /// Text, in which one blank stands for all white space.
    sql: String,
    /// Values of the parameters; `None` stands for `NULL`.
    values: Vec<Option<String>>,
}

/// Returns the statements of a log, in their order.
fn parse_log(log: &str) -> Vec<Statement> {
    let mut entries: Vec<(&str, &str, String)> = Vec::new();
    for line in log.lines() {
        // The server indents the further lines of an entry.
        if let (Some(more), Some(entry)) = (line.strip_prefix('\t'), entries.last_mut()) {
            entry.2 += "\n";
            entry.2 += more;
        } else {
            let mut words = line.splitn(3, ' ');
            let session = words.next().unwrap_or_default();
            let (database, text) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            entries.push((session, database, text.to_owned()));
        }
    }
    let mut statements: Vec<Statement> = Vec::new();
    for (session, database, text) in entries {
        let executed = text.strip_prefix("LOG:  execute ").and_then(|text| text.split_once(": "));
        let sql = executed.map(|(_, sql)| sql).or_else(|| text.strip_prefix("LOG:  statement: "));
        if let Some(sql) = sql {
            let sql = sql.split_whitespace().collect::<Vec<_>>().join(" ");
            let (session, database) = (session.to_owned(), database.to_owned());
            statements.push(Statement { session, database, sql, values: Vec::new() });
        }
        let values =
            text.strip_prefix("DETAIL:  parameters: ").or_else(|| text.strip_prefix("DETAIL:  Parameters: "));
        if let (Some(values), Some(last)) = (values, statements.last_mut()) {
            assert_eq!(last.session, session, "the values are logged with their statement");
            last.values = parse_values(values);
        }
    }
    statements
}

/// Parses `$1 = 'text', $2 = NULL`.
fn parse_values(text: &str) -> Vec<Option<String>> {
    let (mut values, mut remaining_text) = (Vec::new(), text);
    while let Some((_, value)) = remaining_text.split_once(" = ") {
        let Some(quoted) = value.strip_prefix('\'') else {
            values.push(None);
            remaining_text = value;
            continue;
        };
        let mut letters = quoted.char_indices().peekable();
        let (mut text, mut end) = (String::new(), quoted.len());
        while let Some((at, letter)) = letters.next() {
            // A quotation mark within the value is doubled.
            if letter == '\'' && letters.next_if(|(_, next)| *next == '\'').is_none() {
                end = at + 1;
                break;
            }
            text.push(letter);
        }
        values.push(Some(text));
        remaining_text = &quoted[end..];
    }
    values
}

/// Parses an array, without its `NULL`s and without an element whose end is missing.
fn parse_array(text: &str) -> Vec<String> {
    let is_cut = text.ends_with(TRUNCATION_MARK);
    let inside = text.strip_prefix('{').unwrap_or(text);
    let inside = inside.strip_suffix('}').or_else(|| inside.strip_suffix(TRUNCATION_MARK)).unwrap_or(inside);
    let (mut elements, mut element) = (Vec::new(), String::new());
    let (mut is_quoted, mut was_quoted) = (false, false);
    let mut letters = inside.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => element.extend(letters.next()),
            '"' => (is_quoted, was_quoted) = (!is_quoted, true),
            ',' if !is_quoted => {
                elements.push((std::mem::take(&mut element), std::mem::take(&mut was_quoted)));
            }
            letter => element.push(letter),
        }
    }
    if !is_cut && !inside.is_empty() {
        elements.push((element, was_quoted));
    }
    let is_null = |(element, was_quoted): &(String, bool)| element == "NULL" && !was_quoted;
    elements.into_iter().filter(|element| !is_null(element)).map(|(element, _)| element).collect()
}

impl Statement {
    /// Returns the tables that the statement names and that are not names of its own subqueries.
    fn tables(&self) -> BTreeSet<&str> {
        let words: Vec<&str> =
            self.sql.split([' ', '(', ')', ',', ';']).filter(|word| !word.is_empty()).collect();
        let names_table = |word: &str| ["FROM", "JOIN", "INTO", "UPDATE", "USING"].contains(&word);
        let named = words.windows(2).filter(|pair| names_table(pair[0])).map(|pair| {
            let name = pair[1];
            name.strip_prefix("app.").or_else(|| name.strip_prefix("app_jobs.")).unwrap_or(name)
        });
        let known = |name: &&str| {
            COMPANY_TABLES.contains(name) || NUMBERED_TABLES.contains(name) || OTHER_TABLES.contains(name)
        };
        named.filter(known).collect()
    }

    /// Returns the value of a parameter that `text` begins with, such as `$2::text[]`.
    fn value(&self, text: &str) -> Option<&str> {
        let digits: String =
            text.trim().strip_prefix('$')?.chars().take_while(char::is_ascii_digit).collect();
        let position = digits.parse::<usize>().ok()?.checked_sub(1)?;
        self.values.get(position)?.as_deref()
    }

    /// Returns the values of conditions `column = $n`, and the values of `column` in rows that the statement inserts or joins
    /// with a condition on the column.
    fn bound(&self, column: &str) -> BTreeSet<String> {
        let mut bound = BTreeSet::new();
        let condition = format!("{column} = $");
        for (at, _) in self.sql.match_indices(&condition) {
            let before = self.sql[..at].chars().next_back();
            if before.is_none_or(|letter| !letter.is_alphanumeric() && letter != '_') {
                bound.extend(self.value(&self.sql[at + condition.len() - 1..]).map(str::to_owned));
            }
        }
        let insert = self.inserted_columns();
        for (at, _) in self.sql.match_indices("unnest(") {
            let Some((arguments, after)) = self.sql[at + "unnest(".len()..].split_once(')') else { continue };
            let after = after.trim_start().trim_start_matches("WITH ORDINALITY").trim_start();
            let alias = after.strip_prefix("AS ").and_then(|named| named.split_once(')'));
            let (name, columns) = match alias.and_then(|(named, _)| named.split_once(" (")) {
                Some((name, columns)) => (name, columns.split(',').map(str::trim).collect::<Vec<_>>()),
                None => ("", insert.clone()),
            };
            let is_used =
                insert.contains(&column) || self.sql.contains(&format!("{column} = {name}.{column}"));
            let position = columns.iter().position(|found| *found == column).filter(|_| is_used);
            let argument = position.and_then(|position| arguments.split(',').nth(position));
            bound.extend(
                argument.and_then(|argument| self.value(argument)).map(parse_array).into_iter().flatten(),
            );
        }
        if let Some((_, values)) = self.sql.split_once(" VALUES (") {
            let position = insert.iter().position(|found| *found == column);
            let value = position.and_then(|position| values.split([',', ')']).nth(position));
            bound.extend(value.and_then(|value| self.value(value)).map(str::to_owned));
        }
        bound
    }

    /// Returns the columns of the rows that the statement inserts into a table; empty if it inserts none.
    fn inserted_columns(&self) -> Vec<&str> {
        let columns = self.sql.split_once("INSERT INTO ").and_then(|(_, after)| after.split_once(" ("));
        let columns = columns.and_then(|(_, columns)| columns.split_once(')'));
        columns.map_or_else(Vec::new, |(columns, _)| columns.split(',').map(str::trim).collect())
    }

    /// Returns the numbers of threads and runs that the statement binds.
    fn numbers(&self) -> BTreeSet<(NumberKind, i64)> {
        let table = if self.sql.contains("UPDATE runs ") { "runs" } else { "threads" };
        let columns = [("thread", "threads"), ("run", "runs"), ("n", table)];
        let bound = columns.into_iter().flat_map(|(column, kind)| {
            let values = self.bound(column);
            values.into_iter().filter_map(move |value| Some((kind, value.parse().ok()?)))
        });
        bound.collect()
    }
}

/// Counts of a log's statements on tenant tables, by the way in which they bind the company.
#[derive(Default)]
pub(crate) struct StatementCounts {
    /// Statements that bind the company itself.
    pub(crate) by_company: usize,
    /// Statements that bind the number of a thread or run, which belongs to the company that the session has bound by the
    /// statement before.
    pub(crate) by_number: usize,
    /// Statements of each exception.
    pub(crate) exceptions: BTreeMap<&'static str, usize>,
    /// Tables of all these statements.
    pub(crate) tables: BTreeSet<String>,
    /// Companies that were bound.
    pub(crate) companies: BTreeSet<String>,
    /// Other statements, which must not exist, each with the reason.
    pub(crate) violations: Vec<String>,
}

impl StatementCounts {
    /// Counts the statements of a log.
    pub(crate) fn of(log: &str, numbers: &Numbers) -> Self {
        let (mut counts, mut sessions) = (Self::default(), HashMap::new());
        for statement in parse_log(log) {
            counts.add(&statement, numbers, &mut sessions);
        }
        counts
    }

    /// Returns the number of all statements on tenant tables.
    pub(crate) fn total(&self) -> usize {
        self.by_company + self.by_number + self.exceptions.values().sum::<usize>() + self.violations.len()
    }

    /// Panics if a statement binds no company and is not an exception.
    pub(crate) fn check(&self) {
        let shown: Vec<_> = self.violations.iter().take(10).collect();
        let (count, total) = (self.violations.len(), self.total());
        assert!(count == 0, "{count} of {total} statements: {shown:#?}");
    }

    /// `sessions` has the companies that each session has bound last.
    fn add(
        &mut self,
        statement: &Statement,
        numbers: &Numbers,
        sessions: &mut HashMap<String, BTreeSet<String>>,
    ) {
        let tables = statement.tables();
        let is_tenant_table = |table: &&&str| !OTHER_TABLES.contains(*table);
        if tables.iter().find(is_tenant_table).is_none() {
            return;
        }
        self.tables.extend(tables.iter().map(|table| (*table).to_owned()));
        let companies = statement.bound("company");
        if !companies.is_empty() {
            self.by_company += 1;
            self.companies.extend(companies.iter().cloned());
            sessions.insert(statement.session.clone(), companies);
            return;
        }
        if let Some(exception) = EXCEPTIONS.iter().find(|exception| statement.sql.contains(exception.text)) {
            *self.exceptions.entry(exception.name).or_default() += 1;
            return;
        }
        let bound = statement.numbers();
        let last = sessions.get(&statement.session);
        let is_of_last = |(kind, n): &(NumberKind, i64)| {
            let company = numbers.0.get(&(statement.database.clone(), *kind, *n));
            company.is_some_and(|company| last.is_some_and(|last| last.contains(company)))
        };
        match bound.iter().find(|number| !is_of_last(number)) {
            _ if bound.is_empty() => self.violations.push(format!("no company: {statement:?}")),
            Some(number) => {
                self.violations.push(format!("{number:?} is not of {last:?}: {statement:?}"));
            }
            None => self.by_number += 1,
        }
    }
}

/// Panics if a table is in none of the lists above.
pub(crate) fn check_tables(tables: &[String]) {
    let mut known = [&COMPANY_TABLES[..], &NUMBERED_TABLES, &OTHER_TABLES].concat();
    known.sort_unstable();
    let mut tables: Vec<&str> = tables.iter().map(String::as_str).collect();
    tables.dedup();
    assert_eq!(tables, known, "a new table has a company, a number, or a reason to have neither");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts a log of one session whose thread 7 is of `acme` and whose thread 8 is of `other`.
    fn counts(entries: &[(&str, &str)]) -> StatementCounts {
        let mut log = String::new();
        for (sql, values) in entries {
            log += &format!("12 app LOG:  execute s1: {sql}\n12 app DETAIL:  parameters: {values}\n");
        }
        let mut numbers = Numbers::default();
        numbers.add("app", "threads", 7, "acme".to_owned());
        numbers.add("app", "threads", 8, "other".to_owned());
        StatementCounts::of(&log, &numbers)
    }

    const THREAD: (&str, &str) =
        ("SELECT n FROM threads\n\tWHERE company = $1 AND id = $2", "$1 = 'acme', $2 = 'it''s'");

    #[test]
    fn companies_and_numbers_of_the_company_are_found() {
        let counts = counts(&[
            THREAD,
            ("SELECT body FROM nodes WHERE thread = $1", "$1 = '7'"),
            (
                "INSERT INTO nodes (seq, thread) SELECT * FROM unnest($1::int8[], $2::int8[])",
                "$1 = '{1,2}', $2 = '{7,7}'",
            ),
            (
                "DELETE FROM records WHERE ctid = ANY (ARRAY (SELECT ctid FROM unnest($1::text[], $2::text[]) AS old (company, id) \
              CROSS JOIN LATERAL (SELECT ctid FROM records WHERE company = old.company AND id = old.id)))",
                "$1 = '{acme,\"a b\"}', $2 = '{x,y}'",
            ),
            ("INSERT INTO change (origin, company) VALUES ($1, $2)", "$1 = 'p', $2 = 'acme'"),
            ("SELECT FROM schema_version", ""),
            ("DELETE FROM change WHERE ctid = ANY (ARRAY ())", ""),
        ]);
        counts.check();
        assert_eq!((counts.by_company, counts.by_number, counts.total()), (3, 2, 6));
        assert_eq!(counts.companies.iter().map(String::as_str).collect::<Vec<_>>(), ["a b", "acme"]);
        assert_eq!(counts.exceptions.len(), 1);
    }

    #[test]
    fn statements_without_the_company_are_violations() {
        for (sql, values) in [
            ("SELECT value FROM records WHERE id = $1", "$1 = 'x'"),
            ("SELECT value FROM app.records WHERE id = $1", "$1 = 'x'"),
            ("SELECT id FROM threads WHERE owner = $1", "$1 = 'acme'"),
            ("SELECT id FROM threads WHERE company = $1", "$1 = NULL"),
            ("SELECT id FROM threads WHERE no_company = $1", "$1 = 'acme'"),
            ("SELECT id FROM threads WHERE company = 'acme'", ""),
            ("UPDATE threads SET body = $2 WHERE n = $1", "$1 = '8', $2 = ''"),
            ("SELECT body FROM nodes WHERE thread = $1", "$1 = '8'"),
            ("SELECT body FROM nodes WHERE thread = $1", "$1 = '9'"),
            (
                "SELECT count(*) FROM unnest($1::text[]) AS other (company) JOIN records ON true",
                "$1 = '{acme}'",
            ),
            ("INSERT INTO records (id) SELECT * FROM unnest($1::text[])", "$1 = '{acme}'"),
        ] {
            assert_eq!(counts(&[THREAD, (sql, values)]).violations.len(), 1, "{sql} {values}");
        }
        let unknown = counts(&[("SELECT body FROM nodes WHERE thread = $1", "$1 = '7'")]);
        assert_eq!(unknown.violations.len(), 1, "no statement before has bound the company");
    }

    #[test]
    fn values_are_parsed() {
        let values = parse_values("$1 = 'a = ''b'', c', $2 = NULL, $3 = '', $4 = '{x}'");
        let expected = [Some("a = 'b', c"), None, Some(""), Some("{x}")];
        assert_eq!(values.iter().map(Option::as_deref).collect::<Vec<_>>(), expected);
        assert_eq!(parse_array(r#"{a,"b, \"c\"",NULL,"NULL",""}"#), ["a", "b, \"c\"", "NULL", ""]);
        assert_eq!(parse_array("{1,2,34..."), ["1", "2"]);
        assert_eq!(parse_array("{}"), [""; 0]);
    }
}
