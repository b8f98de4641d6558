//! A session as its creator described it, and the rules for making a session (I8) and changing it.
//!
//! The description is a row of its own beside the head, so that no commit pays for its size.

use serde::{Deserialize, Serialize};

use crate::budget::Budget;
use crate::caps;
use crate::head::{Head, StateOwner};
use crate::ids::{DedupeKey, Millis, SessionId};
use crate::refusal::Refusal;
use crate::run;
use crate::transition::{SideRow, Transition};

/// A session's description: the row beside its head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionDescription {
    /// The session's id.
    pub session_id: SessionId,
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The model that answers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Whatever its creator wants to keep with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// Whose loop answers it.
    pub state_owner: StateOwner,
    /// Of an external session: its backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Of an external session: the backend's name for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_ref: Option<String>,
    /// The plugins whose tools it may use; absent: all of the tenant's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugins: Option<Vec<String>>,
    /// Of a child session: where it comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_of: Option<ChildOf>,
    /// Attempts that each run of it may have.
    pub max_attempts: u32,
    /// When it was created, in milliseconds since 1970.
    pub created_ms: u64,
    /// 1 when it was created, +1 at every change of this row. Clients see it as the ETag.
    pub revision: u64,
    /// SHA-256 of the body that it was created from, in hex: the same id with the same body is the same creation again
    /// (I8).
    pub digest: String,
}

/// Where a child session comes from (H4).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChildOf {
    /// The session whose run it works for.
    pub parent: SessionId,
    /// The session at the top.
    pub root: SessionId,
    /// The parent's call that it answers.
    pub tool_call_id: DedupeKey,
    /// How many levels below the top: 1 for a child of a session that is itself no child.
    pub depth: u32,
}

impl SessionDescription {
    /// A native session without a description.
    pub fn native(session_id: SessionId, created: Millis) -> SessionDescription {
        SessionDescription {
            session_id,
            title: None,
            model: None,
            system: None,
            metadata: None,
            state_owner: StateOwner::Native,
            backend: None,
            external_ref: None,
            plugins: None,
            child_of: None,
            max_attempts: caps::ATTEMPTS_DEFAULT,
            created_ms: created.0,
            revision: 1,
            digest: String::new(),
        }
    }

    /// When it was created.
    pub fn created(&self) -> Millis {
        Millis(self.created_ms)
    }

    /// How many levels below the top it is: 0 for a session that is no child.
    pub fn depth(&self) -> u32 {
        self.child_of.as_ref().map_or(0, |of| of.depth)
    }

    /// Whether both are of the same creation: from the same body and, of a child, for the same call of the same parent.
    fn is_of_the_same_creation(&self, other: &SessionDescription) -> bool {
        self.digest == other.digest && self.child_of == other.child_of
    }
}

/// A session: its description and its head.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// Its description.
    pub description: SessionDescription,
    /// Its head.
    pub head: Head,
}

/// I8: makes a session where none has its id. `Ok(None)`: the same creation made it before.
///
/// # Errors
/// [`Refusal::SessionExists`]: the id is that of a session that another creation made.
pub fn create(
    existing: Option<&Session>,
    description: &SessionDescription,
    budget: Budget,
) -> Result<Option<Transition>, Refusal> {
    if let Some(existing) = existing {
        let same = existing.description.is_of_the_same_creation(description);
        return if same { Ok(None) } else { Err(Refusal::SessionExists) };
    }
    let head = Head {
        budget,
        parent: description.child_of.as_ref().map(|of| of.parent.clone()),
        ..Head::new(description.state_owner, description.max_attempts)
    };
    Ok(Some(Transition::of_rows(&head, Vec::new(), vec![SideRow::NewSession(description.clone())])))
}

/// What a client may change of a session. A field that is `None` stays as it is; `Some(None)` removes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionPatch {
    /// The title.
    pub title: Option<Option<String>>,
    /// The model.
    pub model: Option<Option<String>>,
    /// The system prompt.
    pub system: Option<Option<String>>,
    /// The metadata.
    pub metadata: Option<Option<serde_json::Map<String, serde_json::Value>>>,
    /// The plugins.
    pub plugins: Option<Option<Vec<String>>>,
    /// H5: the budget.
    pub budget: Option<Budget>,
    /// Change it only at one of these revisions; `None`: at any.
    pub only_at: Option<Vec<u64>>,
}

/// Changes a session's description and, where the patch names one, its budget (H5), both in one write. The revision grows
/// by 1.
///
/// # Errors
/// [`Refusal::RevisionDiffers`] where `only_at` names other revisions, [`Refusal::SessionClosed`] for a budget of a closed
/// session.
pub fn patch(session: &Session, now: Millis, patch: &SessionPatch) -> Result<Transition, Refusal> {
    let revision = session.description.revision;
    if patch.only_at.as_ref().is_some_and(|wanted| !wanted.contains(&revision)) {
        return Err(Refusal::RevisionDiffers { revision });
    }
    let mut transition = match patch.budget {
        Some(budget) => run::set_budget(&session.head, now, budget)?,
        None => None,
    }
    .unwrap_or_else(|| Transition::of_head(session.head.clone(), Vec::new()));
    let mut description = session.description.clone();
    let SessionPatch { title, model, system, metadata, plugins, budget: _, only_at: _ } = patch.clone();
    description.title = title.unwrap_or(description.title);
    description.model = model.unwrap_or(description.model);
    description.system = system.unwrap_or(description.system);
    description.metadata = metadata.unwrap_or(description.metadata);
    description.plugins = plugins.unwrap_or(description.plugins);
    description.revision += 1;
    transition.rows.push(SideRow::Description(description));
    Ok(transition)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(digest: &str) -> SessionDescription {
        let id = SessionId::parse("s").unwrap();
        SessionDescription { digest: digest.to_owned(), ..SessionDescription::native(id, Millis(1)) }
    }

    fn session() -> Session {
        let description = described("d");
        let head = Head::new(StateOwner::Native, description.max_attempts);
        Session { description, head }
    }

    #[test]
    fn i8_a_session_is_made_once_and_the_same_call_finds_it() {
        let budget = Budget { tokens: Some(7), micros: None };
        let made = create(None, &described("d"), budget).unwrap().unwrap();
        assert_eq!(made.head.budget, budget);
        assert_eq!(made.rows, [SideRow::NewSession(described("d"))]);
        let later = SessionDescription { created_ms: 9, ..described("d") };
        assert_eq!(create(Some(&session()), &later, budget), Ok(None), "time is not what was asked for");
        assert_eq!(create(Some(&session()), &described("e"), budget), Err(Refusal::SessionExists));
    }

    #[test]
    fn h4_a_child_is_never_another_sessions_id() {
        let of = ChildOf {
            parent: SessionId::parse("p").unwrap(),
            root: SessionId::parse("p").unwrap(),
            tool_call_id: DedupeKey::parse("c").unwrap(),
            depth: 1,
        };
        let child = SessionDescription { child_of: Some(of), ..described("d") };
        let made = create(None, &child, Budget::default()).unwrap().unwrap();
        assert_eq!(made.head.parent.as_ref().map(SessionId::as_str), Some("p"));
        let squatted = create(Some(&session()), &child, Budget::default());
        assert_eq!(squatted, Err(Refusal::SessionExists), "somebody made a session with a child's name");
    }

    #[test]
    fn h5_a_patch_changes_what_it_names_and_the_budget_with_it() {
        let change = SessionPatch {
            title: Some(Some("t".to_owned())),
            model: Some(None),
            budget: Some(Budget { tokens: Some(5), micros: None }),
            only_at: Some(vec![1]),
            ..SessionPatch::default()
        };
        let mut before = session();
        before.description.model = Some("m".to_owned());
        before.description.system = Some("kept".to_owned());
        let patched = patch(&before, Millis(9), &change).unwrap();
        assert_eq!(patched.head.budget.tokens, Some(5));
        let [SideRow::Description(after)] = &patched.rows[..] else { panic!("{:?}", patched.rows) };
        assert_eq!(
            (after.title.as_deref(), after.model.as_deref(), after.system.as_deref(), after.revision),
            (Some("t"), None, Some("kept"), 2)
        );
        let stale = SessionPatch { only_at: Some(vec![2, 3]), ..change };
        assert_eq!(patch(&before, Millis(9), &stale), Err(Refusal::RevisionDiffers { revision: 1 }));
        let nothing = patch(&before, Millis(9), &SessionPatch::default()).unwrap();
        assert!(!nothing.touches_head(&before.head), "the head is left alone");
    }
}
