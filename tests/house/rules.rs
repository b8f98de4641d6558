//! Every rule of `docs/contract.md` is named by a test, every rule that code or tests name is in it, and the table in
//! `tests/README.md` says which test holds which.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
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

/// Where a test stands: the column, and how it is called there.
fn place(path: &Path, test: &str) -> (usize, String) {
    let path = path.strip_prefix(root()).expect("a file of ours");
    let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
    let file = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    match parts[..] {
        ["tests", "contract", ..] => (0, format!("`{file}::{test}`")),
        ["tests", "local", ..] => (1, format!("`{file}::{test}`")),
        ["tests", target, ..] => (2, format!("{} `{test}`", target.trim_end_matches(".rs"))),
        ["functions", name, ..] => (2, format!("fn-{name} `{test}`")),
        [_, name, ..] => (2, format!("{name} `{test}`")),
        _ => (2, format!("`{test}`")),
    }
}

/// The table of `tests/README.md`: the contract's rules in its order, and the tests that are named after each.
fn table() -> String {
    let mut rows: BTreeMap<String, [BTreeSet<String>; 3]> = BTreeMap::new();
    for (path, text) in sources() {
        for test in tests(&text) {
            for rule in named_by(test) {
                let (column, name) = place(&path, test);
                rows.entry(rule).or_default()[column].insert(name);
            }
        }
    }
    let contract = fs::read_to_string(root().join("docs/contract.md")).expect("the contract is there");
    let mut order: Vec<&str> = Vec::new();
    for line in contract.lines() {
        let word =
            line.strip_prefix("- ").and_then(|item| item.split_whitespace().next()).unwrap_or_default();
        // The settling table has no item of its own: it stands before S1.
        order.extend((word == "S1").then_some("S"));
        order.extend(is_rule(word).then_some(word));
    }
    let mut table = String::from("| rule | contract | local | elsewhere |\n|---|---|---|---|\n");
    for rule in order {
        let columns = rows.get(rule).cloned().unwrap_or_default();
        let columns = columns.map(|names| names.into_iter().collect::<Vec<_>>().join("<br>"));
        writeln!(table, "| {rule} | {} |", columns.join(" | ")).expect("a string takes it");
    }
    table
}

#[test]
fn the_table_of_tests_is_as_the_tests_are() {
    let path = root().join("tests/README.md");
    let text = fs::read_to_string(&path).expect("the table is there");
    let (before, written) = text.split_once("| rule |").expect("a table of rules");
    let after = written.split_once("\n\n").map_or("", |(_, after)| after);
    let after = if after.is_empty() { String::new() } else { format!("\n{after}") };
    let wanted = format!("{before}{}{after}", table());
    if std::env::var_os("KEEL_WRITE_TABLE").is_some() {
        fs::write(&path, &wanted).expect("the table can be written");
    } else {
        assert!(
            text == wanted,
            "the table is old: KEEL_WRITE_TABLE=1 cargo nextest run -p keel-tests --test house"
        );
    }
}
