//! The rules of merging, one by one.

use super::*;
use crate::conversation::merge::walk::VISITED_NODES;

/// Returns messages without ids: `u…` of the user, `t…` a tool's result, all others of the assistant.
fn list(words: &[&str]) -> Vec<Message> {
    let message = |word: &&str| match word.as_bytes()[0] {
        b'u' => Message::user(*word),
        b't' => Message::tool_result("call", *word),
        b's' => Message::text(Role::System, *word),
        _ => Message::assistant(*word),
    };
    words.iter().map(message).collect()
}

fn ag_ui(words: &[&str]) -> MergeInput<'static> {
    MergeInput { messages: shared(list(words)), format: RequestFormat::AgUi, ..MergeInput::default() }
}

fn single(word: &str) -> MergeInput<'static> {
    MergeInput { messages: shared(list(&[word])), format: RequestFormat::Message, ..MergeInput::default() }
}

/// Returns a tree of two turns: u1 a1 u2 a2.
fn two_turns() -> StoredTree {
    let mut tree = StoredTree::default();
    tree.chat(single("u1"), "a1");
    tree.chat(single("u2"), "a2");
    tree
}

#[test]
fn a_single_message_goes_below_the_head() {
    let mut tree = two_turns();
    assert_eq!(tree.chat(single("u3"), "a3"), texts(&["u1", "a1", "u2", "a2", "u3"]));
    // The same text again is said again.
    assert_eq!(tree.chat(single("u3"), "a4"), texts(&["u1", "a1", "u2", "a2", "u3", "a3", "u3"]));
}

#[test]
fn a_single_message_with_a_new_id_needs_no_walk() {
    let mut tree = two_turns();
    let message = |id: &str, text: &str, format: &RequestFormat| MergeInput {
        messages: shared([with_id(id, Message::user(text))]),
        format: format.clone(),
        ..MergeInput::default()
    };
    let ui = |message_id: Option<&str>| RequestFormat::UiMessages {
        trigger: UiTrigger::Submit,
        message_id: message_id.map(str::to_owned),
    };
    for format in [RequestFormat::Message, RequestFormat::Messages, ui(None), ui(Some("new"))] {
        VISITED_NODES.set(0);
        let merged = tree.merge(message("new", "u3", &format));
        assert_eq!(VISITED_NODES.get(), 0, "{format:?}");
        assert_eq!(tree.prompt(&merged), texts(&["u1", "a1", "u2", "a2", "u3"]), "{format:?}");
        assert_eq!(merged.nodes[0].client_id.as_deref(), Some("new"));
    }
    // With the ids of the nodes, the same is known without a look at the nodes.
    let ids = NodeIds::default();
    for (id, is_known) in [("new", true), ("new", false), (tree.links[0].id.as_str(), true)] {
        assert_eq!(ids.may_have(&tree.links, id), is_known, "the first one is looked up: {id}");
    }
    // The next one with this id is an edit.
    tree.chat(message("known", "u3", &ui(None)), "a3");
    for format in [RequestFormat::Messages, ui(None), ui(Some("known"))] {
        let merged = tree.merge(message("known", "u3 edited", &format));
        assert_eq!(tree.prompt(&merged), texts(&["u1", "a1", "u2", "a2", "u3 edited"]), "{format:?}");
        let merged = tree.merge(message("other", "u4", &format));
        let is_edit = format == ui(Some("known"));
        assert_eq!(merged.trigger == RunTriggerKind::Edit, is_edit, "the field says which one: {format:?}");
    }
}

#[test]
fn instructions_are_separated_from_the_conversation() {
    let tree = two_turns();
    let merged = tree.merge(ag_ui(&["sys", "u1", "a1", "u2", "a2", "sys2", "u3"]));
    assert_eq!(merged.instructions, shared(list(&["sys", "sys2"])));
    assert_eq!(tree.prompt(&merged), texts(&["u1", "a1", "u2", "a2", "u3"]));
    assert_eq!(merged.prompt(Vec::new()).len(), 3, "two instructions and the new message");
}

#[test]
fn an_unknown_answer_is_replaced_by_the_stored_one() {
    let tree = two_turns();
    let merged = tree.merge(ag_ui(&["u1", "forged", "u2", "forged too", "t", "u3"]));
    assert_eq!(tree.prompt(&merged), texts(&["u1", "a1", "u2", "a2", "u3"]));
    // An answer that the client has lost, or has in more pieces, is the stored one too.
    for words in [&["u1", "u2", "u3"][..], &["u1", "a", "b", "t", "c", "u2", "u3"]] {
        let merged = tree.merge(ag_ui(words));
        assert_eq!(tree.prompt(&merged), texts(&["u1", "a1", "u2", "a2", "u3"]), "{words:?}");
    }
}

#[test]
fn an_answer_without_stored_parts_is_left_out() {
    let mut tree = StoredTree::default();
    let merged = tree.merge(single("u1"));
    tree.run(merged, Vec::new());
    let merged = tree.merge(ag_ui(&["u1", "forged", "u2"]));
    assert_eq!(tree.prompt(&merged), texts(&["u1", "u2"]));
}

#[test]
fn a_list_that_ends_with_a_known_user_message_regenerates_the_answer() {
    let tree = two_turns();
    for (words, expected) in [
        (&["u1", "a1", "u2"][..], &["u1", "a1", "u2"][..]),
        (&["u1"], &["u1"]),
        (&["u1", "a1", "u2", "forged"], &["u1", "a1", "u2", "a2"]),
    ] {
        let merged = tree.merge(ag_ui(words));
        assert_eq!((merged.nodes.len(), tree.prompt(&merged)), (0, texts(expected)), "{words:?}");
    }
    let merged = tree.merge(ag_ui(&["u1", "a1", "u2"]));
    assert_eq!(merged.trigger, RunTriggerKind::Regenerate);
}

#[test]
fn a_known_id_with_other_content_is_an_edit_and_the_newest_counts() {
    let mut tree = StoredTree::default();
    let input = |messages: Vec<Message>| MergeInput {
        messages: shared(messages),
        format: RequestFormat::AgUi,
        ..MergeInput::default()
    };
    let user = |id: &str, text: &str| with_id(id, Message::user(text));
    tree.chat(input(vec![user("1", "u1")]), "a1");
    let second = |text: &str| vec![user("1", "u1"), Message::assistant("a1"), user("2", text)];
    tree.chat(input(second("u2")), "a2");
    let merged = tree.merge(input(second("u2 edited")));
    assert_eq!(merged.trigger, RunTriggerKind::Edit);
    assert_eq!(tree.prompt(&merged), texts(&["u1", "a1", "u2 edited"]));
    tree.run(merged, vec![Message::assistant("a2 edited").into()]);
    // The history continues from the edit, and the first version is still known.
    let mut third = second("u2 edited");
    third.extend([Message::assistant("a2 edited"), user("3", "u3")]);
    let merged = tree.merge(input(third));
    assert_eq!(tree.prompt(&merged), texts(&["u1", "a1", "u2 edited", "a2 edited", "u3"]));
    let merged = tree.merge(input(second("u2")));
    assert_eq!((merged.nodes.len(), merged.trigger), (0, RunTriggerKind::Regenerate));
}

#[test]
fn a_truncated_history_is_completed_from_the_store() {
    let mut tree = two_turns();
    tree.chat(single("u3"), "a3");
    let id = |at: usize| tree.links[at].id.to_string();
    let messages = vec![
        Message::user("not known any more"),
        with_id(id(2), Message::user("u2")),
        with_id(id(3), Message::assistant("a2")),
        Message::user("u3"),
        Message::assistant("a3"),
        Message::user("u4"),
    ];
    let messages = shared(messages);
    let merged = tree.merge(MergeInput { messages, format: RequestFormat::AgUi, ..MergeInput::default() });
    assert_eq!(tree.prompt(&merged), texts(&["u1", "a1", "u2", "a2", "u3", "a3", "u4"]));
    assert_eq!(merged.nodes.len(), 1);
}

#[test]
fn an_unknown_conversation_becomes_a_new_root() {
    let tree = two_turns();
    for input in [
        ag_ui(&["u9"]),
        ag_ui(&["a0", "u9"]),
        MergeInput { format: RequestFormat::Messages, ..ag_ui(&["u8", "a8", "u9"]) },
    ] {
        let messages = input.messages.clone();
        let merged = tree.merge(input);
        assert!(merged.path.is_empty());
        assert_eq!(
            tree.prompt(&merged),
            messages.iter().map(|message| role_and_text(message)).collect::<Vec<_>>()
        );
        let (last, before) = merged.nodes.split_last().expect("nodes");
        assert_eq!(last.origin, NodeOrigin::User);
        assert!(before.iter().all(|node| node.origin == NodeOrigin::Client));
    }
    let visitor = MergeInput { is_visitor: true, ..ag_ui(&["a0", "u8", "a8", "u9"]) };
    assert_eq!(tree.prompt(&tree.merge(visitor)), texts(&["u8", "u9"]), "a visitor's own words alone");
}

#[test]
fn parent_id_sets_the_position_of_a_message() {
    let tree = two_turns();
    let below = |at: usize| ParentChoice::Node(tree.links[at].id.clone());
    let merged = |parent, words: &[&str]| tree.merge(MergeInput { parent, ..ag_ui(words) });
    let new = merged(below(1), &["u2 edited"]);
    assert_eq!(tree.prompt(&new), texts(&["u1", "a1", "u2 edited"]));
    let listed = merged(below(1), &["u1", "a1", "u2 edited"]);
    assert_eq!(tree.prompt(&listed), texts(&["u1", "a1", "u2 edited"]));
    let anew = merged(below(0), &[]);
    assert_eq!((anew.nodes.len(), tree.prompt(&anew)), (0, texts(&["u1"])));
    let root = merged(ParentChoice::Root, &["u9"]);
    assert_eq!(tree.prompt(&root), texts(&["u9"]));
    let nothing = tree.try_merge(MergeInput { parent: ParentChoice::Root, ..ag_ui(&[]) });
    assert!(matches!(nothing, Err(ConversationError::Invalid(_))), "{nothing:?}");
    let missing = tree.try_merge(MergeInput { parent: ParentChoice::Node("none".into()), ..ag_ui(&["u"]) });
    assert!(matches!(missing, Err(ConversationError::NodeNotFound(_))), "{missing:?}");
}

#[test]
fn results_of_pending_calls_are_new_and_others_are_not() {
    let mut tree = StoredTree::default();
    let calls = vec![agent_core::message::ToolCall::new("call", "pick", "{}")];
    let merged = tree.merge(single("u1"));
    tree.run(merged, vec![Message::with_tool_calls("", calls).into()]);
    let pending = |words: &[&str]| MergeInput { pending_calls: vec!["call".to_owned()], ..ag_ui(words) };
    let merged = tree.merge(pending(&["u1", "assistant", "t first", "t second"]));
    assert_eq!(tree.prompt(&merged)[2..], texts(&["t first"]), "the first result counts");
    assert_eq!(merged.trigger, RunTriggerKind::Tools);
    for words in [&["u1", "t first"][..], &["u9", "t first"]] {
        let merged = tree.merge(pending(words));
        assert_eq!(tree.prompt(&merged)[2..], texts(&["t first"]), "the call is not in the list: {words:?}");
        assert_eq!((merged.nodes.len(), merged.trigger), (1, RunTriggerKind::Tools));
    }
    let merged = tree.merge(ag_ui(&["u1", "assistant", "t first", "u2"]));
    assert_eq!(tree.prompt(&merged)[2..], texts(&["u2"]), "a call that is not pending has no result");
}

#[test]
fn a_deleted_message_is_not_said_again_by_a_client_that_still_shows_it() {
    let mut tree = two_turns();
    tree.links[0].status = NodeStatus::Deleted;
    tree.links[0].hash = ContentHash::default();
    let mut with_ids = ag_ui(&["u1", "a1", "u2", "a2", "u3"]);
    for (message, link) in with_ids.messages.iter_mut().zip(&tree.links) {
        Arc::make_mut(message).id = Some(link.id.to_string());
    }
    for input in [with_ids, ag_ui(&["u1", "a1", "u2", "a2", "u3"])] {
        let merged = tree.merge(input);
        assert_eq!(merged.nodes.len(), 1);
        assert_eq!(tree.prompt(&merged), texts(&["a1", "u2", "a2", "u3"]));
    }
}

#[test]
fn ids_that_a_vendor_repeats_do_not_lead_astray() {
    let mut tree = StoredTree::default();
    for (user, answer) in [("u1", "a1"), ("u2", "a2")] {
        let merged = tree.merge(single(user));
        tree.run(merged, vec![Message::assistant(answer).into()]);
        let last = tree.links.len() - 1;
        tree.links[last].client_id = Some("msg".to_owned());
    }
    let messages =
        vec![Message::user("u1"), with_id("msg", Message::assistant("a1")), Message::user("u2 edited")];
    let messages = shared(messages);
    let merged = tree.merge(MergeInput { messages, format: RequestFormat::AgUi, ..MergeInput::default() });
    assert_eq!(tree.prompt(&merged), texts(&["u1", "a1", "u2 edited"]));
}

#[test]
fn repeated_texts_are_distinguished_by_position() {
    let mut tree = StoredTree::default();
    let mut words = Vec::new();
    for turn in 1..=5 {
        words.push("u");
        let prompt = tree.chat(ag_ui(&words), "a");
        assert_eq!((prompt, tree.links.len()), (texts(&words), 2 * turn));
        words.push("a");
    }
}

/// Merges unknown messages into a thread of as many nodes. Returns the number of nodes that the merge reads.
fn merge_unknown(count: usize) -> usize {
    let mut tree = StoredTree::default();
    let nodes = import_nodes(None, (0..count).map(|n| Message::user(format!("u{n}"))).collect());
    nodes.into_iter().for_each(|node| _ = tree.add(node, "t"));
    let unknown = (0..count).map(|n| with_id(format!("x{n}"), Message::user(format!("other {n}"))));
    let input =
        MergeInput { messages: shared(unknown), format: RequestFormat::AgUi, ..MergeInput::default() };
    VISITED_NODES.set(0);
    let merged = tree.merge(input);
    assert_eq!((merged.path.len(), merged.nodes.len()), (0, count));
    VISITED_NODES.get()
}

/// Merges messages that alternate between the ends of a chain of as many answers. Returns the number of nodes that the merge
/// looks at.
fn merge_alternating(count: usize) -> usize {
    let mut tree = StoredTree::default();
    let answers = import_nodes(None, (0..count).map(|_| Message::assistant("a")).collect());
    answers.into_iter().for_each(|node| _ = tree.add(node, "t"));
    let first = tree.links[0].id.to_string();
    let messages = (0..count).map(|n| match n % 2 {
        0 => with_id(first.clone(), Message::assistant("a")),
        _ => Message::user("u"),
    });
    let input = MergeInput { messages: shared(messages), ..MergeInput::default() };
    VISITED_NODES.set(0);
    let merged = tree.merge(input);
    assert_eq!((merged.path.len(), merged.nodes.len()), (count, 1));
    VISITED_NODES.get()
}

#[test]
fn merging_ten_thousand_unknown_messages_takes_linear_time() {
    let count = 10_000;
    for merge in [merge_unknown, merge_alternating] {
        let visited = merge(count);
        assert!((1..=8 * count).contains(&visited), "{visited} nodes for {count} messages");
    }
}

/// Returns the prompt of a queued request that begins now, with the nodes that `tree` has got meanwhile.
fn queued_prompt(tree: &StoredTree, queued: &MergeResult) -> Option<Vec<(NodeRole, String)>> {
    let merged = append_queued(&tree.links, &[], tree.head_id().as_ref(), queued)?;
    assert_eq!(merged.nodes.first().map(|node| node.parent_id.clone()), Some(tree.head_id()));
    Some(tree.prompt(&merged))
}

#[test]
fn queued_messages_go_below_messages_added_meanwhile() {
    let mut tree = two_turns();
    let third = tree.merge(ag_ui(&["u1", "a1", "u2", "a2", "u3"]));
    // The client has not seen an answer to u3, and has sent it without an id.
    let fourth = tree.merge(ag_ui(&["u1", "a1", "u2", "a2", "u3", "u4"]));
    let same = tree.merge(ag_ui(&["u1", "a1", "u2", "a2", "u3"]));
    let before = ["u1", "a1", "u2", "a2"];
    let with = |more: &[&'static str]| Some(texts(&[&before[..], more].concat()));
    assert_eq!(queued_prompt(&tree, &third), with(&["u3"]));
    let begun =
        append_queued(&tree.links, &[], tree.head_id().as_ref(), &third).expect("the branch is shown");
    tree.run(begun, vec![Message::assistant("a3").into()]);
    assert_eq!(queued_prompt(&tree, &fourth), with(&["u3", "a3", "u4"]));
    assert_eq!(queued_prompt(&tree, &same), with(&["u3", "a3", "u3"]), "the same text is said again");
}

#[test]
fn queued_messages_do_not_go_to_another_branch() {
    let mut tree = two_turns();
    let third = tree.merge(ag_ui(&["u1", "a1", "u2", "a2", "u3"]));
    tree.chat(ag_ui(&["u1", "a1", "u2 edited"]), "a2 anew");
    assert_eq!(queued_prompt(&tree, &third), None);
}
