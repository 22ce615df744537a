//! The operator's socket: `status`, `pause`, `resume` and `stop` reach a running server through `admin.sock` in its state
//! directory. Only the owner of the directory can open it; one line of JSON goes each way.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dp_pvi_programs::problem::Problem;
use dp_pvi_protocol::coordinator::Control;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tracing::{debug, info};

use crate::convergence_status::StatusCache;
use crate::engine::{EngineHandle, Refused, Snapshot};
use crate::error::{Result, ServerError};
use crate::tls::LiveCredentials;
use crate::{clock, expiry};

const MOST_BYTES: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(30);

/// What an operator can ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// State of the run.
    Status,
    /// Open no more rounds.
    Pause,
    /// Open rounds again.
    Resume,
    /// End the run now.
    Stop,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    Status(Box<Snapshot>),
    Problem(String),
}

/// Path of the socket.
#[must_use]
pub fn socket_path(state: &Path) -> PathBuf {
    state.join("admin.sock")
}

/// Opens the socket. The caller holds the state's lock, so a socket that is there is a dead server's.
pub(crate) fn bind(state: &Path) -> Result<UnixListener> {
    let path = socket_path(state);
    match std::fs::remove_file(&path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(ServerError::unavailable(&path, e)),
        _ => {}
    }
    let listener = UnixListener::bind(&path).map_err(|e| ServerError::unavailable(&path, e))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(|e| ServerError::unavailable(&path, e))?;
    Ok(listener)
}

/// Answers until the future that runs it is dropped.
pub(crate) async fn serve(listener: UnixListener, engine: EngineHandle, credentials: Arc<LiveCredentials>, cache: StatusCache) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (engine, credentials, cache) = (engine.clone(), credentials.clone(), cache.clone());
                tokio::spawn(async move {
                    if tokio::time::timeout(PATIENCE, answer(stream, engine, credentials, cache)).await.is_err() {
                        debug!("an operator's connection took too long");
                    }
                });
            }
            Err(error) => {
                debug!(%error, "an operator's connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn answer(stream: UnixStream, engine: EngineHandle, credentials: Arc<LiveCredentials>, cache: StatusCache) -> std::io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    BufReader::new(read.take(MOST_BYTES)).read_line(&mut line).await?;
    let answer = match serde_json::from_str::<Request>(&line) {
        Ok(request) => match ask_engine(&engine, request).await {
            Ok(mut snapshot) => {
                snapshot.warnings.extend(expiry::warnings(&credentials.validities(), clock::date(clock::now())));
                if matches!(request, Request::Status) {
                    snapshot.convergence = cache.after(snapshot.rounds_closed).await;
                }
                Answer::Status(Box::new(snapshot))
            }
            Err(refused) => Answer::Problem(refused.to_string()),
        },
        Err(_) => Answer::Problem("unknown request: use the command line of the same version".into()),
    };
    let mut text = serde_json::to_string(&answer).map_err(std::io::Error::other)?;
    text.push('\n');
    write.write_all(text.as_bytes()).await
}

async fn ask_engine(engine: &EngineHandle, request: Request) -> std::result::Result<Snapshot, Refused> {
    match request {
        Request::Status => {}
        Request::Pause => engine.control(Control::Paused).await?,
        Request::Resume => engine.control(Control::Running).await?,
        Request::Stop => {
            let snapshot = engine.stop().await?;
            info!(?request, "an operator's command was carried out");
            return Ok(snapshot);
        }
    }
    if request != Request::Status {
        info!(?request, "an operator's command was carried out");
    }
    engine.status().await
}

/// Asks a running server.
///
/// # Errors
/// [`ServerError::NotRunning`], or the server's own problem.
pub async fn ask(state: &Path, request: Request) -> Result<Snapshot> {
    let path = socket_path(state);
    let not_running = |e: std::io::Error| ServerError::NotRunning { path: path.display().to_string(), message: Problem::of(e) };
    let stream = UnixStream::connect(&path).await.map_err(not_running)?;
    let (read, mut write) = stream.into_split();
    let text = serde_json::to_string(&request).map_err(|e| ServerError::Failed(Problem::of(e)))?;
    write.write_all(format!("{text}\n").as_bytes()).await.map_err(not_running)?;
    let mut line = String::new();
    BufReader::new(read.take(MOST_BYTES)).read_line(&mut line).await.map_err(not_running)?;
    match serde_json::from_str(&line) {
        Ok(Answer::Status(snapshot)) => Ok(*snapshot),
        Ok(Answer::Problem(problem)) => Err(ServerError::Failed(problem.into())),
        Err(_) => Err(ServerError::Failed("the server's answer cannot be read: use the command line of the same version".into())),
    }
}
