//! The tables are those of `infra/tables.json`, from which `keel-local` makes its own, and they are protected against deletion.

use serde_json::{Value, json};

use crate::template::{file, list, resources, template, text};

#[test]
fn the_tables_are_those_of_the_local_start() {
    let template = template();
    let deployed = resources(&template, "AWS::DynamoDB::Table");
    let defined: Value = serde_json::from_str(&file("infra/tables.json")).unwrap();
    assert_eq!(deployed.len(), list(&defined["tables"]).len());
    for table in list(&defined["tables"]) {
        let name = format!("keel-${{Stage}}-{}", text(&table["name"]));
        let (_, has) = deployed.iter().find(|(_, table)| table["TableName"] == name.as_str()).expect(&name);
        for part in ["AttributeDefinitions", "KeySchema", "GlobalSecondaryIndexes", "BillingMode"] {
            assert_eq!(has[part], table[part], "{part} of {name}");
        }
        let ttl = match &table["TimeToLiveAttribute"] {
            Value::Null => Value::Null,
            attribute => json!({ "AttributeName": attribute, "Enabled": true }),
        };
        assert_eq!(has["TimeToLiveSpecification"], ttl, "{name}");
    }
}

#[test]
fn a_table_survives_its_stack_and_can_be_restored() {
    let template = template();
    for (name, table) in resources(&template, "AWS::DynamoDB::Table") {
        let resource = &template["Resources"][name];
        assert_eq!(resource["DeletionPolicy"], "Retain", "{name}");
        assert_eq!(resource["UpdateReplacePolicy"], "Retain", "{name}");
        assert_eq!(table["DeletionProtectionEnabled"], true, "{name}");
        assert_eq!(
            table["PointInTimeRecoverySpecification"],
            json!({ "PointInTimeRecoveryEnabled": true }),
            "{name}"
        );
    }
}
