//! Whether this command and the portal understand each other. A command that fails asks for the portal's version, so that
//! a request which one of them does not know is explained by their versions.

use std::time::Duration;

use serde::Deserialize;

use super::{api::Error, contexts::Connection};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How long a command that has failed waits for the versions.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a portal says of itself.
#[derive(Debug, Deserialize)]
struct Versions {
    version: String,
    oldest_client: String,
}

/// Returns what to do about the versions, if they can be why a request failed.
pub(super) async fn advice(connection: &Connection, context: Option<&str>, error: &Error) -> Option<String> {
    let may_be = match error {
        Error::Problem(problem) => matches!(problem.status, 400 | 404 | 405 | 422),
        Error::Strange(_) => true,
        _ => false,
    };
    if !may_be {
        return None;
    }
    let api = connection.open(context).ok()?;
    let answer = tokio::time::timeout(PATIENCE, api.get("/version", &[])).await.ok()?.ok()?;
    compared(VERSION, &Versions::deserialize(answer).ok()?)
}

/// Says which of two differing versions is too old; `None` where neither is, or what is said is no version.
fn compared(own: &str, portal: &Versions) -> Option<String> {
    let parts = |text: &str| -> Option<Vec<u64>> { text.split('.').map(|part| part.parse().ok()).collect() };
    let (own_parts, version, oldest) = (parts(own)?, parts(&portal.version)?, parts(&portal.oldest_client)?);
    if own_parts < oldest {
        return Some(format!(
            "this command (version {own}) is too old for the portal, which needs {} or later; install version {}",
            portal.oldest_client, portal.version
        ));
    }
    (version < own_parts).then(|| {
        format!("the portal (version {}) is older than this command ({own}) and may not support it", portal.version)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_one_is_named() {
        let portal =
            |version: &str, oldest: &str| Versions { version: version.to_owned(), oldest_client: oldest.to_owned() };
        assert_eq!(compared("0.2.0", &portal("0.2.0", "0.2.0")), None);
        assert_eq!(compared("0.2.0", &portal("0.10.1", "0.2.0")), None, "newer, and it understands this one");
        assert!(
            compared("0.2.0", &portal("0.10.1", "0.9.0"))
                .unwrap()
                .contains("needs 0.9.0 or later; install version 0.10.1")
        );
        assert!(compared("0.10.0", &portal("0.9.5", "0.2.0")).unwrap().contains("older than this command (0.10.0)"));
        assert_eq!(compared("0.2.0", &portal("\u{1b}[31m", "x")), None);
    }
}
