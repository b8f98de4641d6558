//! What `cargo metadata` says of the workspace.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// What a program prints.
fn printed(program: &str, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(program).args(arguments).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The workspace with everything it depends on here: what only other platforms need was never fetched.
fn metadata() -> Value {
    let rustc = String::from_utf8(printed("rustc", &["-vV"])).expect("rustc speaks UTF-8");
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: ")).expect("it says what it is for");
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");
    let asked = [
        "metadata",
        "--format-version",
        "1",
        "--locked",
        "--filter-platform",
        host,
        "--manifest-path",
        manifest,
    ];
    serde_json::from_slice(&printed(env!("CARGO"), &asked)).expect("cargo metadata is JSON")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a string")
}

fn items(value: &Value) -> &[Value] {
    value.as_array().expect("an array")
}

/// Our packages, each with those of ours that its shipped code (not its tests) depends on.
fn ours(metadata: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let members: BTreeSet<&str> = items(&metadata["workspace_members"]).iter().map(text).collect();
    let packages =
        || items(&metadata["packages"]).iter().filter(|package| members.contains(text(&package["id"])));
    let names: BTreeSet<&str> = packages().map(|package| text(&package["name"])).collect();
    let needs = |package: &Value| {
        let shipped = items(&package["dependencies"]).iter().filter(|need| need["kind"] != "dev");
        shipped
            .map(|need| text(&need["name"]).to_owned())
            .filter(|name| names.contains(name.as_str()))
            .collect()
    };
    packages().map(|package| (text(&package["name"]).to_owned(), needs(package))).collect()
}

/// The floor a package stands on. A package may need those below it, and none of its own floor.
fn floor(package: &str) -> u8 {
    match package {
        "keel-kernel" => 0,
        "keel-env" | "keel-agent" | "keel-egress" => 1,
        "keel-ledger" => 2,
        "keel-web" | "keel-models" | "keel-settings" | "keel-embedded" => 3,
        "keel-lambda" | "keel-plugins" => 4,
        "keel-fn-edge" | "keel-fn-kernel" | "keel-fn-worker" | "keel-fn-stream" => 5,
        "keel-local" => 6,
        "keel-tests" | "keel-simulation" => 7,
        "keel-bench" => 8,
        unknown => panic!("{unknown} has no place in the house yet"),
    }
}

#[test]
fn dependencies_point_downwards() {
    for (package, needs) in ours(&metadata()) {
        for need in needs {
            assert!(floor(&need) < floor(&package), "{package} must not depend on {need}");
        }
    }
}

/// The rules stand alone: no store, no network, no clock, no async.
#[test]
fn the_kernel_depends_on_nothing_that_acts() {
    let metadata = metadata();
    let kernel = items(&metadata["packages"]).iter().find(|package| package["name"] == "keel-kernel");
    let needs = items(&kernel.expect("it is a member")["dependencies"]).iter();
    let shipped: BTreeSet<&str> =
        needs.filter(|need| need["kind"] != "dev").map(|need| text(&need["name"])).collect();
    let pure =
        BTreeSet::from(["serde", "serde_json", "serde_json_canonicalizer", "sha2", "thiserror", "time"]);
    assert!(shipped.is_subset(&pure), "{:?}", shipped.difference(&pure));
}

/// Features unify: one crate that switches these on would change how every payload is read and written (I4).
#[test]
fn i4_serde_json_reads_numbers_and_objects_as_the_canonical_form_expects() {
    let metadata = metadata();
    let nodes = items(&metadata["resolve"]["nodes"]).iter();
    let features: Vec<&str> = nodes
        .filter(|node| text(&node["id"]).contains("#serde_json@"))
        .flat_map(|node| items(&node["features"]).iter().map(text))
        .collect();
    assert!(features.contains(&"raw_value"), "the test looks at the right package: {features:?}");
    for never in ["arbitrary_precision", "preserve_order"] {
        assert!(!features.contains(&never), "serde_json's {never} is on");
    }
}
