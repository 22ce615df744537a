//! A PostgreSQL server of the test's own: in a temporary folder, on a free port of loopback and a socket in that folder, with TLS.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use tempfile::TempDir;

use crate::federation::{outcome, run};

/// A running server, ended when dropped.
#[derive(Debug)]
pub struct Postgres {
    folder: TempDir,
    programs: PathBuf,
    port: u16,
    server: Child,
}

/// PostgreSQL refuses to run for root: the user of Debian's package is taken then.
const USER: &str = "postgres";

impl Postgres {
    /// Starts a server whose certificate and key are `server.pem` and `server.key` in `tls`; `None` with a printed message where PostgreSQL is not
    /// installed.
    ///
    /// # Panics
    /// When it is installed and does not start.
    #[must_use]
    pub fn start(tls: &Path) -> Option<Self> {
        Self::start_with(Some(tls))
    }

    /// The same without TLS.
    ///
    /// # Panics
    /// When it is installed and does not start.
    #[must_use]
    pub fn start_plain() -> Option<Self> {
        Self::start_with(None)
    }

    fn start_with(tls: Option<&Path>) -> Option<Self> {
        let Some(programs) = programs() else {
            eprintln!("SKIPPED: PostgreSQL is not installed (Debian: apt-get install postgresql)");
            return None;
        };
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (data, home) = (folder.path().join("data"), folder.path());
        fs::set_permissions(home, fs::Permissions::from_mode(0o755)).expect("permissions");
        for (tls, name) in tls.into_iter().flat_map(|tls| ["server.pem", "server.key"].map(|name| (tls, name))) {
            fs::copy(tls.join(name), home.join(name)).expect("a copy");
            fs::set_permissions(home.join(name), fs::Permissions::from_mode(0o600)).expect("permissions");
        }
        if root() {
            run(Command::new("chown").arg("-R").arg(format!("{USER}:{USER}")).arg(home));
        }
        run(as_user(&programs.join("initdb"))
            .args(["-N", "-E", "UTF8", "--locale=C", "-U", "owner", "--auth-local=trust", "--auth-host=scram-sha-256", "-D"])
            .arg(&data)
            .stdout(Stdio::null()));
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port();
        let mut server = as_user(&programs.join("postgres"));
        server.arg("-D").arg(&data).arg("-k").arg(home).args(["-p", &port.to_string()]);
        for setting in ["listen_addresses=127.0.0.1", "fsync=off", "max_connections=20", "shared_buffers=32MB", "jit=off"] {
            server.args(["-c", setting]);
        }
        if tls.is_some() {
            server.args(["-c", "ssl=on"]);
            for (key, file) in [("ssl_cert_file", "server.pem"), ("ssl_key_file", "server.key")] {
                server.arg("-c").arg(format!("{key}={}", home.join(file).display()));
            }
        }
        let log = fs::File::create(folder.path().join("log")).expect("a file");
        let server = server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("postgres starts");
        let server = Self { folder, programs, port, server };
        for _ in 0..600 {
            if outcome(&mut server.psql("postgres", "SELECT 1")).0 == 0 {
                return Some(server);
            }
            sleep(Duration::from_millis(50));
        }
        panic!("PostgreSQL does not answer:\n{}", fs::read_to_string(server.folder.path().join("log")).unwrap_or_default());
    }

    /// Its port on loopback.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder of its socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        self.folder.path()
    }

    fn psql(&self, database: &str, sql: &str) -> Command {
        let mut command = Command::new(self.programs.join("psql"));
        command
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "owner", "-p", &self.port.to_string(), "-h"])
            .arg(self.folder.path());
        command.args(["-d", database, "-c", sql]);
        command
    }

    /// Runs a statement, or a command of psql, as the owner of everything, and gives what it prints.
    ///
    /// # Panics
    /// When it fails.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        run(&mut self.psql(database, sql)).trim().to_owned()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // SIGQUIT ends it at once, and its helpers with it.
        let _ = outcome(Command::new("kill").arg("-QUIT").arg(self.server.id().to_string()));
        let _ = self.server.wait();
    }
}

/// Where the newest version has its programs.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten().map(|entry| entry.path().join("bin"));
    versions.filter(|programs| ["initdb", "postgres", "psql"].iter().all(|name| programs.join(name).exists())).max()
}

fn root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|about| about.uid() == 0)
}

fn as_user(program: &Path) -> Command {
    if !root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", USER, "--regid", USER, "--clear-groups", "--"]).arg(program).current_dir("/");
    command
}
