//! No term that `docs/glossary.md` calls retired is used: names in code, phrases in code and in prose.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A row of the table "Retired terms".
#[derive(Debug)]
struct Retired {
    /// Matched whole and by case, in code.
    identifiers: Vec<String>,
    /// Matched word by word in any text, whatever its case.
    phrases: Vec<Vec<String>>,
    /// The paths that the row is about; none: all.
    places: Vec<String>,
}

/// What stands between two of these marks, each time.
fn between(cell: &str, mark: char) -> impl Iterator<Item = String> {
    cell.split(mark).skip(1).step_by(2).map(str::to_owned)
}

fn retired(glossary: &str) -> Vec<Retired> {
    let (_, table) = glossary.split_once("| retired | where |").expect("a table of retired terms");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let places = cells[2].split(", ").filter(|place| !place.is_empty());
        Retired {
            identifiers: between(cells[1], '`').collect(),
            phrases: between(cells[1], '"').map(|phrase| words(&phrase.to_lowercase())).collect(),
            places: places.map(str::to_owned).collect(),
        }
    })
    .collect()
}

fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

fn words(text: &str) -> Vec<String> {
    text.split(|char| !is_word(char)).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// A word of a file.
struct Word {
    text: String,
    line: usize,
    /// Part of code: not of a comment, a text or a sentence, except between backticks.
    is_code: bool,
}

/// What the reader of a file is in the middle of.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Code,
    /// Until the end of the line; true between backticks.
    Comment(bool),
    /// Until the quotation mark, behind which so many `#` stand.
    Text(usize),
    /// Of Markdown; true between backticks.
    Prose(bool),
}

/// The words of a file. `comment` is what begins a comment in its language.
fn read(text: &str, language: Language) -> Vec<Word> {
    let mut found: Vec<Word> = Vec::new();
    let mut part = if language == Language::Markdown { Part::Prose(false) } else { Part::Code };
    let (mut line, mut rest, mut in_word) = (1, text, false);
    while let Some(char) = rest.chars().next() {
        let is_code = matches!(part, Part::Code | Part::Comment(true) | Part::Prose(true));
        if is_word(char) {
            match found.last_mut().filter(|_| in_word) {
                Some(word) => word.text.push(char),
                None => found.push(Word { text: char.to_string(), line, is_code }),
            }
        }
        in_word = is_word(char);
        line += usize::from(char == '\n');
        let mut length = char.len_utf8();
        part = match part {
            Part::Code if rest.starts_with(language.comment()) => Part::Comment(false),
            Part::Code if language == Language::Rust => match char {
                '"' => Part::Text(0),
                'r' if found.last().is_some_and(|word| RAW.contains(&word.text.as_str()))
                    && raw(rest).is_some() =>
                {
                    let hashes = raw(rest).unwrap_or_default();
                    length = hashes + 2;
                    Part::Text(hashes)
                }
                // A character, which may be a quotation mark; else it is a lifetime.
                '\'' => {
                    length = character(rest);
                    Part::Code
                }
                _ => Part::Code,
            },
            Part::Comment(_) if char == '\n' => Part::Code,
            Part::Comment(quoted) => Part::Comment(quoted != (char == '`')),
            Part::Prose(quoted) if char == '`' => {
                length = rest.len() - rest.trim_start_matches('`').len();
                Part::Prose(!quoted)
            }
            Part::Text(0) if char == '\\' => {
                let escaped = rest[1..].chars().next();
                line += usize::from(escaped == Some('\n'));
                length += escaped.map_or(0, char::len_utf8);
                part
            }
            Part::Text(hashes) if char == '"' && rest[1..].starts_with(&"#".repeat(hashes)) => {
                length += hashes;
                Part::Code
            }
            part => part,
        };
        rest = &rest[length..];
    }
    found
}

/// What a raw text begins with.
const RAW: [&str; 3] = ["r", "br", "cr"];

/// How many `#` a raw text that begins here has.
fn raw(rest: &str) -> Option<usize> {
    let hashes = rest[1..].len() - rest[1..].trim_start_matches('#').len();
    rest[1 + hashes..].starts_with('"').then_some(hashes)
}

/// The length of a character literal that begins here; of the mark alone where it is a lifetime's.
fn character(rest: &str) -> usize {
    let inside = rest[1..].strip_prefix('\\').map_or(1, |_| 2);
    let Some(char) = rest[inside..].chars().next() else { return 1 };
    let end = inside + char.len_utf8();
    if rest[end..].starts_with('\'') { end + 1 } else { 1 }
}

/// The languages of our files.
#[derive(Clone, Copy, PartialEq)]
enum Language {
    Rust,
    Markdown,
    /// YAML, Python, a Makefile, TOML.
    Hashes,
}

impl Language {
    fn of(path: &Path) -> Option<Language> {
        if path.file_name()? == "Makefile" {
            return Some(Language::Hashes);
        }
        match path.extension()?.to_str()? {
            "rs" => Some(Language::Rust),
            "md" => Some(Language::Markdown),
            "py" | "yaml" | "yml" | "toml" | "txt" => Some(Language::Hashes),
            _ => None,
        }
    }

    fn comment(self) -> &'static str {
        match self {
            Language::Rust | Language::Markdown => "//",
            Language::Hashes => "#",
        }
    }
}

/// The files of ours, by their paths from the root. The glossary names what it retires, and the CHANGELOG what was.
fn files() -> Vec<(String, Language)> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of ours") {
            let path = entry.expect("it can be listed").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() {
                let is_made =
                    name.starts_with('.') || ["target", "node_modules", "__pycache__"].contains(&name);
                folders.extend((!is_made).then_some(path));
            } else if let Some(language) = Language::of(&path)
                && !["glossary.md", "CHANGELOG.md"].contains(&name)
            {
                let path = path.strip_prefix(&root).expect("a file below the root");
                found.push((path.to_str().expect("our paths are UTF-8").to_owned(), language));
            }
        }
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    found
}

/// Where a file uses what a row retires, each with its line.
fn uses(words: &[Word], row: &Retired) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, word) in words.iter().enumerate() {
        if word.is_code && row.identifiers.contains(&word.text) {
            found.push((word.line, word.text.clone()));
        }
        for phrase in &row.phrases {
            let here = words[index..].iter().map(|word| word.text.to_lowercase());
            if here.take(phrase.len()).eq(phrase.iter().cloned()) {
                found.push((word.line, phrase.join(" ")));
            }
        }
    }
    found
}

#[test]
fn no_retired_term_is_used() {
    let glossary = fs::read_to_string(root().join("docs/glossary.md")).expect("the glossary is there");
    let rows = retired(&glossary);
    assert!(rows.len() > 20, "the table was read: {rows:?}");
    let files = files();
    assert!(files.len() > 200, "the files were found: {}", files.len());
    let mut report = String::new();
    for (path, language) in files {
        let text = fs::read_to_string(root().join(&path)).expect("our files are UTF-8");
        let words = read(&text, language);
        for row in &rows {
            let is_here = |place: &String| {
                path.strip_prefix(place.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            if row.places.is_empty() || row.places.iter().any(is_here) {
                for (line, term) in uses(&words, row) {
                    writeln!(report, "{path}:{line}: {term}").expect("a string takes it");
                }
            }
        }
    }
    assert!(report.is_empty(), "terms that docs/glossary.md retires:\n{report}");
}

#[test]
fn code_is_told_from_comments_and_texts() {
    let rust = "fn f<'a>() { '\"'; \"Old \\\" Old\"; br#\"\"Old\"\"#; Old } // Old and `Old`\nOld";
    let row = Retired {
        identifiers: vec!["Old".to_owned()],
        phrases: vec![words("long gone")],
        places: Vec::new(),
    };
    let lines = |text: &str, language| -> Vec<usize> {
        uses(&read(text, language), &row).into_iter().map(|(line, _)| line).collect()
    };
    assert_eq!(lines(rust, Language::Rust), [1, 1, 2]);
    assert_eq!(lines("An Old, `Old`, Long\ngone, older, long ago gone.", Language::Markdown), [1, 1]);
    assert_eq!(lines("# Old\nold: Old", Language::Hashes), [2]);
}
