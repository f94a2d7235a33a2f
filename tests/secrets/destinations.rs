//! Servers to which a key is sent.

use super::*;

#[tokio::test]
async fn the_operators_key_goes_to_the_operators_vendor_alone() {
    let client = client();
    let (operator_vendor, other) = (Vendor::start().await, Vendor::start().await);
    let operator = Some(format!("Bearer {OPERATOR_KEY}"));
    let brought = Some(format!("Bearer {ROLE_KEY}"));
    let elsewhere = format!("http://{}/other/v2", operator_vendor.address);
    let (own_url, other_url) = (operator_vendor.base_url(), other.base_url());
    // Settings of a role or a request, the vendor called, and the key sent to it.
    let cases = [
        (json!({}), &operator_vendor, &operator),
        (json!({"baseUrl": ""}), &operator_vendor, &operator),
        (json!({"baseUrl": " "}), &operator_vendor, &operator),
        (json!({"baseUrl": own_url}), &operator_vendor, &operator),
        // Another path of the same origin may be another party's.
        (json!({"baseUrl": elsewhere}), &operator_vendor, &None),
        (json!({"apiKey": ROLE_KEY}), &operator_vendor, &brought),
        (json!({"baseUrl": other_url}), &other, &None),
        (json!({"baseUrl": other_url, "apiKey": ""}), &other, &None),
        (json!({"baseUrl": other_url, "apiKey": ROLE_KEY}), &other, &brought),
        (json!({"baseUrl": format!("{other_url}?{own_url}#{own_url}")}), &other, &None),
    ];
    let settings = [("OPENAI_BASE_URL", &*own_url), ("OPENAI_API_KEY", OPERATOR_KEY)];
    let runtime = server::runtime(&settings).await;
    let agents = cases.iter().enumerate().map(|(index, (brings, ..))| {
        let mut content = json!({"provider": "openai", "model": "m"});
        content.as_object_mut().expect("an object").extend(brings.as_object().expect("an object").clone());
        let (content, children) = embedded(content);
        (index.to_string(), content, children)
    });
    let app = server::app(&workspace(agents), &settings).await;
    for (index, (brings, called, key)) in cases.iter().enumerate() {
        let before = (operator_vendor.received().len(), other.received().len());
        let answers = [
            app.chat(&json!({"agentId": index.to_string(), "message": "hello"})).await,
            client
                .post(runtime.url("/chat"))
                .json(&runtime_request("m", brings.clone()))
                .send()
                .await
                .expect("an answer"),
        ];
        for answer in answers {
            assert_eq!(answer.status(), 200, "{brings}");
            assert!(answer.text().await.expect("a body").contains("RUN_FINISHED"), "{brings}");
        }
        let (to_own, to_other) =
            (operator_vendor.received().split_off(before.0), other.received().split_off(before.1));
        let (to_called, to_not) =
            if called.address == operator_vendor.address { (to_own, to_other) } else { (to_other, to_own) };
        assert_eq!(to_not.len(), 0, "{brings}");
        let keys: Vec<_> = to_called.iter().map(bearer).collect();
        assert_eq!(keys, [(*key).clone(), (*key).clone()], "{brings}: application, runtime");
    }
}

#[tokio::test]
async fn the_runtimes_secret_goes_to_the_operators_runtime_alone() {
    let (operator_vendor, other) = (Vendor::start().await, Vendor::start().await);
    let own_url = format!("http://{}", operator_vendor.address);
    let other_url = format!("http://{}", other.address);
    for vendor in [&operator_vendor, &other] {
        vendor.on("m", [empty_run()]);
    }
    let cases = [
        (own_url.clone(), &operator_vendor, Some(format!("Bearer {RUNTIME_SECRET}"))),
        (format!("{own_url}/below/"), &operator_vendor, Some(format!("Bearer {RUNTIME_SECRET}"))),
        (other_url.clone(), &other, None),
        (format!("{other_url}/?{own_url}"), &other, None),
    ];
    let agents = cases.iter().enumerate().map(|(index, (url, ..))| {
        let content =
            json!({"agentServerUrl": url, "agentServerProvider": "openai", "agentServerModel": "m"});
        (index.to_string(), content, json!([]))
    });
    let settings =
        [("RUNTIME_URL", &*own_url), ("RUNTIME_SECRET", RUNTIME_SECRET), ("OPENAI_API_KEY", OPERATOR_KEY)];
    let app = server::app(&workspace(agents), &settings).await;
    let token = session_token("u1", "c1");
    for (index, (url, called, expected)) in cases.iter().enumerate() {
        let request_count = called.received().len();
        let answer =
            app.chat_as(&token, "", &json!({"agentId": index.to_string(), "message": "hello"})).await;
        assert_eq!(answer.status(), 200, "{url}");
        assert!(answer.text().await.expect("a body").contains("RUN_FINISHED"), "{url}");
        let received = called.received().split_off(request_count);
        assert_eq!(received.len(), 1, "{url}");
        assert_eq!(bearer(&received[0]), *expected, "{url}");
        let request_text = format!("{}{}", received[0].head, String::from_utf8_lossy(&received[0].body));
        for stays in [&*token, SESSION_SECRET, INTERNAL_SECRET, OPERATOR_KEY] {
            assert!(!request_text.contains(stays), "{url}: {request_text}");
        }
    }
}
