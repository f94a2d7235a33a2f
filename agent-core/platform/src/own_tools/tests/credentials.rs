//! Tests of the credentials of tools, which no result shows.

use super::*;

#[tokio::test]
async fn a_secret_is_sent_and_is_masked_in_the_result() {
    const SECRET: &str = "tool \"secret\" 0123456789";
    let cases = [
        (json!({"type": "bearer", "secret": SECRET}), "Authorization", format!("Bearer {SECRET}")),
        (json!({"type": "header", "name": "X-Key", "secret": SECRET}), "X-Key", SECRET.to_owned()),
        (
            json!({"type": "basic", "user": "ada", "secret": "p4ssw0rd"}),
            "Authorization",
            "Basic YWRhOnA0c3N3MHJk".to_owned(),
        ),
    ];
    for (auth, name, value) in cases {
        let mut tool = get_order();
        (tool["auth"], tool["identity"]) = (auth.clone(), json!("signed"));
        let echo = json!({"said": value, "deep": [{auth["secret"].as_str().expect("text"): 1}]});
        for status in [200, 500] {
            let answers = vec![json_response(status, &echo)];
            let (output, sent) = call(tool.clone(), json!({"orderId": "1"}), answers).await;
            let output = output.expect("a result");
            let shown = format!("{output:?} {:?}", sent[0]);
            for secret in [SECRET, "tool \\\"secret", "p4ssw0rd", "YWRhOnA0c3N3MHJk"] {
                assert!(!shown.contains(secret), "{shown}");
            }
            assert!(output.text.contains("***"), "{output:?}");
            let header =
                sent[0].headers.iter().find(|(header_name, _)| header_name == name).expect("the credential");
            assert_eq!(header.1.expose(), value);
            let identity = sent[0].headers.iter().find(|(header_name, _)| header_name == "X-Agent-Identity");
            let key = auth["secret"].as_str().expect("text");
            check_identity(identity.expect("an identity").1.expose(), key);
        }
    }
    // Without its secret, nothing is sent.
    let mut tool = get_order();
    tool["auth"] = json!({"type": "bearer"});
    let (output, sent) = call(tool, json!({"orderId": "1"}), vec![]).await;
    assert!(matches!(output, Err(ToolError::Unavailable(_))) && sent.is_empty());
}

#[tokio::test]
async fn the_shown_address_hides_a_secret_in_the_query() {
    const SECRET: &str = "key/with space&0123456789";
    let mut tool = get_order();
    tool["auth"] = json!({"type": "query", "name": "api key", "secret": SECRET});
    let encoded = "key%2Fwith+space%260123456789";
    let echo =
        json!({"said": [SECRET, format!("/v1/orders/1?api+key={encoded}"), encoded.replace('+', "%20")]});
    for status in [200, 500] {
        let arguments = json!({"orderId": "1", "lang": "de"});
        let (output, sent) = call(tool.clone(), arguments, vec![json_response(status, &echo)]).await;
        let output = output.expect("a result");
        assert_eq!(sent[0].url.as_str(), "https://api.acme.example/v1/orders/1?full=true&lang=de");
        let (name, secret) = sent[0].secret_query.as_ref().expect("a parameter");
        assert_eq!((name.as_str(), secret.expose()), ("api key", SECRET));
        let shown = format!("{output:?} {:?}", sent[0]);
        assert!(!shown.contains("0123456789"), "{shown}");
        assert_eq!(output.text.matches("***").count(), 3, "{output:?}");
    }
    tool["auth"]["secret"] = json!("");
    let (output, sent) = call(tool, json!({"orderId": "1"}), vec![]).await;
    assert!(matches!(output, Err(ToolError::Unavailable(_))) && sent.is_empty());
}

#[tokio::test]
async fn a_secret_is_sent_as_a_cookie_and_adds_no_other() {
    let mut tool = get_order();
    tool["auth"] = json!({"type": "cookie", "name": "sid", "secret": "cookie-canary="});
    let echo = json!({"said": "sid=cookie-canary="});
    let answers = vec![json_response(200, &echo)];
    let (output, sent) = call(tool.clone(), json!({"orderId": "1"}), answers).await;
    let cookies: Vec<_> = sent[0].headers.iter().filter(|(name, _)| name == "Cookie").collect();
    assert_eq!((cookies.len(), cookies[0].1.expose()), (1, "sid=cookie-canary="));
    assert_eq!(output.expect("a result").text, r#"{"said":"sid=***"}"#);
    for secret in ["a;admin=1", "a b", "a,b", "\"a\"", "a\\b", "a\r\nX-Evil: 1", "\u{fc}"] {
        tool["auth"]["secret"] = json!(secret);
        let (output, sent) = call(tool.clone(), json!({"orderId": "1"}), vec![]).await;
        assert!(matches!(output, Err(ToolError::Unavailable(_))) && sent.is_empty(), "{secret}");
    }
}

fn check_identity(token: &str, key: &str) {
    crate::jwt::install_provider();
    let mut validation = jsonwebtoken::Validation::new(jsonwebtoken::Algorithm::HS256);
    validation.set_audience(&["getOrder"]);
    let key = jsonwebtoken::DecodingKey::from_secret(key.as_bytes());
    let claims = jsonwebtoken::decode::<Value>(token, &key, &validation).expect("a valid token").claims;
    let of = |name: &str| claims[name].as_str().unwrap_or_default().to_owned();
    assert_eq!(
        [of("sub"), of("companyId"), of("agentId"), of("runId"), of("caller")],
        ["u", "c", "a", "r", "session"]
    );
    assert_eq!(claims["exp"].as_u64(), claims["iat"].as_u64().map(|iat| iat + 60));
}
