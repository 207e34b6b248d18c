//! A server of S3 that keeps objects on disk, in a process of its own.

use brambling_storage::{S3Place, S3Store, StoreLocation};
use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const KEY: &str = "AKIATESTKEYOFOURS";
pub const SECRET: &str = "a-secret-that-nobody-sees";
const PATIENCE: Duration = Duration::from_secs(30);

pub struct S3Server {
    directory: tempfile::TempDir,
    binary: PathBuf,
    pub port: u16,
    child: Child,
}

impl S3Server {
    /// None, aloud, where no server is installed.
    pub fn start() -> Option<S3Server> {
        let binary = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build/s3/bin/versitygw");
        if !binary.exists() {
            eprintln!(
                "skipped: no server of S3 in build/s3; `make build/s3/bin/versitygw` installs one"
            );
            return None;
        }
        // Of a disk: what the server knows of objects are attributes of their files.
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        std::fs::create_dir_all(directory.path().join("data/bucket")).unwrap();
        // Nobody else is given this port meanwhile: numbers go round.
        let port = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = port.local_addr().unwrap().port();
        let child = run(&binary, directory.path(), port);
        Some(S3Server {
            directory,
            binary,
            port,
            child,
        })
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn restart(&mut self) {
        self.child = run(&self.binary, self.directory.path(), self.port);
    }

    /// What names this server.
    pub fn variables(&self) -> BTreeMap<String, String> {
        variables(self.port, KEY, SECRET)
    }

    pub fn store(&self, prefix: &str) -> S3Store {
        S3Store::with_variables(&place(prefix), &self.variables()).unwrap()
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(binary: &Path, directory: &Path, port: u16) -> Child {
    let child = Command::new(binary)
        .env("ROOT_ACCESS_KEY", KEY)
        .env("ROOT_SECRET_KEY", SECRET)
        .args([
            "--quiet",
            "--keep-alive",
            "--port",
            &format!("127.0.0.1:{port}"),
        ])
        .arg("posix")
        .arg(directory.join("data"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let until = Instant::now() + PATIENCE;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < until, "the server does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

pub fn variables(port: u16, key: &str, secret: &str) -> BTreeMap<String, String> {
    [
        ("HOME", "/nonexistent".to_owned()),
        ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}")),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        ("AWS_ACCESS_KEY_ID", key.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", secret.to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

pub fn place(prefix: &str) -> S3Place {
    match StoreLocation::parse(&format!("s3://bucket/{prefix}")) {
        Ok(StoreLocation::S3(place)) => place,
        other => panic!("{other:?}"),
    }
}
