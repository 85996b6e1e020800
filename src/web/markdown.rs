//! What people write as Markdown, as markup that can harm nobody: tags that they type are text,
//! links lead to the web or nowhere, and nothing is fetched from elsewhere when a page is opened.

use std::fmt;

use askama::filters::HtmlSafe;
use pulldown_cmark::{Alignment, Event, LinkType, Options, Parser, Tag, TagEnd, html::push_html};

/// A text that its template may draw as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Markdown(String);

impl Markdown {
    #[must_use]
    pub fn new(text: &str) -> Self {
        let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
        let mut html = String::new();
        push_html(&mut html, Parser::new_ext(text, options).map(harmless));
        Self(html)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Markdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Its markup is made here, of what the parser escapes.
impl HtmlSafe for Markdown {}

fn harmless(event: Event<'_>) -> Event<'_> {
    match event {
        Event::Html(text) | Event::InlineHtml(text) => Event::Text(text),
        Event::Start(Tag::Link { link_type, dest_url, id, .. }) => {
            let dest_url = if leads_to_the_web(&dest_url, link_type) { dest_url } else { "#".into() };
            Event::Start(Tag::Link { link_type, dest_url, title: "".into(), id })
        }
        // Alignment would be written as a style, which the content policy forbids.
        Event::Start(Tag::Table(columns)) => Event::Start(Tag::Table(vec![Alignment::None; columns.len()])),
        // A picture would tell its server who opens the page, and when: its words stay.
        Event::Start(Tag::Image { .. }) => Event::Start(Tag::Emphasis),
        Event::End(TagEnd::Image) => Event::End(TagEnd::Emphasis),
        // The page has headings of its own above these.
        Event::Start(Tag::Heading { .. }) => Event::Start(Tag::Paragraph),
        Event::End(TagEnd::Heading(_)) => Event::End(TagEnd::Paragraph),
        other => other,
    }
}

fn leads_to_the_web(address: &str, kind: LinkType) -> bool {
    let address = address.to_ascii_lowercase();
    kind == LinkType::Email || ["https://", "http://", "mailto:"].iter().any(|start| address.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_markup() {
        for (text, html) in [
            ("**best** of `3`", "<p><strong>best</strong> of <code>3</code></p>\n"),
            ("- a\n- b", "<ul>\n<li>a</li>\n<li>b</li>\n</ul>\n"),
            ("[x](https://a.example/?q=\"1)", "<p><a href=\"https://a.example/?q=%221\">x</a></p>\n"),
            (
                "|a|\n|-:|\n|1|",
                "<table><thead><tr><th>a</th></tr></thead><tbody>\n<tr><td>1</td></tr>\n</tbody></table>\n",
            ),
            ("", ""),
        ] {
            assert_eq!(Markdown::new(text).to_string(), html);
        }
    }

    #[test]
    fn nothing_in_it_does_anything() {
        for text in [
            "<script>alert(1)</script>",
            "a <img src=x onerror=alert(1)> b",
            "<b onmouseover=alert(1)>x",
            "[x](javascript:alert(1))",
            "[x](JaVaScRiPt:alert(1))",
            "[x](data:text/html,<script>alert(1)</script>)",
            "[x]\n\n[x]: vbscript:alert(1)",
            "<javascript:alert(1)>",
            "![x](https://tracker.example/p.png)",
            "[x](/logout \"\\\" onclick=alert(1) \")",
            "# <svg onload=alert(1)>",
            "```\"><script>alert(1)</script>\nx\n```",
            "| <iframe src=x> |\n|---|\n",
        ] {
            let html = Markdown::new(text).to_string();
            let lower = html.to_lowercase();
            for bad in ["<script", "<img", "<svg", "<iframe", "<b ", "\"javascript", "\"data:", "\"vbscript", "tracker"]
            {
                assert!(!lower.contains(bad), "{text} became {html}");
            }
            let tags = lower.split('<').filter_map(|tag| tag.split_once('>')).map(|(tag, _)| tag);
            assert!(tags.into_iter().all(|tag| !tag.contains(" on") && !tag.contains("style")), "{html}");
        }
    }
}
