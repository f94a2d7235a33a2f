//! Formats a preview as lines for a terminal.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, Write};

use agent_platform::preview::{Preview, PreviewPart, SelectionReport};
use anstyle::{AnsiColor, Style};
use serde_json::Value;

/// Colours of a report.
#[derive(Debug, Default)]
pub(super) struct Styles {
    heading: Style,
    good: Style,
    faint: Style,
    warning: Style,
}

impl Styles {
    /// Returns styles without colours.
    pub(super) fn plain() -> Self {
        Self::default()
    }

    /// Returns styles with ANSI colours.
    pub(super) fn coloured() -> Self {
        Self {
            heading: Style::new().bold(),
            good: AnsiColor::Green.on_default(),
            faint: Style::new().dimmed(),
            warning: AnsiColor::Yellow.on_default(),
        }
    }
}

fn styled(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Writes the whole preview.
pub(super) fn write(preview: &Preview, styles: &Styles, out: &mut dyn Write) -> io::Result<()> {
    selection(&preview.selection, styles, out)?;
    parts("System prompt", &preview.system_prompt_parts, styles, out)?;
    parts("Context of the latest message", &preview.combined_context_parts, styles, out)?;
    budget(preview, styles, out)?;
    let names: Vec<&str> = preview.tools.iter().map(|tool| tool.name.as_str()).collect();
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    writeln!(out, "{} {}\n", styled(styles.heading, "Tools:"), escape_control(&names))?;
    let payload = serde_json::from_slice::<Value>(&preview.payload())?;
    writeln!(out, "{} sha256 {}", styled(styles.heading, "Request:"), preview.request_sha256)?;
    writeln!(out, "{}", escape_control(&serde_json::to_string_pretty(&payload)?))
}

/// Writes the outcome of each backend selection rule.
pub(super) fn selection(report: &SelectionReport, styles: &Styles, out: &mut dyn Write) -> io::Result<()> {
    let chosen = report.chosen.map_or("none".to_owned(), |kind| kind.to_string());
    writeln!(out, "{} {chosen}", styled(styles.heading, "Backend:"))?;
    let mut is_decided = false;
    for outcome in &report.rules {
        let name = wire_name(&outcome.rule);
        let field = outcome.field.map(|field| format!(" ({field})")).unwrap_or_default();
        let line = format!("{name:<24} {}{field}", wire_name(&outcome.reason));
        let (symbol, style) = match (outcome.matched, is_decided) {
            (true, false) => ("*", styles.good),
            (true, true) => ("+", styles.faint),
            (false, _) => ("-", styles.faint),
        };
        is_decided |= outcome.matched;
        writeln!(out, "  {}", styled(style, format_args!("{symbol} {line}")))?;
    }
    writeln!(out)
}

/// Returns the serialized name of an enum variant.
fn wire_name(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        _ => String::new(),
    }
}

fn parts(title: &str, parts: &[PreviewPart], styles: &Styles, out: &mut dyn Write) -> io::Result<()> {
    if parts.is_empty() {
        return Ok(());
    }
    let ids: Vec<Cow<'_, str>> = parts.iter().map(|part| escape_control(&part.manifest.id)).collect();
    let width = ids.iter().map(|id| id.chars().count()).max().unwrap_or(0).clamp(4, 40);
    writeln!(out, "{}", styled(styles.heading, title))?;
    let head = format!(
        "{:<width$}  {:<14} {:<9} {:>7} {:>8}  sha256",
        "part", "source", "stability", "tokens", "bytes"
    );
    writeln!(out, "  {}", styled(styles.faint, head))?;
    for (part, id) in parts.iter().zip(ids) {
        let manifest = &part.manifest;
        let stability = wire_name(&manifest.stability);
        let style = if matches!(stability.as_str(), "role" | "agent") { styles.good } else { styles.warning };
        let stability = styled(style, format_args!("{stability:<9}"));
        let hash = styled(styles.faint, manifest.sha256.get(..12).unwrap_or(&manifest.sha256));
        let (source, tokens, bytes) = (manifest.source, manifest.tokens, manifest.bytes);
        writeln!(out, "  {id:<width$}  {source:<14} {stability} {tokens:>7} {bytes:>8}  {hash}")?;
    }
    writeln!(out)
}

fn budget(preview: &Preview, styles: &Styles, out: &mut dyn Write) -> io::Result<()> {
    let budget = &preview.budget;
    let (used, max, tokens) = (budget.prompt_tokens, budget.max_prompt_tokens, budget.tokens);
    writeln!(
        out,
        "{} {used} of {max} tokens by {} (system {}, tools {}, messages {})",
        styled(styles.heading, "Budget:"),
        budget.token_counter,
        tokens.system,
        tokens.tools,
        tokens.messages
    )?;
    for attempt in preview.attempts.iter().filter(|attempt| !attempt.known) {
        let line =
            format!("the context window of {} is not known, and assumed", escape_control(&attempt.model));
        writeln!(out, "  {}", styled(styles.warning, line))?;
    }
    for trimmed in &preview.trimmed {
        let (messages, tokens, why) = (trimmed.messages, trimmed.tokens, wire_name(&trimmed.reason));
        let line = format_args!("omitted: {messages} messages of {tokens} tokens ({why})");
        writeln!(out, "  {}", styled(styles.warning, line))?;
    }
    for part in preview.system_prompt_parts.iter().chain(&preview.combined_context_parts) {
        if let Some(bytes) = part.manifest.origin.as_ref().and_then(|origin| origin.omitted_bytes) {
            let line = format!("omitted: {bytes} bytes of {}", escape_control(&part.manifest.id));
            writeln!(out, "  {}", styled(styles.warning, line))?;
        }
    }
    writeln!(
        out,
        "{} the first {} bytes of the system prompt stay the same\n",
        styled(styles.heading, "Cache:"),
        preview.cache.stable_prefix_bytes
    )
}

/// Escapes control characters except newlines as in JSON, because text from untrusted sources must not
/// control the terminal.
fn escape_control(text: &str) -> Cow<'_, str> {
    let is_escaped = |c: char| c.is_control() && c != '\n';
    if !text.contains(is_escaped) {
        return text.into();
    }
    text.chars()
        .map(|c| if is_escaped(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() })
        .collect::<String>()
        .into()
}
