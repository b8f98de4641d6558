//! H and K: runs that wait for people, for other agents, for a budget; contexts that are summarised.

use keel_tests::sse::Stream;
use keel_tests::{Keel, TIMEOUT, kinds, text};
use reqwest::Method;
use serde_json::{Value, json};

/// A plugin with one tool that always needs consent. Its function does not exist, so a call that is allowed fails.
async fn asking_tool(keel: &Keel) -> String {
    let id = keel.session().await.rsplit('/').next().unwrap().to_owned();
    let tool = format!("pay-{id}");
    let plugin = json!({
        "kind": "lambda",
        "functionArn": "arn:aws:lambda:eu-central-1:123456789012:function:no-such-function",
        "tools": [{
            "name": tool, "description": "Pays.", "approval": "always",
            "parameters": { "type": "object", "required": ["amount"] },
        }],
    });
    put(keel, &format!("/v1/plugins/{tool}"), plugin).await.ok(201);
    tool
}

async fn put(keel: &Keel, path: &str, body: Value) -> keel_tests::Reply {
    keel.send(Method::PUT, path, &[], body.to_string().into_bytes()).await
}

async fn waits(keel: &Keel, session: &str, reason: &str) -> Value {
    keel.until(session, |row| row["run"]["status"] == "waiting" && row["run"]["waitsFor"] == reason).await
}

async fn decisions(keel: &Keel, session: &str) -> Vec<Value> {
    let all = keel.get(&format!("{session}/decisions")).await.ok(200);
    all["decisions"].as_array().unwrap().clone()
}

async fn answer_decision(keel: &Keel, decision: &Value, answer: Value) -> keel_tests::Reply {
    let mut body = answer;
    body["digest"] = decision["digest"].clone();
    keel.post(&format!("/v1/decisions/{}", decision["id"].as_str().unwrap()), body).await
}

fn results(events: &[Value]) -> Vec<(String, bool)> {
    let results = events.iter().filter(|event| event["kind"] == "tool.result");
    results.map(|event| (text(event), event["payload"]["isError"] == true)).collect()
}

#[tokio::test]
async fn h1_h2_a_call_that_wants_a_person_waits_at_no_cost_and_is_answered_once() {
    let keel = Keel::start().await;
    let tool = asking_tool(&keel).await;
    let session = keel.session().await;
    keel.say(&session, &format!("!tool {tool} {{\"amount\":7}}\n!then\n!say so be it")).await;
    let row = waits(&keel, &session, "decision").await;
    assert!(row["lease"].is_null() && row["run"]["attempts"] == 0, "{row}");
    let decision = decisions(&keel, &session).await.remove(0);
    assert_eq!((&decision["status"], &decision["arguments"]), (&json!("open"), &json!({ "amount": 7 })));
    let open = keel.get("/v1/decisions?limit=100").await.ok(200);
    assert!(open["decisions"].as_array().unwrap().iter().any(|one| one["id"] == decision["id"]), "{open}");

    let id = decision["id"].as_str().unwrap();
    let other = keel.as_caller(&Keel::other_key());
    answer_decision(&other, &decision, json!({ "answer": "allow" })).await.refused(404, "not_found", "");
    let wrong = json!({ "answer": "allow", "digest": "0" });
    keel.post(&format!("/v1/decisions/{id}"), wrong).await.refused(409, "decision_differs", "/digest");
    answer_decision(&keel, &decision, json!({ "answer": "perhaps" })).await.refused(
        400,
        "invalid_payload",
        "/answer",
    );
    answer_decision(&keel, &decision, json!({ "answer": "edit" })).await.refused(
        400,
        "invalid_payload",
        "/arguments",
    );
    let no = json!({ "answer": "deny", "comment": "not this month" });
    assert_eq!(answer_decision(&keel, &decision, no.clone()).await.ok(200)["created"], true);
    assert_eq!(answer_decision(&keel, &decision, no).await.ok(200)["created"], false, "the same again");
    answer_decision(&keel, &decision, json!({ "answer": "allow" })).await.refused(409, "decision_taken", "");

    assert_eq!(keel.settled(&session).await["run"]["status"], "done");
    let events = keel.events(&session).await;
    assert_eq!(
        kinds(&events),
        ["user.message", "assistant.message", "tool.result", "assistant.message", "run.finished"]
    );
    assert_eq!(results(&events), [("not run: a person said no: not this month".to_owned(), true)]);
    assert_eq!(text(&events[3]), "so be it");
    let after = &decisions(&keel, &session).await[0];
    assert_eq!((&after["status"], &after["answer"]["answer"]), (&json!("answered"), &json!("deny")));
    assert!(after["answer"]["by"].is_string() && after["answer"]["at"].is_string());
}

#[tokio::test]
async fn h3_many_decisions_are_open_at_once_and_each_call_does_as_it_is_told() {
    let keel = Keel::start().await;
    let tool = asking_tool(&keel).await;
    let session = keel.session().await;
    let call = |amount: &str| format!("!tool {tool} {{\"amount\":{amount}}}");
    keel.say(&session, &[call("1"), call("2"), call("3"), "!tool echo {\"free\":1}".into()].join("\n")).await;
    waits(&keel, &session, "decision").await;
    assert_eq!(
        results(&keel.events(&session).await),
        [(r#"{"free":1}"#.to_owned(), false)],
        "this one did not wait"
    );
    let mut open = decisions(&keel, &session).await;
    assert_eq!(open.len(), 3);
    open.sort_by_key(|decision| decision["arguments"]["amount"].as_u64());
    answer_decision(&keel, &open[0], json!({ "answer": "deny" })).await.ok(200);
    // The calls that were not answered go on waiting.
    waits(&keel, &session, "decision").await;
    answer_decision(&keel, &open[1], json!({ "answer": "edit", "arguments": {} })).await.ok(200);
    answer_decision(&keel, &open[2], json!({ "answer": "allow" })).await.ok(200);
    assert_eq!(keel.settled(&session).await["run"]["status"], "done");
    let events = keel.events(&session).await;
    let texts: Vec<String> = results(&events).into_iter().map(|(text, _)| text).collect();
    assert_eq!(texts.len(), 4);
    assert!(texts.iter().any(|text| text.contains("a person said no")), "{texts:?}");
    assert!(
        texts.iter().any(|text| text.contains("\"amount\" is a required property")),
        "edited, so its schema is checked: {texts:?}"
    );
    assert!(
        texts.iter().any(|text| text.contains("the tool could not be called")),
        "allowed, so it was called: {texts:?}"
    );
}

/// The next decision that a stream announces, in a frame without an id.
async fn announced(stream: &mut Stream) -> Value {
    let find = async {
        while let Some(frame) = stream.next().await {
            if frame.event == "decision.opened" {
                return frame.data;
            }
        }
        panic!("the stream ended");
    };
    tokio::time::timeout(TIMEOUT, find).await.expect("it is announced")
}

#[tokio::test]
async fn h2_a_stream_announces_a_decision_without_an_id() {
    let keel = Keel::start().await;
    let tool = asking_tool(&keel).await;
    let session = keel.session().await;
    let mut stream = keel.stream(&format!("{session}/events/stream"), None).await;
    keel.say(&session, &format!("!tool {tool} {{\"amount\":7}}")).await;
    let decision = announced(&mut stream).await;
    assert_eq!((&decision["toolName"], &decision["status"]), (&json!(tool), &json!("open")));
    // A reader that comes later sees it too.
    let mut late = keel.stream(&format!("{session}/events/stream?after=2"), None).await;
    assert_eq!(announced(&mut late).await, decision);
    answer_decision(&keel, &decision, json!({ "answer": "deny" })).await.ok(200);
    keel.settled(&session).await;
}

#[tokio::test]
async fn c6_h2_closing_a_session_takes_its_decisions_off_the_tenants_list() {
    let keel = Keel::start().await;
    let tool = asking_tool(&keel).await;
    let session = keel.session().await;
    keel.say(&session, &format!("!tool {tool} {{\"amount\":7}}")).await;
    waits(&keel, &session, "decision").await;
    let decision = decisions(&keel, &session).await.remove(0);
    let is_listed = async || {
        let mut path = "/v1/decisions?limit=100".to_owned();
        loop {
            let page = keel.get(&path).await.ok(200);
            if page["decisions"].as_array().unwrap().iter().any(|one| one["id"] == decision["id"]) {
                return true;
            }
            match page["cursor"].as_str() {
                Some(cursor) if page["hasMore"] == true => {
                    path = format!("/v1/decisions?limit=100&cursor={cursor}")
                }
                _ => return false,
            }
        }
    };
    assert!(is_listed().await);
    keel.post(&format!("{session}/close"), json!({})).await.ok(200);
    assert!(!is_listed().await);
    answer_decision(&keel, &decision, json!({ "answer": "allow" })).await.refused(409, "session_closed", "");
}

#[tokio::test]
async fn h4_a_cancel_of_a_waiting_run_ends_it_and_withdraws_its_decision() {
    let keel = Keel::start().await;
    let tool = asking_tool(&keel).await;
    let session = keel.session().await;
    keel.say(&session, &format!("!tool {tool} {{\"amount\":7}}")).await;
    waits(&keel, &session, "decision").await;
    keel.post(&format!("{session}/cancel"), json!({})).await.ok(200);
    let row = keel.settled(&session).await;
    assert_eq!((&row["run"]["status"], &row["run"]["reason"]), (&json!("failed"), &json!("cancelled")));
    let decision = decisions(&keel, &session).await.remove(0);
    assert_eq!((&decision["status"], &decision["answer"]["by"]), (&json!("answered"), &json!("keel")));
    answer_decision(&keel, &decision, json!({ "answer": "allow" })).await.refused(409, "decision_taken", "");
    keel.say(&session, "!say onwards").await;
    assert_eq!(keel.settled(&session).await["run"]["status"], "done", "the next run goes on");
}

#[tokio::test]
async fn h4_another_agent_has_a_ledger_of_its_own_and_its_last_answer_is_the_result() {
    let keel = Keel::start().await;
    let session = keel.session().await;
    let task = "!tool echo {\\\"deep\\\":1}\\n!then\\n!say the child knows";
    keel.say(
        &session,
        &format!("!tool agent {{\"task\":\"{task}\",\"title\":\"helper\"}}\n!then\n!say noted it"),
    )
    .await;
    assert_eq!(keel.settled(&session).await["run"]["status"], "done");
    let events = keel.events(&session).await;
    assert_eq!(results(&events), [("the child knows".to_owned(), false)]);
    let children = keel.get(&format!("{session}/subagents")).await.ok(200);
    let child = &children["subagents"][0];
    let parent = session.rsplit('/').next().unwrap();
    assert_eq!(
        (&child["parent"], &child["root"], &child["depth"]),
        (&json!(parent), &json!(parent), &json!(1))
    );
    assert_eq!((&child["title"], &child["run"]["status"]), (&json!("helper"), &json!("done")));
    assert_eq!(child["toolCallId"], events[2]["payload"]["toolCallId"]);
    let path = format!("/v1/sessions/{}", child["sessionId"].as_str().unwrap());
    let own = keel.events(&path).await;
    assert_eq!(
        kinds(&own),
        ["user.message", "assistant.message", "tool.result", "assistant.message", "run.finished"]
    );
    keel.say(&path, "still there?").await;
    assert_eq!(keel.settled(&path).await["run"]["status"], "done", "one can talk to it afterwards");
}

#[tokio::test]
async fn h4_several_agents_work_at_once_and_none_goes_deeper_than_three() {
    let keel = Keel::start().await;
    let session = keel.session().await;
    // Each level calls the next one, with its script as JSON in JSON.
    let deeper = |task: &str| format!("!tool agent {}\n!then\n!say back", json!({ "task": task }));
    let script = deeper(&deeper(&deeper(&deeper("too deep"))));
    let two =
        format!("!tool agent {}\n{}", json!({ "task": "!say quick" }), script.split('\n').next().unwrap());
    keel.say(&session, &format!("{two}\n!then\n!say all back")).await;
    assert_eq!(keel.settled(&session).await["run"]["status"], "done");
    let mut texts: Vec<String> =
        results(&keel.events(&session).await).into_iter().map(|(text, _)| text).collect();
    texts.sort();
    assert_eq!(texts, ["back", "quick"]);
    let mut path = session;
    for depth in 1..=3 {
        let children = keel.get(&format!("{path}/subagents")).await.ok(200);
        let rows = children["subagents"].as_array().unwrap();
        let deepest = rows.iter().max_by_key(|row| row["seq"].as_u64()).unwrap();
        assert_eq!(deepest["depth"], depth);
        path = format!("/v1/sessions/{}", deepest["sessionId"].as_str().unwrap());
    }
    let refused = results(&keel.events(&path).await);
    assert!(refused[0].1 && refused[0].0.contains("3 deep"), "{refused:?}");
}

#[tokio::test]
async fn h4_a_session_has_no_more_agents_than_the_limit_though_one_message_asks_for_many() {
    let keel = Keel::start().await;
    let limit = keel.get("/v1/capabilities").await.ok(200)["limits"]["children"].as_u64().unwrap();
    let limit = usize::try_from(limit).unwrap();
    let session = keel.session().await;
    let many = limit / 2 - 2;
    for _ in 0..3 {
        let calls = "!tool agent {\"task\":\"!say ok\"}\n".repeat(many);
        keel.say(&session, &format!("{calls}!then\n!say all back")).await;
        let row = keel.settled(&session).await;
        assert_eq!(row["run"]["status"], "done", "{row}");
    }
    let results = results(&keel.events(&session).await);
    let refused: Vec<&String> = results.iter().filter(|(_, bad)| *bad).map(|(text, _)| text).collect();
    assert_eq!((results.len(), refused.len()), (3 * many, 3 * many - limit));
    assert!(refused.iter().all(|text| text.contains(&format!("{limit} agents"))), "{refused:?}");
    let children = keel.get(&format!("{session}/subagents")).await.ok(200);
    assert_eq!(children["subagents"].as_array().unwrap().len(), limit);
}

/// A session that waits for a child that never answers, and the child.
async fn with_a_child_at_work(keel: &Keel) -> (String, String) {
    let session = keel.session().await;
    keel.say(&session, "!tool agent {\"task\":\"!hang\"}").await;
    waits(keel, &session, "child").await;
    let child = keel.get(&format!("{session}/subagents")).await.ok(200)["subagents"][0].clone();
    let path = format!("/v1/sessions/{}", child["sessionId"].as_str().unwrap());
    keel.until(&path, |row| row["run"]["status"] == "running").await;
    (session, path)
}

#[tokio::test]
async fn h4_a_cancel_reaches_the_children() {
    let keel = Keel::start().await;
    let (session, path) = with_a_child_at_work(&keel).await;
    keel.post(&format!("{session}/cancel"), json!({})).await.ok(200);
    for path in [&session, &path] {
        let row = keel.settled(path).await;
        assert_eq!((&row["run"]["status"], &row["run"]["reason"]), (&json!("failed"), &json!("cancelled")));
    }
}

#[tokio::test]
async fn c6_h4_a_close_reaches_the_children() {
    let keel = Keel::start().await;
    let (session, path) = with_a_child_at_work(&keel).await;
    let closed = keel.post(&format!("{session}/close"), json!({})).await.ok(200);
    assert_eq!(closed["run"]["reason"], "closed");
    let row = keel.settled(&path).await;
    assert_eq!((&row["run"]["status"], &row["run"]["reason"]), (&json!("failed"), &json!("cancelled")));
}

#[tokio::test]
async fn h5_a_reached_budget_parks_the_run_and_raising_it_goes_on() {
    let keel = Keel::start().await;
    let session = keel.session_with(json!({ "budget": { "maxTokens": 1 } })).await;
    keel.say(&session, "!tool echo {}\n!then\n!say over").await;
    let row = waits(&keel, &session, "budget").await;
    assert!(row["spent"]["tokens"].as_u64().unwrap() >= 1, "{row}");
    assert_eq!(row["budget"], json!({ "maxTokens": 1 }));
    let patch = json!({ "budget": { "maxTokens": 100_000 } });
    keel.send(Method::PATCH, &session, &[], patch.to_string().into_bytes()).await.ok(200);
    assert_eq!(keel.settled(&session).await["run"]["status"], "done");
    let bad = json!({ "budget": { "maxTokens": -1 } });
    keel.post("/v1/sessions", bad).await.refused(400, "invalid_payload", "/budget");
}

#[tokio::test]
async fn h4_h5_a_child_spends_its_parents_rest_and_goes_on_when_that_is_raised() {
    let keel = Keel::start().await;
    let session = keel.session_with(json!({ "budget": { "maxTokens": 1 } })).await;
    let task = "!tool echo {}\\n!then\\n!say from below";
    keel.say(&session, &format!("!tool agent {{\"task\":\"{task}\"}}\n!then\n!say noted it")).await;
    let row = waits(&keel, &session, "budget").await;
    let children = keel.get(&format!("{session}/subagents")).await.ok(200);
    assert_eq!(children["subagents"], json!([]), "a child would have nothing to spend");
    let raise = async |tokens: u64| {
        let patch = json!({ "budget": { "maxTokens": tokens } });
        keel.send(Method::PATCH, &session, &[], patch.to_string().into_bytes()).await.ok(200);
    };
    raise(row["spent"]["tokens"].as_u64().unwrap() + 1).await;
    waits(&keel, &session, "child").await;
    let child = keel.get(&format!("{session}/subagents")).await.ok(200)["subagents"][0].clone();
    let path = format!("/v1/sessions/{}", child["sessionId"].as_str().unwrap());
    let row = waits(&keel, &path, "budget").await;
    assert_eq!(row["budget"], json!({ "maxTokens": 1 }));
    raise(100_000).await;
    assert_eq!(keel.settled(&session).await["run"]["status"], "done");
    assert_eq!(results(&keel.events(&session).await), [("from below".to_owned(), false)]);
}

#[tokio::test]
async fn k1_k3_a_compaction_is_asked_for_and_what_it_says_stands_for_what_was_before() {
    let keel = Keel::start().await;
    let session = keel.session().await;
    for n in 0..12 {
        keel.say(&session, &format!("!say number {n} {}", "words ".repeat(1_600))).await;
        keel.settled(&session).await;
    }
    let before = keel.get(&format!("{session}/transcript")).await.ok(200);
    let asked = keel.post(&format!("{session}/compact"), json!({})).await.ok(200);
    assert_eq!((&asked["asked"], &asked["run"]["status"]), (&json!(true), &json!("pending")));
    assert_eq!(keel.settled(&session).await["run"]["status"], "done");
    let events = keel.events(&session).await;
    let summary = events.iter().find(|event| event["kind"] == "compaction").expect("it was compacted");
    assert!(summary["payload"]["tokensBefore"].as_u64().unwrap() > 20_000);
    let after = keel.get(&format!("{session}/transcript")).await.ok(200);
    assert_eq!(after["entries"][0]["kind"], "compaction");
    let length = |shown: &Value| shown["entries"].as_array().unwrap().len();
    assert!(length(&after) < length(&before));
    keel.say(&session, "and now?").await;
    assert_eq!(keel.settled(&session).await["run"]["status"], "done");
}

#[tokio::test]
async fn v6_plugins_and_settings_say_what_is_wrong_and_give_no_secret_back() {
    let keel = Keel::start().await;
    let name = keel.session().await.rsplit('/').next().unwrap().to_owned();
    let plugin = |url: &str, schema: Value| {
        let tools = json!([{ "name": format!("t-{name}"), "parameters": schema }]);
        json!({ "kind": "http", "url": url, "secret": "s", "tools": tools })
    };
    let path = format!("/v1/plugins/p-{name}");
    let object = || json!({ "type": "object" });
    for (body, pointer) in [
        (json!({}), "/kind"),
        (
            json!({ "kind": "http", "url": "https://example.com", "secret": "s", "tools": [], "typo": 1 }),
            "/typo",
        ),
        (plugin("http://10.0.0.1/", object()), "/url"),
        (plugin("https://169.254.169.254/", object()), "/url"),
        (plugin("https://example.com/", json!({ "type": 7 })), "/tools/0/parameters"),
        (plugin("https://example.com/", json!([])), "/tools/0/parameters"),
    ] {
        put(&keel, &path, body).await.refused(400, "invalid_payload", pointer);
    }
    let good = plugin("https://example.com/", object());
    put(&keel, &path, good.clone()).await.ok(201);
    put(&keel, &path, good.clone()).await.ok(200);
    let other = put(&keel, &format!("{path}-2"), good).await;
    other.refused(400, "invalid_payload", "/tools/0/name");
    assert_eq!(keel.get(&path).await.ok(200)["name"], format!("p-{name}"));
    let removed = keel.send(Method::DELETE, &path, &[], Vec::new()).await;
    assert_eq!(removed.status, 204);
    keel.get(&path).await.refused(404, "not_found", "");

    let secret = format!("/v1/settings/secrets/s-{name}");
    assert_eq!(put(&keel, &secret, json!({ "value": "visibly-fake" })).await.status, 204);
    put(&keel, &secret, json!({ "value": "" })).await.refused(400, "invalid_payload", "/value");
    let names = keel.get("/v1/settings/secrets").await;
    assert!(names.text.contains(&format!("s-{name}")) && !names.text.contains("visibly"), "{}", names.text);
    keel.get(&secret).await.refused(405, "method_not_allowed", "");
    assert_eq!(keel.send(Method::DELETE, &secret, &[], Vec::new()).await.status, 204);

    let bad = json!({ "default": "nobody", "models": {} });
    put(&keel, "/v1/settings/models", bad).await.refused(400, "invalid_payload", "/default");
    let client = keel.as_caller(&Keel::client_key());
    for path in ["/v1/plugins", "/v1/settings/models", "/v1/settings/secrets", "/v1/settings/budget"] {
        client.get(path).await.refused(403, "forbidden", "");
    }
}
