//! Two servers on the loopback for notifications: one that speaks SMTP, with STARTTLS and with answers
//! that a test orders, and one that takes posts. Both keep what came.

use std::{collections::VecDeque, sync::Arc};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufStream},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig};

/// One message as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    pub from: String,
    pub to: Vec<String>,
    pub text: String,
    pub by_tls: bool,
}

/// A mail server.
#[derive(Clone)]
pub struct MailServer {
    pub port: u16,
    kept: Arc<Kept>,
}

struct Kept {
    mails: Mutex<Vec<Mail>>,
    /// Every line that a client said.
    said: Mutex<Vec<String>>,
    /// What the next recipients are answered instead of 250.
    answers: Mutex<VecDeque<&'static str>>,
    tls: Option<TlsAcceptor>,
}

impl MailServer {
    pub async fn start(tls: Option<ServerConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let kept = Arc::new(Kept {
            mails: Mutex::default(),
            said: Mutex::default(),
            answers: Mutex::default(),
            tls: tls.map(|config| TlsAcceptor::from(Arc::new(config))),
        });
        let server = Self { port, kept };
        let taking = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(taking.clone().attend(stream));
            }
        });
        server
    }

    pub fn mails(&self) -> Vec<Mail> {
        self.kept.mails.lock().clone()
    }

    pub fn said(&self) -> Vec<String> {
        self.kept.said.lock().clone()
    }

    /// The next recipient is answered so.
    pub fn answer(&self, line: &'static str) {
        self.kept.answers.lock().push_back(line);
    }

    async fn attend(self, stream: TcpStream) {
        let mut stream = BufStream::new(stream);
        if say(&mut stream, "220 mail.test ESMTP").await.is_none() {
            return;
        }
        if self.converse(&mut stream, false).await == Some(Next::Tls)
            && let Some(acceptor) = &self.kept.tls
            && let Ok(secure) = acceptor.accept(stream.into_inner()).await
        {
            self.converse(&mut BufStream::new(secure), true).await;
        }
    }

    async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut BufStream<S>,
        by_tls: bool,
    ) -> Option<Next> {
        let (mut from, mut to) = (String::new(), Vec::new());
        loop {
            let line = read(stream).await?;
            self.kept.said.lock().push(line.clone());
            let upper = line.to_ascii_uppercase();
            if upper.starts_with("EHLO") {
                let offers = self.kept.tls.is_some() && !by_tls;
                say(stream, if offers { "250-mail.test\r\n250 STARTTLS" } else { "250 mail.test" }).await?;
            } else if upper == "STARTTLS" {
                say(stream, "220 go ahead").await?;
                return Some(Next::Tls);
            } else if let Some(address) = upper.strip_prefix("MAIL FROM:") {
                from = line[line.len() - address.len()..].to_owned();
                say(stream, "250 fine").await?;
            } else if let Some(address) = upper.strip_prefix("RCPT TO:") {
                let answer = self.kept.answers.lock().pop_front().unwrap_or("250 fine");
                to.push(line[line.len() - address.len()..].to_owned());
                say(stream, answer).await?;
            } else if upper == "DATA" {
                say(stream, "354 go on").await?;
                let mut text = String::new();
                loop {
                    let line = read(stream).await?;
                    if line == "." {
                        break;
                    }
                    text.push_str(line.strip_prefix('.').unwrap_or(&line));
                    text.push('\n');
                }
                let mail = Mail { from: std::mem::take(&mut from), to: std::mem::take(&mut to), text, by_tls };
                self.kept.mails.lock().push(mail);
                say(stream, "250 taken").await?;
            } else if upper == "QUIT" {
                say(stream, "221 bye").await?;
                return None;
            } else {
                say(stream, "250 fine").await?;
            }
        }
    }
}

#[derive(PartialEq, Eq)]
enum Next {
    Tls,
}

async fn read<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut BufStream<S>) -> Option<String> {
    let mut line = String::new();
    let count = stream.read_line(&mut line).await.ok()?;
    (count > 0).then(|| line.trim_end_matches(['\r', '\n']).to_owned())
}

async fn say<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut BufStream<S>, line: &str) -> Option<()> {
    stream.write_all(format!("{line}\r\n").as_bytes()).await.ok()?;
    stream.flush().await.ok()
}

/// A post as it came.
#[derive(Clone, Debug)]
pub struct Post {
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A server that takes posts.
#[derive(Clone)]
pub struct Hook {
    pub port: u16,
    posts: Arc<Mutex<Vec<Post>>>,
    answers: Arc<Mutex<VecDeque<u16>>>,
}

impl Hook {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let hook = Self { port, posts: Arc::default(), answers: Arc::default() };
        let router = Router::new().fallback(take).with_state(hook.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        hook
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook", self.port)
    }

    pub fn posts(&self) -> Vec<Post> {
        self.posts.lock().clone()
    }

    /// The next post is answered so.
    pub fn answer(&self, status: u16) {
        self.answers.lock().push_back(status);
    }
}

async fn take(State(hook): State<Hook>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    hook.posts.lock().push(Post { path: uri.path().to_owned(), headers, body });
    let status = hook.answers.lock().pop_front().unwrap_or(204);
    let elsewhere = [(header::LOCATION, "/elsewhere")];
    (StatusCode::from_u16(status).unwrap(), elsewhere).into_response()
}
