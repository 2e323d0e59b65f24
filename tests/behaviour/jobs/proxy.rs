//! A proxy to the database that can lose an answer.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tempfile::TempDir;
use tests::Database;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

pub(crate) struct Proxy {
    folder: TempDir,
    options: PgConnectOptions,
    lose: Arc<Mutex<Option<&'static str>>>,
    is_open: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Proxy {
    pub(crate) fn start(db: &Database) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = (*db.pool().connect_options()).clone();
        let door = UnixListener::bind(socket(folder.path(), &options)).unwrap();
        let lose = Arc::<Mutex<Option<&'static str>>>::default();
        let (is_open, mut opened) = watch::channel(true);
        let task = tokio::spawn({
            let (options, lose) = (options.clone(), lose.clone());
            async move {
                while let Ok((client, _)) = door.accept().await {
                    if opened.wait_for(|is_open| *is_open).await.is_err() {
                        return;
                    }
                    let server = server(&options).await;
                    tokio::spawn(carry(client, server, lose.clone()));
                }
            }
        });
        Self {
            folder,
            options,
            lose,
            is_open,
            task,
        }
    }

    /// A pool whose connections go this way.
    pub(crate) fn pool(&self) -> PgPool {
        let options = self.options.clone().socket(self.folder.path());
        PgPoolOptions::new().connect_lazy_with(options)
    }

    /// The next commit is carried out, but whoever asked for it never hears of it.
    pub(crate) fn lose_the_next_answer_to_a_commit(&self) {
        self.lose_the_next_answer_to("COMMIT");
    }

    /// The next message that contains this text is carried out, but whoever sent it never hears of it.
    pub(crate) fn lose_the_next_answer_to(&self, text: &'static str) {
        *self.lose.lock().unwrap() = Some(text);
    }

    /// New connections wait from now on.
    pub(crate) fn hold_new_connections(&self) {
        self.is_open.send_replace(false);
    }

    /// New connections reach the server again.
    pub(crate) fn let_connections_through(&self) {
        self.is_open.send_replace(true);
    }

    pub(crate) fn has_lost_it(&self) -> bool {
        self.lose.lock().unwrap().is_none()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn socket(folder: &Path, options: &PgConnectOptions) -> std::path::PathBuf {
    folder.join(format!(".s.PGSQL.{}", options.get_port()))
}

async fn server(options: &PgConnectOptions) -> Box<dyn Stream> {
    match options.get_socket() {
        Some(folder) => Box::new(UnixStream::connect(socket(folder, options)).await.unwrap()),
        None => {
            let address = (options.get_host(), options.get_port());
            Box::new(TcpStream::connect(address).await.unwrap())
        }
    }
}

async fn carry(
    client: UnixStream,
    server: Box<dyn Stream>,
    lose: Arc<Mutex<Option<&'static str>>>,
) {
    let (mut from_client, mut to_client) = split(client);
    let (mut from_server, mut to_server) = split(server);
    let deaf = AtomicBool::new(false);
    let up = async {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
            let said = &buffer[..length];
            let contains = |text: &&str| said.windows(text.len()).any(|it| it == text.as_bytes());
            if lose
                .lock()
                .unwrap()
                .take_if(|text| contains(text))
                .is_some()
            {
                deaf.store(true, Ordering::Release);
            }
            if to_server.write_all(said).await.is_err() {
                break;
            }
        }
    };
    let down = async {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
            if deaf.load(Ordering::Acquire) || to_client.write_all(&buffer[..length]).await.is_err()
            {
                break;
            }
        }
    };
    tokio::select! {
        () = up => {}
        () = down => {}
    }
}
