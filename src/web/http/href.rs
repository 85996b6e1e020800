//! Addresses of our own pages: a path, and behind its `?` what somebody chose. A value that is
//! empty is the usual one and is left out, so that addresses stay short and the same view has one.

use std::borrow::Borrow;

use url::form_urlencoded::Serializer;

/// An address with what is not empty of these names and values. `path` may have a query already.
pub fn href<'a, I>(path: &str, words: I) -> String
where
    I: IntoIterator<Item: Borrow<(&'a str, &'a str)>>,
{
    let mut query = Serializer::new(String::new());
    for word in words {
        let (name, value) = *word.borrow();
        if !value.is_empty() {
            query.append_pair(name, value);
        }
    }
    let query = query.finish();
    let sign = if path.contains('?') { '&' } else { '?' };
    if query.is_empty() { path.to_owned() } else { format!("{path}{sign}{query}") }
}

#[cfg(test)]
mod tests {
    use super::href;

    #[test]
    fn what_is_empty_is_left_out_and_the_rest_is_escaped() {
        assert_eq!(href("/jobs", [("find", ""), ("cursor", "")]), "/jobs");
        assert_eq!(href("/jobs", &[("find", "a&b=c d"), ("tag", "")]), "/jobs?find=a%26b%3Dc+d");
        assert_eq!(href("/files?path=x", [("sort", "size")]), "/files?path=x&sort=size");
    }
}
