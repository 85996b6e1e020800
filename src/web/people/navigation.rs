//! What the pages of people and those of groups share: what somebody looks for in a list, the
//! address of a list from a place on, and what a form does next.

use axum::response::{IntoResponse, Redirect, Response};
use url::form_urlencoded::Serializer;

use crate::web::http::error::{Error, Result};

/// No name is longer than this in characters, whatever somebody types.
const MAX_LENGTH: usize = 200;

/// What somebody typed, as far as it is looked at and shown again.
pub(super) fn typed(text: &str) -> String {
    text.trim().chars().take(MAX_LENGTH).collect()
}

/// The address of a list with what is asked of it; what is empty is left out.
pub(super) fn address(path: &str, asked: &[(&str, &str)]) -> String {
    let asked = asked.iter().filter(|(_, value)| !value.is_empty());
    let query = Serializer::new(String::new()).extend_pairs(asked).finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

/// On to a page that says what was done.
pub(super) fn done(path: &str, what: &str) -> Response {
    Redirect::to(&address(path, &[("done", what)])).into_response()
}

/// Why a form was refused, for the page that is drawn once more; an error that is ours has a page of its own.
pub(super) fn refusal(error: Error) -> Result<(Error, String)> {
    if error.status().is_server_error() {
        return Err(error);
    }
    let field = error.field_errors().first().map(|field| field.message.clone());
    let why = field.unwrap_or_else(|| error.detail().to_owned());
    Ok((error, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_hold_what_is_asked() {
        let asked = [("find", "Åsa & co"), ("role", ""), ("cursor", "a b")];
        assert_eq!(address("/admin/users", &asked), "/admin/users?find=%C3%85sa+%26+co&cursor=a+b");
        assert_eq!(address("/admin/groups", &[("find", "")]), "/admin/groups");
        assert_eq!(typed(&format!("  {}", "x".repeat(300))).len(), MAX_LENGTH);
    }
}
