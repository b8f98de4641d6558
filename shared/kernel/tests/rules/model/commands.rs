//! Random commands: of clients, of owners with a current, an old or a forged token, and of the clock.

use keel_kernel::run::Outcome;
use proptest::collection::vec;
use proptest::prelude::*;

/// Which token a command carries.
#[derive(Clone, Copy, Debug)]
pub(super) enum Token {
    /// The newest claim's.
    Newest,
    /// That of a claim so many claims ago.
    Old(usize),
    /// The newest epoch under a name that did not claim it.
    Forged,
}

/// Which inputs an assistant message names.
#[derive(Clone, Copy, Debug)]
pub(super) enum Inputs {
    /// What a request prepared now presents (A1).
    Presented,
    /// Some of the unanswered inputs, by the bits of a number.
    Some(u8),
    /// An event of any kind, or none at all.
    Wrong(u64),
    /// It has no inputSeqs (A4).
    Absent,
}

/// How an assistant message ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stop {
    Completed,
    Cut,
    Failed,
    Aborted,
}

#[derive(Clone, Debug)]
pub(super) enum Own {
    Answer { generation: u8, inputs: Inputs, calls: Vec<u8>, stop: Stop },
    Result { call: u8, open: bool, text: u8 },
    Compaction { keep: u8 },
    Finished,
}

#[derive(Clone, Debug)]
pub(super) enum Command {
    Input {
        key: u8,
        text: u8,
        guide: bool,
    },
    External {
        key: u8,
        text: u8,
    },
    Claim {
        owner: u8,
    },
    Own {
        token: Token,
        events: Vec<Own>,
    },
    Renew {
        token: Token,
    },
    Release {
        token: Token,
    },
    Settle {
        token: Token,
        outcome: Outcome,
        events: Vec<Own>,
    },
    /// An owner parks its run. It has seen all nudges, or not.
    Park {
        token: Token,
        behind: bool,
        until: Option<u64>,
    },
    Nudge,
    Queue,
    Cancel,
    Close,
    Pass {
        ms: u64,
    },
}

/// A command, and how many steps old the head is on which it is first decided.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) command: Command,
    pub(super) lag: usize,
}

fn token() -> impl Strategy<Value = Token> {
    prop_oneof![
        8 => Just(Token::Newest),
        1 => (1_usize..4).prop_map(Token::Old),
        1 => Just(Token::Forged),
    ]
}

fn inputs() -> impl Strategy<Value = Inputs> {
    prop_oneof![
        6 => Just(Inputs::Presented),
        2 => any::<u8>().prop_map(Inputs::Some),
        1 => (0_u64..12).prop_map(Inputs::Wrong),
    ]
}

/// `legacy`: messages may come without inputSeqs.
fn own(legacy: bool) -> impl Strategy<Value = Own> {
    let inputs =
        if legacy { prop_oneof![3 => Just(Inputs::Absent), 1 => inputs()].boxed() } else { inputs().boxed() };
    let stop = prop_oneof![
        6 => Just(Stop::Completed),
        1 => Just(Stop::Cut),
        2 => Just(Stop::Failed),
        1 => Just(Stop::Aborted),
    ];
    let calls = prop_oneof![1 => Just(Vec::new()), 1 => vec(0_u8..8, 1..3)];
    prop_oneof![
        5 => (0_u8..40, inputs, calls, stop).prop_map(|(generation, inputs, calls, stop)| Own::Answer {
            generation,
            inputs,
            calls,
            stop
        }),
        5 => (0_u8..8, prop::bool::weighted(0.8), 0_u8..2)
            .prop_map(|(call, open, text)| Own::Result { call, open, text }),
        1 => (0_u8..9).prop_map(|keep| Own::Compaction { keep }),
        1 => Just(Own::Finished),
    ]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        3 => Just(Outcome::Succeeded),
        2 => (0_u64..3_000).prop_map(|backoff_ms| Outcome::Failed { backoff_ms }),
        1 => Just(Outcome::Cancelled),
    ]
}

fn command(legacy: bool) -> impl Strategy<Value = Command> {
    prop_oneof![
        30 => (0_u8..30, 0_u8..2, any::<bool>())
            .prop_map(|(key, text, guide)| Command::Input { key, text, guide }),
        4 => (0_u8..6, 0_u8..2).prop_map(|(key, text)| Command::External { key, text }),
        24 => (0_u8..3).prop_map(|owner| Command::Claim { owner }),
        36 => (token(), prop_oneof![3 => vec(own(legacy), 1), 1 => vec(own(legacy), 2..4)]).prop_map(|(token, events)| Command::Own { token, events }),
        4 => token().prop_map(|token| Command::Renew { token }),
        5 => token().prop_map(|token| Command::Release { token }),
        16 => (token(), outcome(), vec(own(legacy), 0..3), any::<bool>()).prop_map(
            |(token, outcome, mut events, summary)| {
                if summary {
                    events.push(Own::Finished);
                }
                Command::Settle { token, outcome, events }
            }
        ),
        6 => (token(), prop::bool::weighted(0.2), prop::option::of(0_u64..60_000))
            .prop_map(|(token, behind, until)| Command::Park { token, behind, until }),
        6 => Just(Command::Nudge),
        4 => Just(Command::Queue),
        5 => Just(Command::Cancel),
        1 => Just(Command::Close),
        12 => prop_oneof![3 => 0_u64..2_000, 1 => 50_000_u64..200_000]
            .prop_map(|ms| Command::Pass { ms }),
    ]
}

/// What happens to one session.
pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop_oneof![4 => Just(false), 1 => Just(true)].prop_flat_map(|legacy| {
        let lag = prop_oneof![3 => Just(0_usize), 1 => 1_usize..5];
        vec((command(legacy), lag).prop_map(|(command, lag)| Step { command, lag }), 1..90)
    })
}
