//! Runs of several rounds by a subscription: the tools are called in the application, and the vendor sees each round again.

use serde_json::json;

use super::installation::{InstallationSettings, open_over, workspace_of_models};
use crate::responses::rounds::round;
use crate::support::responses_vendor::{OutputItem, Reply};
use crate::support::server;
use crate::support::text_of;

#[tokio::test]
async fn sixteen_rounds_of_reasoning_and_three_calls_pass_through_the_runtime() {
    let models = ["in-order", "interleaved"];
    let stores = server::stores(&workspace_of_models(&models)).await;
    let settings = InstallationSettings { app: &[("TOOL_ROUNDS", "17")], ..Default::default() };
    let all = open_over(stores, settings).await;
    all.sign_in("u1").await;
    for (model, reply) in models.into_iter().zip([Reply::answer as fn(_) -> _, Reply::interleaved]) {
        let rounds = (0..16).map(round).map(reply);
        all.vendor.on(model, rounds.chain([Reply::answer(vec![OutputItem::text(&["Done", "."])])]));
        // The canaries of the sealed reasoning are among the canaries that no run may show.
        let events = all.run("u1", model).await;
        assert!(text_of(&events).ends_with("Done."), "{events:?}");
        let results = events.iter().filter(|event| event["type"] == "TOOL_CALL_RESULT").count();
        assert_eq!(results, 48);
        let usage = &events.last().expect("an end")["usage"][0];
        assert_eq!((&usage["provider"], &usage["inputTokens"]), (&json!("subscription"), &json!(187)));
        let bodies = all.vendor.received_bodies(model);
        assert_eq!(bodies.len(), 17);
        assert!(
            bodies.iter().all(|body| body["prompt_cache_key"] == bodies[0]["prompt_cache_key"]),
            "a run has one key"
        );
    }
    all.assert_no_complaints();
}
