//! Tests of the selection for roles as operators write them, and of the reported reasons.

use serde_json::{Value, json};

use super::*;

/// Builds a role with the given content and containers (name and content).
fn role(content: Value, children: &[(&str, Value)]) -> RoleBlock {
    let children: Vec<Value> =
        children.iter().map(|(name, content)| json!({"name": name, "content": content})).collect();
    let role = json!({"id": "a", "companyId": "c", "content": content, "children": children});
    serde_json::from_value(role).expect("a role")
}

/// Returns the kind of the selected backend and one distinguishing setting.
fn chosen(selection: &Selection) -> Option<(BackendKind, &str)> {
    let choice = selection.choice.as_ref()?;
    let setting = match choice {
        BackendChoice::AgentServer(server) => &server.agent_server_url,
        BackendChoice::Workflow(workflow) => &workflow.webhook_url,
        BackendChoice::Embedded(embedded) => &embedded.provider,
        BackendChoice::Subscription(subscription) => &subscription.model,
        BackendChoice::Custom(container) => return Some((choice.kind(), &container.name)),
    };
    Some((choice.kind(), setting.as_deref().unwrap_or("-")))
}

/// Encodes the reasons of all rules, one letter each: present, no container, missing, blank.
fn reasons(selection: &Selection) -> String {
    let letter = |outcome: &RuleOutcome| match outcome.reason {
        RuleReason::Present => 'P',
        RuleReason::NoContainer => 'N',
        RuleReason::FieldMissing => 'M',
        RuleReason::FieldBlank => 'B',
    };
    selection.rules.iter().map(letter).collect()
}

#[test]
fn the_first_rule_that_matches_counts_and_each_says_why() {
    use BackendKind::*;
    let url = |url: &str| json!({"agentServerUrl": url});
    let hook = |url: &str| json!({"webhookUrl": url});
    let server = || ("AgentServer", url("http://s"));
    let workflow = || ("WorkflowConnector", hook("http://w"));
    let embedded = || ("EmbeddedAI", json!({"provider": "local"}));
    let subscription = || ("SubscriptionConnector", json!({"model": "m"}));
    let all = vec![subscription(), embedded(), workflow(), server()];
    let cases = [
        // All five rules match, then without the container that won before.
        (url("http://r"), all.clone(), Some((AgentServer, "http://r")), "PPPPP"),
        (json!({}), all.clone(), Some((AgentServer, "http://s")), "MPPPP"),
        (json!({}), all[..3].to_vec(), Some((Workflow, "http://w")), "MNPPP"),
        (json!({}), all[..2].to_vec(), Some((Embedded, "local")), "MNNPP"),
        (json!({}), all[..1].to_vec(), Some((Subscription, "m")), "MNNNP"),
        (json!({}), vec![], None, "MNNNN"),
        // A blank field counts as missing.
        (url(""), vec![server()], Some((AgentServer, "http://s")), "BPNNN"),
        (url(" \t\n"), vec![embedded()], Some((Embedded, "local")), "BNNPN"),
        (json!({"agentServerUrl": null}), vec![], None, "MNNNN"),
        (json!({}), vec![("AgentServer", url(" ")), workflow()], Some((Workflow, "http://w")), "MBPNN"),
        (
            json!({}),
            vec![("WorkflowConnector", hook("")), subscription()],
            Some((Subscription, "m")),
            "MNBNP",
        ),
        (json!({}), vec![("SubscriptionConnector", json!({"model": ""}))], None, "MNNNB"),
        // A container without its required field does not match.
        (json!({}), vec![("AgentServer", json!({"agentServerModel": "m"}))], None, "MMNNN"),
        (json!({}), vec![("WorkflowConnector", json!({"auth": {"type": "none"}}))], None, "MNMNN"),
        (json!({}), vec![("SubscriptionConnector", json!({}))], None, "MNNNM"),
        // A container without required fields matches when empty.
        (json!({}), vec![("EmbeddedAI", json!({}))], Some((Embedded, "-")), "MNNPN"),
        (json!({}), vec![("EmbeddedAI", Value::Null)], Some((Embedded, "-")), "MNNPN"),
        // Of several containers of one name the first with the required field counts, else the first gives the reason.
        (
            json!({}),
            vec![
                ("AgentServer", json!({})),
                ("AgentServer", url("http://1")),
                ("AgentServer", url("http://2")),
            ],
            Some((AgentServer, "http://1")),
            "MPNNN",
        ),
        (json!({}), vec![("AgentServer", url("")), ("AgentServer", json!({}))], None, "MBNNN"),
        (json!({}), vec![("AgentServer", json!({})), ("AgentServer", url(""))], None, "MMNNN"),
        // Names are case-sensitive, and unknown names match nothing.
        (json!({}), vec![("agentserver", url("http://s")), ("Later", url("http://l"))], None, "MNNNN"),
        // Fields of the role's own content do not complete a container.
        (json!({"agentServerModel": "m"}), vec![("AgentServer", json!({}))], None, "MMNNN"),
    ];
    for (content, children, expected, letters) in cases {
        let selection = select_backend(&role(content.clone(), &children));
        let case = format!("{content} {children:?}");
        assert_eq!(chosen(&selection), expected, "{case}");
        assert_eq!(reasons(&selection), letters, "{case}");
        for outcome in selection.rules {
            assert_eq!(outcome.matched, outcome.reason == RuleReason::Present, "{case}");
        }
    }
}

#[test]
fn all_seven_fields_are_of_the_level_that_gave_the_address() {
    let fields = |level: &str, url: Option<&str>| {
        json!({
            "agentServerUrl": url,
            "agentServerProvider": format!("{level} provider"),
            "agentServerModel": format!("{level} model"),
            "agentServerEnableThinking": level == "role",
            "agentServerTools": [format!("{level} tool")],
            "agentServerLocalUrl": format!("http://{level}"),
            "agentServerApiKey": format!("{level} key"),
        })
    };
    let bare = json!({"agentServerUrl": "http://bare"});
    let of_level = |content: Value, child: Value| {
        let selection = select_backend(&role(content, &[("AgentServer", child)]));
        let Some(BackendChoice::AgentServer(server)) = selection.choice else {
            panic!("{:?}", selection.rules)
        };
        let key = server.agent_server_api_key.as_ref().map(|key| key.expose().to_owned());
        let mut shown = serde_json::to_value(&*server).expect("settings serialise");
        shown["agentServerApiKey"] = json!(key);
        shown
    };
    let (own, below) = (fields("role", Some("http://r")), fields("container", Some("http://c")));
    assert_eq!(of_level(own.clone(), below.clone()), own);
    assert_eq!(of_level(fields("role", None), below.clone()), below);
    assert_eq!(of_level(fields("role", Some(" ")), below.clone()), below);
    // Fields missing at the selected level are not taken from the other level.
    for (content, child) in [(bare.clone(), below), (fields("role", None), bare)] {
        assert_eq!(
            of_level(content, child),
            json!({"agentServerUrl": "http://bare", "agentServerApiKey": null})
        );
    }
}

#[test]
fn a_registered_container_selects_a_custom_backend_where_no_rule_matches() {
    let custom = ("Oracle", json!({"answer": 42}));
    let select = |role: &RoleBlock| select_with_custom(role, |name| name == "Oracle");
    let alone = select(&role(json!({}), &[("Unknown", json!({})), custom.clone()]));
    assert_eq!(chosen(&alone), Some((BackendKind::Custom, "Oracle")));
    let Some(BackendChoice::Custom(container)) = &alone.choice else { panic!("{alone:?}") };
    assert_eq!(container.content, json!({"answer": 42}));

    let beside = select(&role(json!({}), &[custom.clone(), ("EmbeddedAI", json!({}))]));
    assert_eq!(chosen(&beside), Some((BackendKind::Embedded, "-")), "the rules come first");
    assert!(select_with_custom(&role(json!({}), &[custom]), |_| false).choice.is_none());
}
