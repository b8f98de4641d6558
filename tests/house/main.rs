//! The house: which way dependencies point, what must never be switched on, and that every rule has its test.

mod dependencies;
mod rules;
mod words;
