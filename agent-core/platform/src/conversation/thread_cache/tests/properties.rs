//! Comparison of the cached prompts with the prompts of the store, over random changes by two processes.

use super::*;

/// A change of the thread by one of two processes, with the number of the node that it concerns.
#[derive(Debug, Clone, Copy)]
enum Change {
    Turn,
    AnswerAnew(usize, bool),
    Append(usize),
    Erase(usize),
    EraseWhileLoaded(usize),
    MoveHead(usize),
    Delete,
    Create,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        Just(Change::Turn),
        (0..8_usize, any::<bool>()).prop_map(|(n, has_answer)| Change::AnswerAnew(n, has_answer)),
        (0..8_usize).prop_map(Change::Append),
        (0..8_usize).prop_map(Change::Erase),
        (0..8_usize).prop_map(Change::EraseWhileLoaded),
        (0..8_usize).prop_map(Change::MoveHead),
        Just(Change::Delete),
        Just(Change::Create),
    ]
}

async fn apply(process: &Process<'_>, change: Change, step: usize) {
    let (store, key) = (process.store, key());
    let nodes = nodes(store, &key).await;
    let chosen = |n: usize| nodes.get(n % nodes.len().max(1)).map(|link| link.id.clone());
    match change {
        Change::Turn => drop(process.turn(&key, &format!("r{step}")).await),
        Change::AnswerAnew(n, has_answer) => {
            if let Some(node) = chosen(n) {
                process.answer_anew(&key, node, &format!("r{step}"), has_answer).await;
            }
        }
        Change::Append(n) => {
            let node = NewNode::user(chosen(n), Message::user(format!("appended in {step}")));
            // The thread may not exist.
            let _ = store.append(&key, None, vec![node], now()).await;
        }
        Change::Erase(n) => {
            if let Some(node) = chosen(n) {
                process.erase(&key, &node).await;
            }
        }
        Change::EraseWhileLoaded(n) => {
            let loaded = process.cache.load(store, &key).await.expect("the thread loads");
            if let Some(node) = chosen(n) {
                process.erase(&key, &node).await;
            }
            process.cache.keep(&key, loaded);
        }
        Change::MoveHead(n) => {
            let patch = ThreadPatch { head: chosen(n), ..ThreadPatch::default() };
            let _ = store.patch(&key, patch, now()).await;
        }
        Change::Delete => process.delete(&key).await,
        Change::Create if nodes.is_empty() => {
            process.delete(&key).await;
            create(store, &key, &[&format!("created in {step}")]).await;
        }
        Change::Create => {}
    }
}

/// Two processes change a thread in any order, at the same time of the clock. After each change, both prompts are those of a
/// process without a cache.
async fn check(changes: Vec<(bool, Change)>) {
    let store = MemoryConversations::default();
    let processes = [Process::new(&store), Process::new(&store)];
    for (step, (is_second, change)) in changes.into_iter().enumerate() {
        apply(&processes[usize::from(is_second)], change, step).await;
        let expected = Process::new(&store).prompt(&key()).await.texts;
        let contexts = Process::new(&store).contexts(&key()).await;
        let messages = Process::new(&store).messages(&key()).await;
        for process in &processes {
            assert_eq!(process.messages(&key()).await, messages, "after {change:?} in {step}");
            assert_eq!(process.prompt(&key()).await.texts, expected, "after {change:?} in {step}");
            assert_eq!(process.contexts(&key()).await, contexts, "after {change:?} in {step}");
        }
        let links = nodes(&store, &key()).await;
        let erased = links.iter().filter(|link| link.status == NodeStatus::Deleted).count();
        assert!(expected.len() <= links.len() - erased + 1);
    }
}

proptest! {
    #[test]
    fn a_prompt_is_that_of_a_process_without_a_cache(changes in vec((any::<bool>(), change()), 1..40)) {
        check(changes).now_or_never().expect("the store in memory never waits");
    }
}
