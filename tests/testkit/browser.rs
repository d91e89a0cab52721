//! A page in a real Chromium, headless, driven by the Chrome DevTools Protocol over its WebSocket.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

/// A page that is open.
pub struct Page {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    /// Which page the messages are about.
    session: String,
    sent: u64,
    /// Errors that the page has logged, and exceptions.
    errors: VecDeque<String>,
    _program: Child,
    _profile: TempDir,
}

/// Longest wait for the browser, and for what a page should come to show.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);

/// The browser, if this machine has one.
pub fn installed() -> Option<PathBuf> {
    let directories = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let mut paths = std::env::split_paths(&directories).flat_map(|directory| names.map(|name| directory.join(name)));
    paths.find(|path| path.is_file())
}

// === impl Page ===

impl Page {
    /// Starts a browser and opens this URL.
    pub async fn open(browser: &Path, url: &str) -> anyhow::Result<Self> {
        let profile = tempfile::tempdir().context("making a directory for the browser's profile")?;
        let mut command = Command::new(browser);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]);
        command.args(["--disable-background-networking", "--remote-debugging-port=0", "--window-size=1280,900"]);
        command.arg(format!("--user-data-dir={}", profile.path().display())).arg("about:blank");
        command.kill_on_drop(true).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut program = command.spawn().with_context(|| format!("starting {}", browser.display()))?;
        let mut lines = BufReader::new(program.stderr.take().context("standard error of the browser")?).lines();
        let address = timeout(PATIENCE, async {
            while let Some(line) = lines.next_line().await? {
                if let Some(address) = line.strip_prefix("DevTools listening on ") {
                    return Ok(address.to_owned());
                }
            }
            bail!("the browser ended")
        });
        let address = address.await.context("the browser doesn't say where it listens")??;
        // Whoever doesn't read what it logs stops it.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let (socket, _) = tokio_tungstenite::connect_async(address).await.context("connecting to the browser")?;
        let (session, errors) = (String::new(), VecDeque::new());
        let mut page = Self { socket, session, sent: 0, errors, _program: program, _profile: profile };
        let target = page.command("Target.createTarget", json!({ "url": "about:blank" })).await?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = page.command("Target.attachToTarget", attach).await?;
        page.session = attached["sessionId"].as_str().context("a session")?.to_owned();
        for domain in ["Page", "Runtime", "Log"] {
            page.command(&format!("{domain}.enable"), json!({})).await?;
        }
        page.command("Page.navigate", json!({ "url": url })).await?;
        page.until(&format!("location.href === {} && document.readyState === 'complete'", json!(url))).await?;
        Ok(page)
    }

    /// Value of an expression in the page, which may be a promise.
    pub async fn value(&mut self, expression: &str) -> anyhow::Result<Value> {
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.command("Runtime.evaluate", params).await?;
        ensure!(answer.get("exceptionDetails").is_none(), "{expression}: {}", answer["exceptionDetails"]);
        Ok(answer["result"]["value"].clone())
    }

    /// Waits until an expression is true.
    pub async fn until(&mut self, expression: &str) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if self.value(expression).await? == true {
                return Ok(());
            }
            if Instant::now() > deadline {
                let text = self.value("document.body.innerText").await?;
                bail!("{expression} isn't true in time; the page says: {}", text.as_str().unwrap_or_default());
            }
            sleep(PAUSE).await;
        }
    }

    /// Waits until the page shows this text.
    pub async fn until_shown(&mut self, text: &str) -> anyhow::Result<()> {
        self.until(&format!("document.body.innerText.includes({})", json!(text))).await
    }

    /// Presses a key: a letter, or one with a name such as `Enter`.
    pub async fn press(&mut self, key: &str) -> anyhow::Result<()> {
        let text = match key {
            "Enter" => Some("\r"),
            letter if letter.chars().count() == 1 => Some(letter),
            _ => None,
        };
        let code = match key {
            "Enter" => 13,
            "Escape" => 27,
            "Tab" => 9,
            _ => 0,
        };
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({ "type": kind, "key": key, "windowsVirtualKeyCode": code });
            if let (Some(text), "keyDown") = (text, kind) {
                event["text"] = text.into();
            }
            self.command("Input.dispatchKeyEvent", event).await?;
        }
        Ok(())
    }

    /// Types a text, letter by letter.
    pub async fn write(&mut self, text: &str) -> anyhow::Result<()> {
        for letter in text.chars() {
            self.press(&letter.to_string()).await?;
        }
        Ok(())
    }

    /// Errors that the page has logged so far, among them violations of its content security policy.
    pub fn errors(&self) -> impl Iterator<Item = &str> {
        self.errors.iter().map(String::as_str)
    }

    async fn command(&mut self, method: &str, params: Value) -> anyhow::Result<Value> {
        self.sent += 1;
        let mut message = json!({ "id": self.sent, "method": method, "params": params });
        if !self.session.is_empty() {
            message["sessionId"] = self.session.as_str().into();
        }
        self.socket.send(Message::text(message.to_string())).await.with_context(|| format!("sending {method}"))?;
        let answer = timeout(PATIENCE, self.answer()).await.with_context(|| format!("{method}: no answer in time"))?;
        let answer = answer.with_context(|| method.to_owned())?;
        ensure!(answer.get("error").is_none(), "{method}: {}", answer["error"]);
        Ok(answer["result"].clone())
    }

    /// The answer to the last command. Events that come before it are looked at.
    async fn answer(&mut self) -> anyhow::Result<Value> {
        loop {
            let message = self.socket.next().await.context("the browser has closed the connection")??;
            let Message::Text(text) = message else { continue };
            let message: Value = serde_json::from_str(&text).context("a message of the browser")?;
            if message["id"] == self.sent {
                return Ok(message);
            }
            let params = &message["params"];
            match message["method"].as_str() {
                Some("Runtime.exceptionThrown") => self.errors.push_back(params["exceptionDetails"].to_string()),
                Some("Log.entryAdded") if params["entry"]["level"] == "error" => {
                    let entry = &params["entry"];
                    self.errors.push_back(format!("{} {}", entry["text"], entry["url"]));
                }
                _ => {}
            }
        }
    }
}
