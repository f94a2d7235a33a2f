//! The rights that docs/operating.md tells operators to grant to the role of the processes.

const PAGE: &str = include_str!("../../docs/operating.md");
/// Name of the role in the documented statements.
const DOCUMENTED_ROLE: &str = " TO agentd;";

/// Returns the documented statements that grant `role` the rights on a schema and on the schemas listed with it.
pub(crate) fn documented_grants(schema: &str, role: &str) -> String {
    let mut blocks = PAGE.split("```sql").skip(1).filter_map(|block| block.split("```").next());
    let table = format!(" {schema}.");
    let found = blocks.find(|block| block.contains("GRANT ") && block.contains(&table));
    let statements = found.unwrap_or_else(|| panic!("no statements for {schema} in docs/operating.md"));
    assert!(statements.matches(DOCUMENTED_ROLE).count() >= 3, "{statements}");
    statements.replace(DOCUMENTED_ROLE, &format!(" TO {role};"))
}
