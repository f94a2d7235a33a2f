//! Tests of arguments in the address and in the body of a request.

use super::*;

#[tokio::test]
async fn arguments_fill_the_placeholders() {
    let arguments = json!({"orderId": "ä 1?#&%", "lang": "de&x=1", "tags": ["a b", "c"]});
    let (output, sent) = call(get_order(), arguments, vec![json_response(200, &json!({"id": 1}))]).await;
    let output = output.expect("a result");
    assert_eq!((output.text.as_str(), output.structured), (r#"{"id":1}"#, Some(json!({"id": 1}))));
    let expected =
        "https://api.acme.example/v1/orders/%C3%A4%201%3F%23%26%25?full=true&lang=de%26x%3D1&tag=a+b&tag=c";
    assert_eq!(sent[0].url.as_str(), expected);
    let header = |name: &str| {
        sent[0]
            .headers
            .iter()
            .find(|(header_name, _)| header_name == name)
            .map(|(_, value)| value.expose().to_owned())
    };
    assert_eq!(header("X-Lang").as_deref(), Some("l-de&x=1"));
    assert!(header("Idempotency-Key").is_some_and(|key| key.len() == 32));
    assert!(header("traceparent").is_some_and(|trace| parse_trace(&trace, None).is_some()));
    assert_eq!(header("Authorization"), None);

    let (_, sent) = call(get_order(), json!({"orderId": "7"}), vec![json_response(200, &json!({}))]).await;
    assert_eq!(sent[0].url.as_str(), "https://api.acme.example/v1/orders/7?full=true");
    assert!(sent[0].headers.iter().all(|(name, _)| name != "X-Lang"), "its argument is not given");
}

#[tokio::test]
async fn choices_at_the_top_of_a_schema_are_not_offered_and_are_checked() {
    let mut tool = get_order();
    tool["inputSchema"]["oneOf"] = json!([{"required": ["lang"]}, {"required": ["tags"]}]);
    let owned: OwnTool = serde_json::from_value(tool.clone()).expect("a tool");
    let Ok(parsed) = HttpTool::parse(&owned) else { panic!("a tool") };
    let offered: Value = serde_json::from_str(parsed.spec.input_schema.get()).expect("JSON");
    assert_eq!(offered, get_order()["inputSchema"], "vendors refuse the request otherwise");
    let (result, sent) = call(tool.clone(), json!({"orderId": "1"}), vec![]).await;
    assert!(matches!(result, Err(ToolError::InvalidArguments(_))) && sent.is_empty());
    let arguments = json!({"orderId": "1", "lang": "de"});
    let (result, _) = call(tool, arguments, vec![json_response(200, &json!({}))]).await;
    assert!(result.is_ok());
}

#[tokio::test]
async fn a_form_has_the_members_of_its_body() {
    let with_body = |body: Value| {
        let mut tool = get_order();
        tool["inputSchema"]["required"] = json!([]);
        tool["request"] = json!({"method": "POST", "url": "https://api.acme.example/v1/orders", "body": body,
            "contentType": "application/x-www-form-urlencoded"});
        tool
    };
    let good = || vec![json_response(200, &json!({}))];
    let body =
        json!({"note": "{lang}", "tag": "{tags}", "id": "{orderId}", "n": 1, "paid": true, "no": null});
    let arguments = json!({"lang": "a&b=\u{fc}", "tags": ["x", "y z"]});
    let (_, sent) = call(with_body(body), arguments.clone(), good()).await;
    let body = body_of(&sent[0]);
    assert!(
        body.windows(20).any(|text| text == b"note=a%26b%3D%C3%BC&"),
        "{}",
        String::from_utf8_lossy(&body)
    );
    let mut fields: Vec<_> = url::form_urlencoded::parse(&body).into_owned().collect();
    fields.sort();
    let expected = [("n", "1"), ("note", "a&b=\u{fc}"), ("paid", "true"), ("tag", "x"), ("tag", "y z")];
    assert_eq!(fields, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(sent[0].content_type, "application/x-www-form-urlencoded");
    for (body, argument) in [(json!("{lang}"), "/lang"), (json!({"label": ["{tags}"]}), "/tags")] {
        let (result, sent) = call(with_body(body.clone()), arguments.clone(), good()).await;
        assert!(sent.is_empty(), "{body}");
        let Err(ToolError::InvalidArguments(message)) = result else { panic!("{body} is sent") };
        assert!(message.starts_with(argument), "{message}");
    }
    let mut tool = with_body(json!("{lang}"));
    tool["inputSchema"]["properties"]["lang"] = json!({});
    let (result, _) = call(tool, json!({"lang": {"a": {"b": 1}}}), good()).await;
    let Err(ToolError::InvalidArguments(message)) = result else { panic!("it is sent") };
    assert!(message.starts_with("/lang/a: "), "{message}");
}

#[tokio::test]
async fn a_list_is_joined_where_one_value_holds_it() {
    let mut tool = get_order();
    (tool["inputSchema"]["properties"]["orderId"], tool["inputSchema"]["properties"]["lang"]) =
        (json!({}), json!({}));
    tool["request"]["query"] = json!({"tag": {"list": "{tags}", "separator": ","}});
    let arguments = json!({"orderId": ["1", "a,b"], "lang": ["de", "en"], "tags": ["x", "y z"]});
    let (_, sent) = call(tool.clone(), arguments, vec![json_response(200, &json!({}))]).await;
    assert_eq!(sent[0].url.as_str(), "https://api.acme.example/v1/orders/1,a%2Cb?tag=x%2Cy+z");
    let header = sent[0].headers.iter().find(|(name, _)| name == "X-Lang").expect("a header");
    assert_eq!(header.1.expose(), "l-de,en");
    let arguments = json!({"orderId": 1, "tags": []});
    let (_, sent) = call(tool.clone(), arguments, vec![json_response(200, &json!({}))]).await;
    assert_eq!(sent[0].url.as_str(), "https://api.acme.example/v1/orders/1");
    for arguments in [
        json!({"orderId": []}),
        json!({"orderId": ["1", ""]}),
        json!({"orderId": ["1", ".."]}),
        json!({"orderId": ["a/b"]}),
        json!({"orderId": [["1"]]}),
        json!({"orderId": vec!["1"; 1001]}),
        json!({"orderId": "1", "tags": ["a,b"]}),
        json!({"orderId": "1", "lang": ["a,b"]}),
        json!({"orderId": "1", "lang": ["a\r\nX: 1"]}),
        json!({"orderId": "1", "lang": vec!["x".repeat(100); 50]}),
        json!({"orderId": "1", "tags": vec!["x".repeat(100); 100]}),
    ] {
        let (result, sent) = call(tool.clone(), arguments.clone(), vec![]).await;
        assert!(matches!(result, Err(ToolError::InvalidArguments(_))) && sent.is_empty(), "{arguments}");
    }
}

#[tokio::test]
async fn an_argument_cannot_leave_its_place() {
    let long = "x".repeat(10 << 20);
    for order in [
        "",
        ".",
        "..",
        "../admin",
        "a/b",
        "a\\b",
        "%2e%2e",
        "%252e%252E",
        "%2fadmin",
        "a%5cb",
        "a\r\nb",
        "a\0",
        &long,
    ] {
        let (result, sent) = call(get_order(), json!({"orderId": order}), vec![]).await;
        let error = result.expect_err("an error").to_string();
        assert!(error.starts_with("invalid arguments: /orderId: "), "{error}");
        assert!(sent.is_empty() && error.len() < 200);
    }
    for arguments in [json!({}), json!({"orderId": 1}), json!({"orderId": "1", "lang": "a\r\nX-Other: 1"})] {
        let (result, sent) = call(get_order(), arguments.clone(), vec![]).await;
        assert!(matches!(result, Err(ToolError::InvalidArguments(_))) && sent.is_empty(), "{arguments}");
    }
    // A value that is harmless alone.
    let mut tool = get_order();
    tool["request"]["url"] = json!("https://api.acme.example/v1/{orderId}{lang}/x");
    tool["inputSchema"]["required"] = json!(["orderId", "lang"]);
    for (first, second) in [("%2", "e%2e"), ("%2e%", "2e")] {
        let arguments = json!({"orderId": first, "lang": second});
        let (result, sent) = call(tool.clone(), arguments, vec![json_response(200, &json!({}))]).await;
        match result {
            Err(error) => assert!(sent.is_empty(), "{error}"),
            Ok(_) => assert!(sent[0].url.path().starts_with("/v1/%252"), "{}", sent[0].url),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_argument_reaches_another_host_or_path(
        order in "(\\PC|[./\\\\%@:?#&;{}\\r\\n]|%2e|%2F|\\.\\.|evil\\.example){0,12}",
        lang in "(\\PC|[./%@:?#&\\r\\n]){0,8}",
    ) {
        let tool: OwnTool = serde_json::from_value(get_order()).expect("a tool");
        let Ok(tool) = HttpTool::parse(&tool) else { panic!("a tool") };
        let Value::Object(arguments) = json!({"orderId": order, "lang": lang}) else { unreachable!() };
        if let Ok(filled) = tool.request.fill(&arguments, &Default::default()) {
            let url = filled.url;
            prop_assert_eq!(url.origin().ascii_serialization(), "https://api.acme.example");
            prop_assert!(url.username().is_empty() && url.password().is_none() && url.fragment().is_none());
            let segments: Vec<_> = url.path_segments().expect("a path").collect();
            prop_assert_eq!(segments.len(), 3);
            prop_assert_eq!(&segments[..2], &["v1", "orders"]);
            let names: Vec<_> = url.query_pairs().map(|(name, _)| name.into_owned()).collect();
            prop_assert_eq!(names, ["full", "lang"]);
            prop_assert!(filled.headers.iter().all(|(_, value)| !value.contains(['\r', '\n'])));
        }
    }
}
