//! The template as JSON. Tags are dropped: `!GetAtt Events.Arn` reads as `"Events.Arn"`, `!If [a, b, c]` as its list.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use yaml_rust2::{Yaml, YamlLoader};

/// A file of the project.
pub(crate) fn file(path: &str) -> String {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn json(yaml: &Yaml) -> Value {
    match yaml {
        Yaml::String(text) => text.as_str().into(),
        Yaml::Integer(n) => (*n).into(),
        Yaml::Boolean(on) => (*on).into(),
        Yaml::Array(items) => items.iter().map(json).collect(),
        Yaml::Hash(members) => {
            let name = |key: &Yaml| key.as_str().expect("members have names").to_owned();
            Value::Object(members.iter().map(|(key, value)| (name(key), json(value))).collect())
        }
        Yaml::Null => Value::Null,
        Yaml::Real(_) | Yaml::Alias(_) | Yaml::BadValue => panic!("the template does without: {yaml:?}"),
    }
}

/// The template.
pub(crate) fn template() -> Value {
    template_at("infra/template.yaml")
}

/// A template in this file.
pub(crate) fn template_at(path: &str) -> Value {
    let documents = YamlLoader::load_from_str(&file(path)).expect("it is YAML");
    assert_eq!(documents.len(), 1);
    json(&documents[0])
}

/// A list.
#[track_caller]
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("a list: {value}"))
}

/// An object's members.
#[track_caller]
pub(crate) fn members(value: &Value) -> &Map<String, Value> {
    value.as_object().unwrap_or_else(|| panic!("an object: {value}"))
}

/// A text.
#[track_caller]
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("a text: {value}"))
}

/// The resources of a type, each with its name and properties.
pub(crate) fn resources<'a>(template: &'a Value, kind: &str) -> Vec<(&'a str, &'a Value)> {
    let all = members(&template["Resources"]).iter();
    let found: Vec<_> = all
        .filter(|(_, resource)| resource["Type"] == kind)
        .map(|(name, resource)| (name.as_str(), &resource["Properties"]))
        .collect();
    assert!(!found.is_empty(), "there is a {kind}");
    found
}
