//! Founders: several clients create the same session at the same time, some of them with another description. What each is
//! told is recorded and checked (I8).

use std::sync::Arc;
use std::time::Duration;

use keel_kernel::budget::Budget;
use keel_kernel::{Refusal, SessionDescription, SessionId, TenantId};
use keel_ledger::{LedgerError, SessionKey};

use crate::world::World;

/// What a founder was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Founded {
    /// The session's partition key.
    pub(crate) at: String,
    /// The digest of the description that was sent.
    pub(crate) digest: String,
    /// The answer.
    pub(crate) told: Told,
}

/// The answer to a creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// The session is new.
    Created,
    /// The same creation had made it before.
    Before,
    /// Another creation had made it.
    Taken,
}

/// The sessions that founders make.
pub(crate) fn place(number: u64) -> SessionKey {
    SessionKey {
        tenant: TenantId::parse("t").expect("a tenant id"),
        session: SessionId::parse(format!("founded-{number}")).expect("a session id"),
    }
}

/// A founder's whole life: it creates each session, and tries again until it has an answer or gives up.
pub(crate) async fn live(world: Arc<World>, number: u64, sessions: u64) {
    let process = world.process("founder", number);
    let mut rng = world.rng.fork(&format!("founder-{number}"));
    for session in 0..sessions {
        let at = place(session);
        let digest = if rng.chance(250) { "other" } else { "same" };
        tokio::time::sleep(Duration::from_millis(rng.pick(0..=30))).await;
        let description = SessionDescription {
            digest: digest.to_owned(),
            ..SessionDescription::native(at.session.clone(), process.env_now())
        };
        for _ in 0..rng.pick(1..=3) {
            let told = match process.ledger.create(&at, &description, Budget::default()).await {
                Ok((_, true)) => Told::Created,
                Ok((_, false)) => Told::Before,
                Err(LedgerError::Refused(Refusal::SessionExists)) => Told::Taken,
                Err(error) => {
                    world.history.mark("a session was not made", format_args!("{at}: {error}"));
                    continue;
                }
            };
            world.history.mark("a session was made", format_args!("{at} by founder-{number}: {told:?}"));
            let founded = Founded { at: at.to_string(), digest: digest.to_owned(), told };
            world.history.records().founded.push(founded);
            break;
        }
    }
}

/// I8: one founder made it, the others of the same description found it, and those of another were refused.
pub(crate) async fn check(world: &World, sessions: u64) {
    let listed = world.tenants.sessions(&place(0).tenant, None, 100).await.map(|page| page.sessions);
    let listed = listed.unwrap_or_default();
    let founded = world.history.records().founded.clone();
    for session in 0..sessions {
        let at = place(session);
        let here: Vec<&Founded> = founded.iter().filter(|one| one.at == at.to_string()).collect();
        let broken = |what: String| world.history.violated("I8", format!("{at}: {what}"));
        let made = here.iter().filter(|one| one.told == Told::Created).count();
        if made > 1 {
            broken(format!("{made} founders were told that they made it"));
        }
        let rows: Vec<_> = listed.iter().filter(|row| row.description.session_id == at.session).collect();
        if rows.len() > 1 || (rows.is_empty() && !here.is_empty()) {
            broken(format!("the tenant's list names it {} times: {here:?}", rows.len()));
        }
        let Some(row) = rows.first() else { continue };
        for one in here {
            let same = row.description.digest == one.digest;
            if same == (one.told == Told::Taken) {
                broken(format!("it is of {:?}, and {one:?}", row.description.digest));
            }
        }
    }
}
