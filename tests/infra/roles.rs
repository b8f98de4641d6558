//! What the functions may do. None may update or delete an event, and no right is wider than the code needs.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::template::{list, members, resources, template, text};

/// The secrets of this deployment's tenants.
const SECRETS: &str =
    "arn:${AWS::Partition}:secretsmanager:${AWS::Region}:${AWS::AccountId}:secret:keel-${Stage}/*";

/// The statements of a role, those behind an `!If` included.
fn statements(role: &Value) -> Vec<&Value> {
    let policies = list(&role["Policies"]).iter();
    let written = policies.flat_map(|policy| list(&policy["PolicyDocument"]["Statement"]));
    // `!If [condition, statement, nothing]`
    written.map(|statement| statement.as_array().map_or(statement, |branches| &branches[1])).collect()
}

/// A value, or a list of values.
fn texts(value: &Value) -> Vec<&str> {
    value.as_array().map_or_else(|| vec![text(value)], |items| items.iter().map(text).collect())
}

/// The functions' names and roles.
fn roles(template: &Value) -> Vec<(&str, &Value)> {
    let functions = resources(template, "AWS::Serverless::Function");
    let role = |function: &Value| text(&function["Role"]).strip_suffix(".Arn").expect("its own").to_owned();
    functions
        .into_iter()
        .map(|(name, function)| (name, &template["Resources"][role(function)]["Properties"]))
        .collect()
}

/// The actions that a function may take on a resource.
fn may(role: &Value, resource: &str) -> BTreeSet<String> {
    let about =
        statements(role).into_iter().filter(|statement| texts(&statement["Resource"]).contains(&resource));
    about.flat_map(|statement| texts(&statement["Action"])).map(str::to_owned).collect()
}

#[test]
fn every_function_has_a_role_of_its_own_and_nothing_beside_it() {
    let template = template();
    let functions = resources(&template, "AWS::Serverless::Function");
    let own: BTreeSet<&str> = functions.iter().map(|(_, function)| text(&function["Role"])).collect();
    assert_eq!(own.len(), functions.len());
    for (name, function) in functions {
        assert!(function["Policies"].is_null(), "{name}: its rights stand in its role");
    }
    for (name, role) in roles(&template) {
        assert!(role["ManagedPolicyArns"].is_null(), "{name}: others would decide what it may do");
        for statement in statements(role) {
            assert_eq!(statement["Effect"], "Allow", "{name}");
            for unusual in ["NotAction", "NotResource"] {
                assert!(statement[unusual].is_null(), "{name}: {statement}");
            }
        }
    }
}

#[test]
fn no_right_is_a_wildcard() {
    for (name, role) in roles(&template()) {
        for statement in statements(role) {
            let parts = [texts(&statement["Action"]), texts(&statement["Resource"])].concat();
            for part in parts {
                // Secrets' ARNs end at random and tenants name their secrets: only the deployment's prefix can be given.
                assert!(part == SECRETS || !part.contains(['*', '?']), "{name}: {part}");
            }
        }
    }
}

#[test]
fn l1_no_role_updates_or_deletes_an_event() {
    let template = template();
    let harmless =
        ["PutItem", "ConditionCheckItem", "GetItem", "Query"].map(|verb| format!("dynamodb:{verb}"));
    let mut writers = 0;
    for (name, role) in members(&template["Resources"]) {
        if role["Type"] != "AWS::IAM::Role" || role["Properties"]["Policies"].is_null() {
            continue;
        }
        let may = may(&role["Properties"], "Events.Arn");
        assert!(may.iter().all(|action| harmless.contains(action)), "{name}: {may:?}");
        writers += usize::from(may.contains("dynamodb:PutItem"));
    }
    assert_eq!(writers, 3, "edge, kernel and worker write the ledger");
}

/// Roles name resources only by reference, which is what the test above reads, and never as text.
#[test]
fn every_resource_of_a_role_is_named_by_reference() {
    for (name, role) in roles(&template()) {
        for statement in statements(role) {
            for resource in texts(&statement["Resource"]) {
                let known = [
                    "Events.Arn",
                    "State.Arn",
                    "${State.Arn}/index/due",
                    "Partials.Arn",
                    "Hints.Arn",
                    "KmsKeyArn",
                    "ProviderSecretArn",
                    "ProviderSecretKmsKeyArn",
                    "ToolFunctionArns",
                    "BedrockArns",
                    SECRETS,
                ];
                assert!(known.contains(&resource) || resource.ends_with("Logs.Arn"), "{name}: {resource}");
            }
        }
    }
}

/// Only the worker may read the provider's key, and no other secret by that parameter, which takes no wildcard.
#[test]
fn the_providers_secret_is_read_by_the_worker_alone_and_nobody_reads_what_they_write() {
    let template = template();
    for (name, role) in roles(&template) {
        let expected: &[&str] = if name == "Worker" { &["secretsmanager:GetSecretValue"] } else { &[] };
        assert_eq!(may(role, "ProviderSecretArn").iter().collect::<Vec<_>>(), expected, "{name}");
        // Tenants' secrets: the edge writes them and cannot read them, the worker reads them and cannot write them.
        let tenants: &[&str] = match name {
            "Worker" => &["secretsmanager:GetSecretValue"],
            "Edge" => &[
                "secretsmanager:CreateSecret",
                "secretsmanager:DeleteSecret",
                "secretsmanager:PutSecretValue",
            ],
            _ => &[],
        };
        assert_eq!(may(role, SECRETS).iter().collect::<Vec<_>>(), tenants, "{name}");
        let all = statements(role).into_iter().flat_map(|statement| texts(&statement["Action"]));
        let secret = all.filter(|action| action.starts_with("secretsmanager:")).count();
        assert_eq!(secret, expected.len() + tenants.len(), "{name}");
    }
    assert_eq!(
        template["Resources"]["Worker"]["Properties"]["Environment"]["Variables"]["KEEL_PROVIDER_SECRET"][1],
        "ProviderSecretArn"
    );
    assert!(text(&template["Parameters"]["ProviderSecretArn"]["AllowedPattern"]).contains("[^*?]"));
}

/// H2: a transaction that opens or answers a decision may have nothing to change in the head, and checks it.
#[test]
fn h2_who_opens_and_answers_decisions_may_check_the_head() {
    let template = template();
    let checks = |(_, role): &(&str, &Value)| may(role, "State.Arn").contains("dynamodb:ConditionCheckItem");
    let names: BTreeSet<&str> = roles(&template).into_iter().filter(checks).map(|(name, _)| name).collect();
    assert_eq!(names, BTreeSet::from(["Edge", "Worker"]));
}

#[test]
fn the_stream_reads_only() {
    let template = template();
    let (_, role) = roles(&template).into_iter().find(|(name, _)| *name == "Stream").unwrap();
    for statement in statements(role) {
        for action in texts(&statement["Action"]) {
            let reads = ["dynamodb:GetItem", "dynamodb:Query", "kms:Decrypt"];
            assert!(reads.contains(&action) || action.starts_with("logs:"), "{action}");
        }
    }
}

#[test]
fn a_role_is_a_functions_alone() {
    for (name, role) in roles(&template()) {
        for statement in list(&role["AssumeRolePolicyDocument"]["Statement"]) {
            assert_eq!(statement["Principal"]["Service"], "lambda.amazonaws.com", "{name}");
        }
    }
}
