use futures_util::FutureExt;
use futures_util::future::{join, pending};
use tokio::sync::oneshot;

use super::super::subscriber::Subscriber;
use super::super::tasks::{SharedTasks, TaskError};
use super::*;

/// Tasks that were spawned.
type SpawnedTasks = Arc<std::sync::Mutex<Vec<BoxFuture<'static, ()>>>>;

/// Key of a company's task.
fn key(company: &str, user: &str) -> Subscriber {
    Subscriber::new(&company.into(), &user.into())
}

/// Returns tasks that the test polls itself.
fn tasks(capacity: usize) -> (SharedTasks<Subscriber, u32>, SpawnedTasks) {
    let spawned = SpawnedTasks::default();
    let spawner = {
        let spawned = spawned.clone();
        move |task: BoxFuture<'static, ()>| spawned.lock().expect("unpoisoned").push(task)
    };
    (SharedTasks::new(Arc::new(spawner), capacity), spawned)
}

#[tokio::test]
async fn callers_of_a_key_share_a_task_that_outlives_them() {
    let (tasks, spawned) = tasks(10);
    let (answer, answered) = oneshot::channel();
    let mut first = Box::pin(tasks.run(key("c", "1"), async move { answered.await.expect("answered") }));
    assert!((&mut first).now_or_never().is_none());
    let mut second = Box::pin(tasks.run(key("c", "1"), pending()));
    assert!((&mut second).now_or_never().is_none());
    let mut task = spawned.lock().expect("unpoisoned").pop().expect("a task");
    assert!(spawned.lock().expect("unpoisoned").is_empty(), "one task for both");
    assert!((&mut task).now_or_never().is_none());
    drop(first);
    let drained = tasks.drain();
    answer.send(7).expect("the task has survived its caller");
    let (outcome, ()) = join(second, async {
        task.await;
        drained.await;
    })
    .await;
    let outcome = outcome.expect("it has ended");
    assert_eq!((outcome.value, outcome.is_own), (7, false));
    assert!(tasks.drain().now_or_never().is_some(), "nothing is running");

    let mut third = Box::pin(tasks.run(key("c", "1"), async { 8 }));
    assert!((&mut third).now_or_never().is_none());
    let task = spawned.lock().expect("unpoisoned").pop().expect("another task");
    task.await;
    let outcome = third.await.expect("it has ended");
    assert_eq!((outcome.value, outcome.is_own), (8, true));
}

#[tokio::test]
async fn the_number_of_tasks_is_bounded_and_a_dropped_task_is_reported() {
    let (tasks, spawned) = tasks(5);
    let mut first = Box::pin(tasks.run(key("c", "1"), pending()));
    assert!((&mut first).now_or_never().is_none());
    tasks.start(key("c", "2"), pending());
    assert_eq!(
        tasks.run(key("c", "3"), async { 1 }).await.map(|outcome| outcome.value),
        Err(TaskError::Full)
    );
    assert!(tasks.run(key("c", "2"), async { 1 }).now_or_never().is_none(), "a running one can be joined");
    for user in ["1", "2", "3", "4"] {
        tasks.start(key("d", user), pending());
    }
    assert_eq!(spawned.lock().expect("unpoisoned").len(), 4, "another company has its own share");
    for user in ["1", "2"] {
        tasks.start(key("e", user), pending());
    }
    assert_eq!(spawned.lock().expect("unpoisoned").len(), 5, "as many as there may be in all");
    // The process stops: its tasks are dropped.
    spawned.lock().expect("unpoisoned").clear();
    assert_eq!(first.await.map(|outcome| outcome.value), Err(TaskError::Interrupted));
    assert!(tasks.drain().now_or_never().is_some(), "nothing is running");
    tasks.start(key("c", "3"), pending());
    assert_eq!(spawned.lock().expect("unpoisoned").len(), 1, "there is room again");
}
