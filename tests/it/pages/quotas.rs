//! The pages of quotas, filled: the table in the middle of a search, one person's limits, a form
//! that somebody else was quicker with, a group as administrators and as its manager see it,
//! some people at once, and what a change would mean.

use lyceum::{
    model::{
        Role,
        quota::{Field, Kind},
        size::GIB,
    },
    scheduler::slurm::Quotas,
    web::{
        WebConfig,
        page::{Layout, Nav, Viewer},
        views::*,
    },
};

use super::{
    gallery::{NOW, Word, context, layout},
    sessions::*,
};

fn ago(seconds: i64) -> Moment {
    Moment::ago(NOW.plus_seconds(-seconds), NOW)
}

fn meter(field: &'static str, label: &str, used: i64, limit: Option<i64>) -> Meter {
    let unit = if field == "memory_bytes" { Unit::Bytes } else { Unit::Count };
    Meter { field, label: label.to_owned(), used, limit, unit, ..Meter::default() }
}

fn from(word: &Word, words: &str) -> Source {
    Source { words: word(words), until: None }
}

fn until(words: &str) -> Source {
    Source { words: words.to_owned(), until: Some(Moment::clock(NOW.plus_seconds(9 * 86_400), NOW)) }
}

fn row(word: &Word, (name, display_name): (&str, &str), groups: &[&str], used: [i64; 5]) -> QuotaRow {
    let [gpus, cpus, gib, sessions, hours] = used;
    QuotaRow {
        name: name.to_owned(),
        display_name: word(display_name),
        groups: groups.iter().map(|group| word(group)).collect(),
        more_groups: 0,
        meters: vec![
            meter("gpus", "GPUs", gpus, Some(4)),
            meter("cpus", "cores", cpus, Some(32)),
            meter("memory_bytes", "memory", gib * GIB, Some(256 * GIB)),
            meter("sessions", "sessions", sessions, Some(4)),
            meter("gpu_hours", "GPU-hours", hours, Some(200)),
        ],
        sources: vec![from(word, "group vision")],
        seen: Some(ago(240)),
    }
}

pub fn table(word: &Word) -> QuotasPage {
    let column = |label, sorted| Column { label, href: "/admin/quotas?sort=gpus".to_owned(), sorted };
    let mut nothing = row(word, ("a_name_of_thirty-two.characters_", ""), &[], [0; 5]);
    nothing.meters[4].limit = None;
    QuotasPage {
        layout: layout(word).at(Nav::Administration),
        notice: Some("Saved for all selected users. The new limits apply from now on. Nothing was stopped.".to_owned()),
        strip: QuotaStrip {
            gpus: meter("gpus", "GPUs allocated", 12, Some(16)),
            idle: 3,
            down: 1,
            waiting: 5,
            oldest_wait: Some(Moment { at: NOW.plus_seconds(-840), show: Show::Since, now: NOW }),
        },
        search: QuotaSearch { find: word("a"), ..QuotaSearch::default() },
        columns: QuotaColumns {
            person: column("User", Some("ascending")),
            gpus: column("GPUs", None),
            hours: column("GPU-hours", None),
            seen: column("Last seen", None),
        },
        period: "30 d".to_owned(),
        rows: vec![
            row(word, ("alice", "Alice Åström"), &["vision"], [3, 26, 192, 2, 182]),
            row(word, ("bob", "Bob Builder"), &["vision", "speech"], [0, 0, 0, 0, 12]),
            QuotaRow {
                more_groups: 4,
                sources: vec![until("override until"), from(word, "group speech")],
                ..row(word, ("carol", "Carol Doe (R&D)"), &["speech", "vision", "admins"], [4, 32, 256, 4, 611])
            },
            QuotaRow { sources: vec![from(word, "default")], seen: None, ..nothing },
        ],
        total: 10_241,
        csv_href: "/admin/quotas/table?find=a".to_owned(),
        first_href: Some("/admin/quotas".to_owned()),
        next_href: Some("/admin/quotas?cursor=bmFtZSBhZG1pbg".to_owned()),
        may_change: true,
    }
}

/// Nobody found, as an operator sees it.
pub fn nobody(word: &Word) -> QuotasPage {
    QuotasPage { rows: Vec::new(), notice: None, may_change: false, first_href: None, next_href: None, ..table(word) }
}

fn limit(word: &Word, kind: Kind, field: &Field, holds: &str) -> LimitBox {
    let (label, hint) = field_words(field, kind);
    LimitBox {
        name: format!("{}.{}", kind.as_str(), field.name()),
        label: if matches!(field, Field::GpusOf(_)) { word(&label) } else { label },
        hint,
        meter: None,
        effective: Some((holds.to_owned(), Some(from(word, "default")))),
        otherwise: None,
        typed: EnteredAmount::default(),
        was: "inherit".to_owned(),
        set_by: None,
        theirs: None,
        may_change: true,
        errors: Vec::new(),
        can_stay: false,
        is_slurms: false,
    }
}

fn set(word: &Word, limit: LimitBox, value: &str, note: &str) -> LimitBox {
    let typed = EnteredAmount {
        choice: Choice::Value,
        value: word(value),
        until: "2026-12-01T00:00".to_owned(),
        note: word(note),
    };
    LimitBox { typed, was: word("4||"), set_by: Some((word("root-admin"), ago(7200))), ..limit }
}

fn section(title: &'static str, shows_use: bool, rows: Vec<LimitBox>) -> LimitSection {
    let holds = if title.is_empty() { "Effective" } else { "If inherited" };
    LimitSection { title, hint: "The limits of each member of the group.", holds, shows_use, rows }
}

/// Somebody with an override, sessions and a refusal.
pub fn user(word: &Word) -> LimitsPage {
    let each = |field: Field, holds: &str| limit(word, Kind::Each, &field, holds);
    let gpus = LimitBox {
        meter: Some(meter("gpus", "GPUs", 8, Some(8))),
        effective: Some(("8".to_owned(), Some(until("override until")))),
        otherwise: Some(word("otherwise 4 from group vision")),
        ..set(word, each(Field::Gpus, "8"), "8", "ICASSP deadline")
    };
    let rows = vec![
        gpus,
        LimitBox {
            meter: Some(meter("gpus", "A100", 3, None)),
            ..each(Field::GpusOf("NVIDIA A100-SXM4-80GB".to_owned()), "unlimited")
        },
        LimitBox { meter: Some(meter("cpus", "cores", 26, Some(32))), ..each(Field::Cpus, "32") },
        LimitBox {
            meter: Some(meter("memory_bytes", "memory", 192 * GIB, Some(256 * GIB))),
            ..each(Field::MemoryBytes, "256 GiB")
        },
        LimitBox { meter: Some(meter("gpu_hours", "GPU-hours", 182, Some(200))), ..each(Field::GpuHours, "200") },
        each(Field::MaxSessionSeconds, "8 h"),
        each(Field::IdleTimeoutSeconds, "2 h"),
    ];
    LimitsPage {
        layout: layout(word).at(Nav::Administration),
        tab: "people",
        head: LimitsHead {
            title: word("Carol Doe (R&D)"),
            crumb: Some(("/admin/quotas".to_owned(), "Users".to_owned())),
            chips: vec!["carol".to_owned(), word("speech"), word("vision")],
            lead: "Until it ends, an override replaces the limits of groups and the default.".to_owned(),
            more: Some(("/admin/users/carol".to_owned(), "Account".to_owned())),
        },
        notice: Some("Saved. The new limits apply from now on. Nothing was stopped.".to_owned()),
        alert: None,
        stale: None,
        action: "/admin/quotas/users/carol".to_owned(),
        version: "0a1b2c3d4e5f6071".to_owned(),
        slurm: None,
        sections: vec![section("", true, rows)],
        marks: None,
        may_change: true,
        people: Vec::new(),
        person: Some(PersonPanel {
            cards: vec![Card::new(&running(word), &context(word)), Card::new(&queued(word), &context(word))],
            refusals: vec![
                Refusal {
                    href: None,
                    name: word("vit-large"),
                    asked: "9 GPUs · 8 cores · 64 GiB for 4 h".to_owned(),
                    at: ago(3600),
                    why: vec![word("This asks for 9 GPUs; your limit is 8 GPUs (override). Ask for at most 8 GPUs.")],
                },
                Refusal {
                    href: Some("/sessions/0199a0b2-0000-7000-8000-000000000009".to_owned()),
                    name: word("resnet-sweep"),
                    asked: "6 GPUs · 8 cores · 64 GiB for 4 h".to_owned(),
                    at: ago(86_400),
                    why: vec![
                        word("This asks for 6 GPUs; your limit is 4 GPUs (override). Ask for at most 4 GPUs."),
                        word("This asks for 64 GiB; your limit is 32 GiB (default). Ask for at most 32 GiB."),
                    ],
                },
            ],
        }),
    }
}

/// Somebody else was quicker, and something is wrong as well.
pub fn stale(word: &Word) -> LimitsPage {
    let mut page = user(word);
    let rows = &mut page.sections[0].rows;
    rows[0].theirs = Some(word("6 until 2026-12-24 00:00 UTC (“thesis”)"));
    rows[2] = LimitBox {
        typed: EnteredAmount { choice: Choice::Value, value: word("1e9"), until: "soon".to_owned(), note: word("x") },
        errors: vec![
            ("value", word("Write a whole number in full, such as 4 or 1000: no fractions, no powers.")),
            ("until", "This must be in the future.".to_owned()),
            ("note", "One line without control characters.".to_owned()),
        ],
        ..rows[2].clone()
    };
    rows[3].typed.choice = Choice::Unlimited;
    LimitsPage {
        notice: None,
        stale: Some(vec![word("mia: GPUs at once: 5, by chief 2 min ago")]),
        alert: Some(word("3 values are invalid. Nothing was saved.")),
        person: None,
        ..page
    }
}

pub fn group(word: &Word) -> LimitsPage {
    let totals = vec![
        LimitBox {
            meter: Some(meter("gpus", "GPUs", 12, Some(16))),
            effective: Some(("unlimited".to_owned(), None)),
            ..set(word, limit(word, Kind::Total, &Field::Gpus, "unlimited"), "16", "")
        },
        LimitBox {
            effective: Some(("unlimited".to_owned(), None)),
            ..limit(word, Kind::Total, &Field::Cpus, "unlimited")
        },
    ];
    let each = [Field::Gpus, Field::Cpus, Field::GpuHours]
        .map(|field| LimitBox { effective: None, ..limit(word, Kind::Each, &field, "") });
    LimitsPage {
        tab: "groups",
        head: LimitsHead {
            title: word("vision"),
            crumb: Some(("/admin/quotas/groups".to_owned(), "Groups".to_owned())),
            more: Some(("/admin/groups/0199a0b2".to_owned(), "Members".to_owned())),
            ..LimitsHead::default()
        },
        action: "/admin/quotas/groups/0199a0b2-0000-7000-8000-000000000002".to_owned(),
        sections: vec![section("Together", true, totals), section("Each member", false, each.into())],
        marks: Some(MarkBoxes { chargeable: true, restrictive: false, was: (true, false), may_change: true }),
        person: None,
        notice: None,
        ..user(word)
    }
}

pub fn of_manager(word: &Word) -> LimitsPage {
    let mut page = group(word);
    page.layout = managers(word);
    page.marks = page.marks.map(|marks| MarkBoxes { may_change: false, ..marks });
    for row in page.sections.iter_mut().flat_map(|section| &mut section.rows) {
        row.may_change = row.name == "each.gpus";
    }
    page
}

/// Somebody whose limits Slurm keeps.
pub fn in_slurm(word: &Word) -> LimitsPage {
    let mut page = user(word);
    let read = WebConfig { quotas: Quotas::Read, ..WebConfig::default() };
    page.layout.note_on_quotas = read.note_on_quotas();
    page.head.lead.clear();
    page.notice = None;
    page.may_change = false;
    for row in page.sections.iter_mut().flat_map(|section| &mut section.rows) {
        row.is_slurms = !["each.gpu_hours", "each.idle_timeout_seconds"].contains(&row.name.as_str());
        if row.is_slurms {
            row.otherwise = None;
            row.set_by = None;
            let limit = row.effective.take().map(|(limit, _)| limit).unwrap_or_default();
            row.effective = Some((limit, Some(from(word, "Slurm: account lab"))));
        }
    }
    page.slurm = Some(SlurmPanel {
        lines: vec![
            word("One session or job can have at most 2 GPUs (Slurm: account lab, one job)."),
            word(
                "Slurm also limits 6000 minutes of gres/gpu (GrpTRESMins). It counts them itself, not in the portal’s \
                 period, and holds jobs in its own queue.",
            ),
        ],
        commands: vec![
            "sacctmgr modify user where name=carol account=lab set GrpTRES=gres/gpu=8,cpu=32,mem=262144M".to_owned(),
            "sacctmgr modify qos where name=gpu set MaxTRESPerUser=gres/gpu=4,cpu=-1,mem=-1".to_owned(),
        ],
    });
    page
}

fn managers(word: &Word) -> Layout {
    let viewer = Viewer {
        name: "dmitri.ivanov".to_owned(),
        display_name: word("Dmitri Ivanov"),
        role: Role::User,
        manages_groups: true,
    };
    let mirrored = WebConfig { quotas: Quotas::Mirror, ..WebConfig::default() };
    let note_on_quotas = mirrored.note_on_quotas();
    Layout { viewer: Some(viewer), note_on_quotas, ..layout(word).at(Nav::Administration) }
}

/// Some people at once.
pub fn selection(word: &Word) -> LimitsPage {
    let rows = [Field::Gpus, Field::Cpus, Field::MemoryBytes].map(|field| LimitBox {
        effective: Some(("for 2 of them".to_owned(), None)),
        typed: EnteredAmount { choice: Choice::Stay, ..EnteredAmount::default() },
        can_stay: true,
        ..limit(word, Kind::Each, &field, "")
    });
    LimitsPage {
        head: LimitsHead {
            title: "Limits of 3 users".to_owned(),
            crumb: Some(("/admin/quotas".to_owned(), "Users".to_owned())),
            lead: "The values that you choose are set for each of these users. Other fields keep their values."
                .to_owned(),
            ..LimitsHead::default()
        },
        action: "/admin/quotas/selection".to_owned(),
        sections: vec![LimitSection { holds: "Currently set", ..section("", false, rows.into()) }],
        people: ["alice", "bob", "carol"].map(str::to_owned).into(),
        person: None,
        notice: None,
        alert: Some("Change at least one field.".to_owned()),
        ..user(word)
    }
}

pub fn preview(word: &Word) -> LimitsPreview {
    let line = |label: &str, before: &str, after: &str| ChangeLine {
        label: label.to_owned(),
        before: word(before),
        after: word(after),
    };
    let over = |user: Option<&str>, used: &str, limit: &str| OverLine {
        user: user.map(str::to_owned),
        used: used.to_owned(),
        verb: "in use",
        limit: limit.to_owned(),
        source: from(word, "group vision"),
    };
    LimitsPreview {
        layout: layout(word).at(Nav::Administration),
        tab: "groups",
        title: word("vision"),
        action: "/admin/quotas/groups/0199a0b2".to_owned(),
        hidden: vec![("each.gpus.note".to_owned(), word("a paper"))],
        lines: vec![
            line("Each member: GPUs at once", "inherit", "2 until 2026-12-01 00:00 UTC (“a paper”)"),
            line("Together: GPUs at once", "16", "8"),
            line("Restricts its members", "no", "yes"),
        ],
        people: Vec::new(),
        over: vec![
            over(Some("alice"), "3 GPUs", "2 GPUs"),
            over(Some("carol"), "8 GPUs", "2 GPUs"),
            over(None, "12 GPUs", "8 GPUs"),
        ],
        people_over: 2,
        more_over: 150,
        refused: vec![RefusedLine {
            user: "bob".to_owned(),
            name: word("resnet"),
            why: word("This asks for 4 GPUs; your limit is 2 GPUs (default). Ask for at most 2 GPUs."),
        }],
        more_refused: 3,
    }
}

pub fn groups(word: &Word) -> QuotaGroupsPage {
    let row = |name: &str, each: &[&str], meters: Vec<Meter>| QuotaGroupRow {
        id: "0199a0b2-0000-7000-8000-000000000002".to_owned(),
        name: word(name),
        members: 12,
        chargeable: !meters.is_empty(),
        restrictive: meters.is_empty(),
        gone: (name == "guests").then(|| ago(86_400)),
        each: each.iter().map(|each| (*each).to_owned()).collect(),
        meters,
    };
    QuotaGroupsPage {
        layout: layout(word).at(Nav::Administration),
        find: String::new(),
        rows: vec![
            row(
                "vision",
                &["GPUs at once: 4", "Cores at once: 32"],
                vec![meter("gpus", "GPUs", 12, Some(16)), meter("memory_bytes", "memory", 512 * GIB, Some(1024 * GIB))],
            ),
            row("students-2030", &["GPUs at once: 1"], Vec::new()),
            row("guests", &[], Vec::new()),
        ],
        first_href: None,
        next_href: Some("/admin/quotas/groups?cursor=eA".to_owned()),
    }
}
