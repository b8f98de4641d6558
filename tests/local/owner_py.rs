//! The README's owner in Python, against a Keel without a worker.

use std::process::Stdio;

use keel_tests::{KEY, Keel, TIMEOUT, kinds, text};
use serde_json::json;
use tokio::process::Command;
use tokio::time::timeout;

#[tokio::test]
async fn s1_a1_the_python_loop_claims_answers_and_settles() {
    let keel = Keel::without_worker().await;
    let mut owner = Command::new("python3")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/owner.py"))
        .env("KEEL_BASE_URL", &keel.base)
        .env("KEEL_API_KEY", KEY)
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("python3 runs");
    let session = keel.session().await;
    keel.say(&session, "the ledger is the truth").await;
    assert_eq!(keel.settled(&session).await["run"]["status"], "done");
    let events = keel.events(&session).await;
    assert_eq!(kinds(&events), ["user.message", "assistant.message", "run.finished"]);
    assert_eq!(text(&events[1]), "truth the is ledger the\n");
    assert_eq!(events[1]["payload"]["inputSeqs"], json!([1]));

    // On SIGTERM it ends by itself.
    let pid = owner.id().expect("it runs").to_string();
    Command::new("kill").args(["-TERM", &pid]).status().await.expect("kill runs");
    let ended = timeout(TIMEOUT, owner.wait()).await.expect("it ends").expect("it can be waited for");
    assert!(ended.success());
}
