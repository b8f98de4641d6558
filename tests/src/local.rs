//! A `keel-local` of a test's own.

use std::path::PathBuf;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::{CLIENT_KEY, OTHER_KEY, TIMEOUT};

/// A running `keel-local`; killed when dropped.
pub struct Local {
    child: Child,
    /// Where it listens.
    pub base: String,
    /// Where its tables can be reached as DynamoDB, with `--dynamodb-port`.
    pub dynamodb: Option<String>,
}

/// The program, beside the tests' own: `make` builds it before them.
fn program() -> PathBuf {
    let mut folder = std::env::current_exe().unwrap();
    folder.pop();
    if folder.ends_with("deps") {
        folder.pop();
    }
    let program = folder.join("keel-local");
    assert!(program.exists(), "{} is not built: cargo build -p keel-local", program.display());
    program
}

impl Local {
    /// Starts one in memory, with these further arguments.
    pub async fn start(arguments: &[&str]) -> Local {
        Self::start_with(&[&["--memory"], arguments].concat()).await
    }

    /// Starts one with these arguments, and waits until it says where it is.
    pub async fn start_with(arguments: &[&str]) -> Local {
        Self::try_start(arguments).await.expect("it starts")
    }

    /// The same; `None` if it does not start, since its store may fail.
    pub async fn try_start(arguments: &[&str]) -> Option<Local> {
        let mut child = Command::new(program())
            .args(["--port", "0", "--backoff-ms", "20"])
            .args(["--key", &format!("{OTHER_KEY}=client,owner,admin")])
            .args(["--key", &format!("{CLIENT_KEY}=client")])
            .args(arguments)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = tokio::time::timeout(TIMEOUT, lines.next_line()).await.expect("it starts or ends");
        let line = line.unwrap()?;
        let base = line.strip_prefix("Keel listens on ").expect("its first line").to_owned();
        let mut dynamodb = None;
        if arguments.contains(&"--dynamodb-port") {
            let _where_the_ledger_is = lines.next_line().await.unwrap();
            let line = lines.next_line().await.unwrap().expect("it says where its tables are");
            dynamodb = line.rsplit_once(" at ").map(|(_, address)| address.to_owned());
        }
        // Its other lines are read and dropped, so that the pipe does not fill.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Some(Local { child, base, dynamodb })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id().expect("it has not been waited for")
    }

    /// SIGKILL: it has no chance to clean up.
    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// SIGTERM.
    pub async fn terminate(&self) {
        let pid = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
    }

    /// Waits until it has ended by itself; whether it ended well.
    pub async fn ended(&mut self) -> bool {
        tokio::time::timeout(TIMEOUT, self.child.wait()).await.expect("it ends").unwrap().success()
    }
}
