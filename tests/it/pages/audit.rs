//! The page of the audit log, filled: what people did, a stranger's attempt, the command line.

use lyceum::web::{page::Nav, views::*};

use super::gallery::{NOW, Word, layout};

pub fn audit(word: &Word) -> AuditPage {
    let line = |number: i64, actor: &str, action: &str, subject: &str, detail: &str, address: &str| AuditLine {
        number,
        at: Moment::clock(NOW.plus_seconds((number - 4715) * 3700), NOW),
        actor: word(actor),
        action: word(action),
        subject: word(subject),
        subject_href: action
            .starts_with("session.")
            .then(|| "/sessions/0199a0b2-0000-7000-8000-000000000001".to_owned()),
        detail: word(detail),
        address: word(address),
        request_id: word("0199a0b2-7c1e-7000-8000-00003f2a9b1c"),
    };
    let session = "0199a0b2-0000-7000-8000-000000000001";
    AuditPage {
        layout: layout(word).at(Nav::Administration),
        asked: AuditFilter { actor: word("alice"), from: "2026-11-01".to_owned(), ..AuditFilter::default() },
        errors: Vec::new(),
        lines: vec![
            line(4711, "chief", "session.admin_stop", session, "alice", "192.0.2.7"),
            line(4710, "alice", "session.start", session, "jupyter", "2001:db8:12:3400:5678:9abc:def0:1234"),
            line(
                4709,
                "unix:root",
                "quota.change",
                "alice",
                "gpus=4, was 1; memory_bytes=206158430208 until 2026-12-01T00:00:00Z (thesis), was inherit",
                "",
            ),
            line(4708, "(unknown name)", "sign_in.failed", "(unknown name)", "unknown account", "192.0.2.99"),
            line(
                4707,
                "alice",
                "token.make",
                "0199a0b2-0000-7000-8000-00000000000a",
                "of alice: nightly-training (sessions read) until 2026-12-21T14:30:00Z",
                "192.0.2.7",
            ),
        ],
        csv_href: "/admin/audit/table?actor=alice".to_owned(),
        next_href: Some("/admin/audit?actor=alice&cursor=x".to_owned()),
    }
}

/// With a filter that is none.
pub fn audit_wrong(word: &Word) -> AuditPage {
    let message = "Enter a date, as in 2030-01-31.".to_owned();
    AuditPage {
        asked: AuditFilter { from: word("yesterday"), ..AuditFilter::default() },
        errors: vec![FieldError { field: "from".to_owned(), message }],
        lines: Vec::new(),
        next_href: None,
        ..audit(word)
    }
}
