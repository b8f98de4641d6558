//! The table, for a terminal and for `docs/performance.md`: Markdown in both.

use std::fmt::Write as _;

use crate::exact::{Cost, Line};

/// Lines of Markdown.
#[derive(Debug, Default)]
pub struct Page(pub String);

impl Page {
    /// A headline with a sentence below it.
    pub fn part(&mut self, headline: &str, sentence: &str) {
        let _ = write!(self.0, "\n## {headline}\n\n{sentence}\n\n");
    }

    /// A row, or the head's row.
    pub fn row(&mut self, cells: &[&str]) {
        let _ = writeln!(self.0, "| {} |", cells.join(" | "));
    }

    /// The head of a table.
    pub fn head(&mut self, cells: &[&str]) {
        self.row(cells);
        self.row(&vec!["---"; cells.len()]);
    }

    /// The exact figures.
    pub fn exact(&mut self, lines: &[Line]) {
        self.head(&[
            "operation",
            "WRU",
            "RRU",
            "round trips",
            "least WRU",
            "least RRU",
            "least trips",
            "the least",
        ]);
        for Line { name, measured, least, rule } in lines {
            let [w, r, t] = figures(*measured);
            let [lw, lr, lt] = figures(*least);
            self.row(&[name, &w, &r, &t, &lw, &lr, &lt, rule]);
        }
    }
}

fn figures(cost: Cost) -> [String; 3] {
    [cost.write, cost.read, cost.trips].map(|figure| figure.to_string())
}

/// A goal, and whether it was met.
pub fn goal(met: bool, words: &str) -> String {
    format!("{words}: {}", if met { "met" } else { "**missed**" })
}
