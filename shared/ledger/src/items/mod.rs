//! The items of the tables. They are written and read by hand, because their names and sizes decide what a commit costs.
//!
//! Every item has a schema version `v`. A version that is not known here is an error, and never guessed at.

pub mod attr;
mod head;
mod ledger;
mod reader;
mod rows;

pub use head::{head_item, read_head, run_value};
pub use ledger::{event_item, key_item, read_event, read_key};
pub(crate) use reader::Reader;
pub use reader::VERSION;
pub use rows::{
    OPEN, REVISION, ROW, child_item, decision_item, description_item, listed_decision, listed_session,
    read_row, row_item,
};
