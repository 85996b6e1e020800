//! The form of the portal's tokens, by which one is known wherever it stands.

/// What each begins with.
pub const PREFIX: &str = "lyc_";

/// What follows the prefix of anything that could be one: shorter ones cannot be guessed either.
const MIN_LENGTH: usize = 16;

/// Whether somewhere in `text` stands what could be a token of the portal's, in plain letters or
/// as the password of `Authorization: Basic`.
pub fn holds_token(text: &[u8]) -> bool {
    // One quick look: hardly any header has both.
    holds_plainly(text) || basic(text).is_some_and(|pair| holds_plainly(&pair))
}

fn holds_plainly(text: &[u8]) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    text.windows(PREFIX.len()).enumerate().any(|(at, found)| {
        found == PREFIX.as_bytes()
            && text[at + PREFIX.len()..].iter().take(MIN_LENGTH).filter(|byte| is_letter(byte)).count() == MIN_LENGTH
    })
}

/// The name and password of `Basic …`.
fn basic(text: &[u8]) -> Option<Vec<u8>> {
    use base64::{Engine, prelude::BASE64_STANDARD_NO_PAD};
    let (scheme, rest) = text.trim_ascii().split_at_checked(6)?;
    let pair = rest.trim_ascii().split(|byte| *byte == b'=').next()?;
    scheme.eq_ignore_ascii_case(b"basic ").then(|| BASE64_STANDARD_NO_PAD.decode(pair).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_known_by_their_form() {
        let ours = format!("lyc_{}", "Aa0_-".repeat(9));
        for text in [
            format!("Bearer {ours}"),
            format!("token {ours}"),
            ours.clone(),
            format!("x{ours}.y"),
            "Basic YWxpY2U6bHljX0FhMF8tQWEwXy1BYTBfLUFhMF8tQWEwXy1BYTBfLUFhMF8tQWEwXy1BYTBfLQ==".to_owned(),
        ] {
            assert!(holds_token(text.as_bytes()), "{text}");
        }
        for text in [
            "",
            "lyc",
            "lyc_",
            "Bearer lyc_short",
            "Basic YTpi",
            "Basic",
            "basic !",
            "Bearer eyJhbGciOi.x.y",
            "Lyc_0123456789abcdef0",
        ] {
            assert!(!holds_token(text.as_bytes()), "{text}");
        }
    }
}
