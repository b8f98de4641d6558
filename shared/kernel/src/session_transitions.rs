//! I8, H5: how sessions are made and changed, as transitions.

use crate::budget::Budget;
use crate::head::Head;
use crate::ids::Millis;
use crate::refusal::Refusal;
use crate::requests;
use crate::session::{Session, SessionDescription, SessionPatch};
use crate::transition::{SideRow, Transition};

/// I8: makes a session where none has its id. `Ok(None)`: the same call made it before.
///
/// # Errors
/// [`Refusal::SessionExists`]: another call made a session with this id.
pub fn create(
    existing: Option<&Session>,
    description: &SessionDescription,
    budget: Budget,
) -> Result<Option<Transition>, Refusal> {
    if let Some(existing) = existing {
        let same = existing.description.is_of_the_same_call(description);
        return if same { Ok(None) } else { Err(Refusal::SessionExists) };
    }
    let head = Head {
        budget,
        parent: description.child_of.as_ref().map(|of| of.parent.clone()),
        ..Head::new(description.state_owner, description.max_attempts)
    };
    Ok(Some(Transition::of_rows(&head, Vec::new(), vec![SideRow::NewSession(description.clone())])))
}

/// Changes a session's description and, where the patch names one, its budget: in one write (H5).
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
        Some(budget) => requests::set_budget(&session.head, now, budget)?,
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

    use crate::head::StateOwner;
    use crate::ids::{DedupeKey, SessionId};
    use crate::session::ChildOf;

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
