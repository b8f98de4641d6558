//! Every rule of `docs/contract.md` is named by a test, and every rule that code or tests name is in it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// `L3`, `I4a`, `S`: a group's letter, a number, a letter for what was put between. The settling table is `S` itself.
fn is_rule(word: &str) -> bool {
    let Some(rest) = word.strip_prefix(['L', 'C', 'I', 'D', 'A', 'S', 'R', 'V', 'W', 'H', 'K']) else {
        return false;
    };
    let digits = rest.strip_suffix('a').unwrap_or(rest);
    !digits.is_empty() && digits.len() < 3 && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// The contract's rules: its list items that begin with a rule's name.
fn rules() -> BTreeSet<String> {
    let contract = fs::read_to_string(root().join("docs/contract.md")).expect("the contract is there");
    let items = contract.lines().filter_map(|line| line.strip_prefix("- "));
    let names = items.filter_map(|item| item.split_whitespace().next()).filter(|word| is_rule(word));
    names.map(str::to_owned).chain(["S".to_owned()]).collect()
}

/// Every Rust file of ours.
fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> =
        ["shared", "functions", "localstack", "tests"].iter().map(|folder| root().join(folder)).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of ours") {
            let path = entry.expect("it can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("our files are UTF-8");
                found.push((path, text));
            }
        }
    }
    found
}

/// The rules that a test's name begins with: `s4_a3_input_is_not_stranded` names S4 and A3.
fn named_by(test: &str) -> Vec<String> {
    let words = test.split('_').map(|word| {
        let mut chars = word.chars();
        chars.next().map_or(String::new(), |first| first.to_ascii_uppercase().to_string() + chars.as_str())
    });
    words.take_while(|word| is_rule(word) || word == "S").collect()
}

/// The tests of a file.
fn tests(text: &str) -> Vec<&str> {
    let mut is_test = false;
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some(rest) = line.strip_prefix("async fn ").or(line.strip_prefix("fn "))
            && is_test
        {
            found.extend(rest.split('(').next());
            is_test = false;
        }
    }
    found
}

#[test]
fn every_rule_is_named_by_a_test() {
    let named: BTreeSet<String> =
        sources().iter().flat_map(|(_, text)| tests(text)).flat_map(named_by).collect();
    let rules = rules();
    assert!(rules.len() > 40, "the contract was read: {rules:?}");
    let untested: Vec<&String> = rules.difference(&named).collect();
    assert!(untested.is_empty(), "no test is named after {untested:?}");
    let unknown: Vec<&String> = named.difference(&rules).collect();
    assert!(unknown.is_empty(), "tests are named after {unknown:?}, which the contract does not have");
}

#[test]
fn every_rule_that_a_comment_cites_exists() {
    let rules = rules();
    for (path, text) in sources() {
        for line in text.lines() {
            let Some((_, comment)) = line.split_once("//") else { continue };
            let words = comment.split(|char: char| !char.is_ascii_alphanumeric());
            let unknown: Vec<&str> = words.filter(|word| is_rule(word) && !rules.contains(*word)).collect();
            assert!(unknown.is_empty(), "{}: {unknown:?} in {line:?}", path.display());
        }
    }
}

/// The rules that black-box tests prove can be proven of any deployment. What only a look inside shows is listed here.
#[test]
fn every_rule_has_a_line_in_the_table_of_tests() {
    let table = fs::read_to_string(root().join("tests/README.md")).expect("the table is there");
    let rows: BTreeSet<String> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| "))
        .filter_map(|line| line.split(" |").next())
        .map(|rule| rule.trim().to_owned())
        .filter(|word| is_rule(word) || word == "S")
        .collect();
    let missing: Vec<String> = rules().difference(&rows).cloned().collect();
    assert!(missing.is_empty(), "tests/README.md has no line for {missing:?}");
    // What the table names is there.
    let all = sources();
    let names: BTreeSet<&str> = all.iter().flat_map(|(_, text)| tests(text)).collect();
    for line in table.lines().filter(|line| line.starts_with("| ")) {
        let quoted = line.split('`').skip(1).step_by(2).map(|name| name.rsplit("::").next().unwrap_or(name));
        for name in quoted.filter(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')) {
            let is_test_name = !named_by(name).is_empty() && name.len() > 8;
            assert!(
                !is_test_name || names.contains(name),
                "tests/README.md names `{name}`, which is no test"
            );
        }
    }
}
