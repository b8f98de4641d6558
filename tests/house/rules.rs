//! Every rule of `docs/contract.md` is named by a test, every rule that code or tests name is in it, and
//! `tests/RULES.md` says where each is kept and which tests hold it.

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

/// A test of a rule, in the order in which the page shows them: the contract's kit, what only a Keel of one's own shows,
/// the rest by its file.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct RuleTest {
    rank: usize,
    file: String,
    test: String,
}

impl RuleTest {
    fn new(path: &Path, test: &str) -> Self {
        let path = path.strip_prefix(root()).expect("a file of ours");
        let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
        let rank = match parts[..] {
            ["tests", "contract", ..] => 0,
            ["tests", "local", ..] => 1,
            _ => 2,
        };
        Self { rank, file: parts.join("/"), test: test.to_owned() }
    }

    /// A line of `tests/RULES.md`, whose links begin in its folder.
    fn line(&self) -> String {
        let Self { file, test, .. } = self;
        let link = file.strip_prefix("tests/").map_or_else(|| format!("../{file}"), str::to_owned);
        format!("- [{file}]({link}): `{test}`")
    }
}

/// The rules that a file's comments cite.
fn cited(text: &str) -> BTreeSet<&str> {
    let comments = text.lines().filter_map(|line| line.split_once("//").map(|(_, comment)| comment));
    comments
        .flat_map(|line| line.split(|char: char| !char.is_ascii_alphanumeric()))
        .filter(|word| is_rule(word))
        .collect()
}

/// Where each rule is kept: the files of the product whose comments cite it, by the rule.
fn keepers(sources: &[(PathBuf, String)]) -> BTreeMap<&str, BTreeSet<String>> {
    let mut found: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in sources {
        let path = path.strip_prefix(root()).expect("a file of ours");
        let is_product = path.starts_with("shared") || path.starts_with("functions");
        if is_product && path.iter().any(|part| part == "src") {
            for rule in cited(text) {
                found.entry(rule).or_default().insert(path.display().to_string());
            }
        }
    }
    found
}

/// `tests/RULES.md`: the contract's rules in its order, each with the files that cite it and the tests that are named
/// after it.
fn page() -> String {
    let sources = sources();
    let keepers = keepers(&sources);
    let mut tests_of: BTreeMap<String, BTreeSet<RuleTest>> = BTreeMap::new();
    for (path, text) in &sources {
        for test in tests(text) {
            for rule in named_by(test) {
                tests_of.entry(rule).or_default().insert(RuleTest::new(path, test));
            }
        }
    }
    let mut page = String::from(PREFACE);
    let mut rule = |page: &mut String, name: &str| {
        writeln!(page, "\n### {name}\n").expect("a string takes it");
        if let Some(files) = keepers.get(name) {
            let links: Vec<String> = files.iter().map(|file| format!("[{file}](../{file})")).collect();
            writeln!(page, "Code: {}\n", links.join(" · ")).expect("a string takes it");
        }
        for test in tests_of.remove(name).unwrap_or_default() {
            writeln!(page, "{}", test.line()).expect("a string takes it");
        }
    };
    let contract = fs::read_to_string(root().join("docs/contract.md")).expect("the contract is there");
    for line in contract.lines() {
        if line.starts_with("## ") {
            writeln!(page, "\n{}", line.replace(" **[ours]**", "")).expect("a string takes it");
        }
        let word =
            line.strip_prefix("- ").and_then(|item| item.split_whitespace().next()).unwrap_or_default();
        if word == "S1" {
            // The settling table is no item: it stands before S1.
            rule(&mut page, "S");
        }
        if is_rule(word) {
            rule(&mut page, word);
        }
    }
    assert!(tests_of.is_empty(), "the page leaves out {:?}", tests_of.keys());
    page
}

/// What the page says before its first rule.
const PREFACE: &str = "\
# Where each rule is kept, and which test holds it

The rules of the [contract](../docs/contract.md), each with the code whose comments cite it (it is decided in the kernel or the
agent; the ledger and the functions carry it out) and with the tests that fail when it is broken. A test's name begins with
its rules. `tests/contract` asks over HTTP, and so asks any deployment; `tests/local` needs a Keel of its own; the rest looks
from elsewhere, or from beside the code that decides.

This page is written by the test that holds it: `KEEL_WRITE_RULES=1 cargo nextest run -p keel-tests --test house`.
";

#[test]
fn the_page_of_rules_is_as_the_tests_are() {
    let path = root().join("tests/RULES.md");
    let wanted = page();
    if std::env::var_os("KEEL_WRITE_RULES").is_some() {
        fs::write(&path, &wanted).expect("the page can be written");
        return;
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    let old: Vec<&str> = written.lines().filter(|line| !wanted.contains(line)).collect();
    let new: Vec<&str> = wanted.lines().filter(|line| !written.contains(line)).collect();
    assert!(
        written == wanted,
        "tests/RULES.md is old: KEEL_WRITE_RULES=1 cargo nextest run -p keel-tests --test house\n\
         gone: {old:#?}\nnew: {new:#?}"
    );
}
