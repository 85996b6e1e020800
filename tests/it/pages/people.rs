//! The pages of people and groups, filled: a list in the middle of a search, a refused form,
//! somebody of the directory, a group that was made here, and what a manager sees.

use lyceum::{
    model::{Role, Session, user::State},
    web::{
        page::{Layout, Nav, Viewer},
        views::*,
    },
};

use super::{
    gallery::{NOW, Word, context, layout, more, settings},
    sessions::*,
};

fn ago(seconds: i64) -> Moment {
    Moment::ago(NOW.plus_seconds(-seconds), NOW)
}

fn row(word: &Word, name: &str, display_name: &str, role: Role, groups: &[&str]) -> UserRow {
    UserRow {
        name: name.to_owned(),
        display_name: word(display_name),
        source: source_word("local"),
        role: role_word(role),
        is_directorys_role: false,
        state: State::Active.into(),
        expires: None,
        seen: Some(ago(240)),
        groups: groups.iter().map(|group| word(group)).collect(),
        more_groups: 0,
        sessions: 0,
    }
}

pub fn users(word: &Word) -> UsersPage {
    let directory = source_word("ldap");
    let column = |label, sorted| Column { label, href: "/admin/users?sort=-name".to_owned(), sorted };
    let expires = Some(Moment::clock(NOW.plus_seconds(86_400), NOW));
    UsersPage {
        layout: Layout { expires, ..layout(word).at(Nav::Administration) },
        notice: Some(word("Account removed.")),
        errors: Vec::new(),
        search: UserSearch { find: word("a"), role: "admin".to_owned(), ..UserSearch::default() },
        columns: vec![column("Name", Some("ascending")), column("Last seen", None)],
        rows: vec![
            UserRow {
                expires: Some(Moment::clock(NOW.plus_seconds(86_400), NOW)),
                sessions: 2,
                ..row(word, "admin", "Administrator", Role::Admin, &[])
            },
            UserRow {
                source: directory,
                is_directorys_role: true,
                sessions: 12,
                more_groups: 4,
                ..row(word, "alice", "Alice Åström", Role::Admin, &["admins", "vision", "speech"])
            },
            UserRow {
                source: directory,
                state: State::Absent.into(),
                seen: Some(ago(90 * 86_400)),
                ..row(word, "dmitri.ivanov", "Dmitri Ivanov", Role::User, &["students-2030"])
            },
            UserRow {
                state: State::Disabled.into(),
                seen: None,
                ..row(word, "a_name_of_thirty-two.characters_", "", Role::Operator, &[])
            },
        ],
        total: 10_241,
        first_href: Some("/admin/users".to_owned()),
        next_href: Some("/admin/users?cursor=bmFtZSBhZG1pbg".to_owned()),
        may_change: true,
        form: NewUserForm::default(),
    }
}

/// Nobody found, and a form that was refused.
pub fn users_wrong(word: &Word) -> UsersPage {
    let error = |field: &str, message: &str| FieldError { field: field.to_owned(), message: word(message) };
    UsersPage {
        notice: None,
        errors: vec![
            error("name", "A name must have 1 to 32 characters."),
            error("display_name", "One line of at most 128 characters."),
            error("password", "Enter at least 10 characters."),
            error("role", "Select a value from the list."),
        ],
        form: NewUserForm { name: word("No Name"), display_name: word("x"), role: word("operator"), is_service: true },
        rows: Vec::new(),
        first_href: None,
        next_href: None,
        ..users(word)
    }
}

/// A table that was read, with what it changes.
pub fn import(word: &Word) -> ImportPage {
    let row = |what, name: &str, group: Option<&str>, detail: &str| ImportRow {
        what,
        name: word(name),
        group: group.map(word),
        detail: word(detail),
    };
    ImportPage {
        layout: layout(word).at(Nav::Administration),
        table: format!("name,display_name,e-mail\nada,{},x", word("Ada Lovelace")),
        has_outside_accounts: true,
        faults: Vec::new(),
        more_faults: 0,
        ignored: vec![word("e-mail"), word("phone")],
        plan: Some(ImportPlan {
            version: "0f".to_owned(),
            counts: vec!["12 new users".to_owned(), "1 changed user".to_owned(), "1 new group".to_owned()],
            rows: vec![
                row("New user", "ada", None, "role=user; display_name=Ada Lovelace"),
                row("Change", "bob", None, "role=operator, was user; expires_at=2030-01-31T00:00:00Z, was never"),
                row("New group", "vision", None, ""),
                row("New member", "ada", Some("vision"), ""),
            ],
            more: 300,
        }),
        is_stale: true,
        done: None,
    }
}

/// A table with faults.
pub fn import_wrong(word: &Word) -> ImportPage {
    let fault = |line: &str, column: &str, message: &str| ImportFault {
        line: line.to_owned(),
        column: column.to_owned(),
        message: word(message),
    };
    ImportPage {
        faults: vec![fault("3", "role", "A role is user, operator or admin."), fault("7", "", "Two few fields.")],
        more_faults: 12,
        ignored: Vec::new(),
        plan: None,
        is_stale: false,
        ..import(word)
    }
}

pub fn imported(word: &Word) -> ImportPage {
    let link = |name: &str| ImportLink {
        name: name.to_owned(),
        url: format!("https://portal.example.org/welcome#{}", "x".repeat(43)),
    };
    let ImportPage { plan, .. } = import(word);
    ImportPage {
        table: String::new(),
        ignored: Vec::new(),
        plan: None,
        is_stale: false,
        done: plan.map(|plan| (plan, vec![link("ada"), link("a_name_of_thirty-two.characters_")])),
        ..import(word)
    }
}

pub fn user(word: &Word) -> UserPage {
    let context = CardContext {
        around: SentenceContext { is_own: false, ..context(word).around },
        extend_seconds: None,
        ..context(word)
    };
    let cards = |sessions: Vec<Session>| sessions.iter().map(|session| Card::new(session, &context)).collect();
    let belonging = |name: &str, source, is_member, is_manager| BelongingRow {
        id: "0199a0b2-0000-7000-8000-000000000002".to_owned(),
        name: word(name),
        source: source_word(source),
        is_member,
        is_manager,
    };
    UserPage {
        layout: layout(word).at(Nav::Administration),
        notice: Some(word("Role changed. The change applies immediately.")),
        error: None,
        name: "carol".to_owned(),
        display_name: word("Carol Doe (R&D)"),
        source: "local".to_owned(),
        state: State::Active,
        role: Role::Operator,
        given_role: Role::Operator,
        is_oneself: false,
        may_change: true,
        is_unused: false,
        expiry: Some(("2030-01-31 12:00".to_owned(), Moment::clock(NOW.plus_seconds(86_400), NOW))),
        is_expired: false,
        facts: vec![("Unix account", word("carol7"))],
        moments: vec![("Created", Moment::clock(NOW.plus_seconds(-90 * 86_400), NOW)), ("Last seen", ago(240))],
        groups: vec![belonging("vision", "local", true, true), belonging("gpu-users", "ldap", true, false)],
        more_groups: more("/admin/users/carol", "groups", 300),
        tokens: settings(word).tokens,
        more_tokens: more("/admin/users/carol", "tokens", 1000),
        new_token: None,
        password_link: Some(PasswordLink {
            url: format!("https://portal.example.org/welcome#{}", "x".repeat(43)),
            expires: Moment::clock(NOW.plus_seconds(3 * 86_400), NOW),
        }),
        token_form: None,
        logins: 2,
        live: cards(vec![running(word), queued(word)]),
        more_live: more("/admin/users/carol", "sessions", 90),
        ended: cards(vec![out_of_memory(word)]),
    }
}

/// An administrator by a group of the directory, closed here, who never had anything.
pub fn user_directory(word: &Word) -> UserPage {
    UserPage {
        notice: None,
        error: Some(word("This is the last administrator who can sign in; make another user an administrator first.")),
        source: "ldap".to_owned(),
        state: State::Expired,
        expiry: Some(("2020-01-31 12:00".to_owned(), ago(3600))),
        is_expired: true,
        role: Role::Admin,
        given_role: Role::User,
        facts: vec![("Unix uid (from the directory)", word("20001"))],
        groups: Vec::new(),
        more_groups: More::default(),
        tokens: Vec::new(),
        more_tokens: More::default(),
        logins: 0,
        live: Vec::new(),
        more_live: More::default(),
        ended: Vec::new(),
        password_link: None,
        ..user(word)
    }
}

/// The account of a program, with a token just made and a form that was refused.
pub fn user_service(word: &Word) -> UserPage {
    let error = |field: &str, message: &str| FieldError { field: field.to_owned(), message: word(message) };
    UserPage {
        notice: None,
        name: "svc-ci".to_owned(),
        display_name: word("Nightly builds"),
        source: "service".to_owned(),
        role: Role::User,
        given_role: Role::User,
        new_token: settings(word).new_token.or_else(|| {
            Some(NewToken { name: word("nightly"), secret: "lyc_0123456789abcdef0123456789abcdef".to_owned() })
        }),
        token_form: Some(TokenForm {
            name: word("nightly"),
            scopes: settings(word).scopes,
            errors: vec![
                error("token_name", "A name must have 1 to 64 characters."),
                error("expires", "Select a value from the list."),
                error("scopes", "Unknown scope."),
            ],
        }),
        logins: 0,
        password_link: None,
        ..user(word)
    }
}

pub fn groups(word: &Word) -> GroupsPage {
    let row = |name: &str, source, members, managers: &[&str]| GroupRow {
        id: "0199a0b2-0000-7000-8000-000000000002".to_owned(),
        name: word(name),
        source: source_word(source),
        members,
        managers: managers.iter().map(|name| word(name)).collect(),
    };
    GroupsPage {
        layout: layout(word).at(Nav::Administration),
        notice: None,
        errors: vec![FieldError { field: "name".to_owned(), message: word("There is a group vision already.") }],
        find: String::new(),
        rows: vec![
            row("gpu-users", "ldap", 812, &[]),
            row("students-2030", "ldap", 9431, &["dmitri.ivanov"]),
            row("vision", "local", 14, &["alice", "carol"]),
        ],
        first_href: None,
        next_href: Some("/admin/groups?cursor=eA".to_owned()),
        may_change: true,
        new_name: word("vision"),
    }
}

pub fn invitation(word: &Word, group: &str, by: &str) -> InvitationRow {
    InvitationRow {
        group: "0199a0b2-0000-7000-8000-000000000002".to_owned(),
        group_name: word(group),
        name: "dora".to_owned(),
        invited_by: word(by),
        invited: ago(7200),
        expires: Moment::clock(NOW.plus_seconds(12 * 86_400), NOW),
    }
}

pub fn group(word: &Word) -> GroupPage {
    let member = |name: &str, display_name: &str, state: State, sessions| MemberRow {
        name: name.to_owned(),
        display_name: word(display_name),
        state: state.into(),
        seen: (sessions != 0).then(|| ago(600)),
        sessions: Some(sessions),
    };
    let session = |owner: &str, app: &str, session: &Session| {
        let (class, word_) = session_badge(session);
        GroupSessionRow {
            id: session.id.to_string(),
            owner: owner.to_owned(),
            app: word(app),
            class,
            word: word_,
            resources: resources_line(&session.spec.resources, &session.gpus),
            since: ago(3600),
        }
    };
    GroupPage {
        layout: layout(word).at(Nav::Administration),
        notice: Some(word("Member added.")),
        error: None,
        id: "0199a0b2-0000-7000-8000-000000000002".to_owned(),
        name: word("vision"),
        source: source_word("local"),
        subject: None,
        gone: None,
        member_count: 3,
        members: vec![
            member("alice", "Alice Åström", State::Active, 2),
            member("bob", "", State::Disabled, 0),
            member("carol", "Carol Doe (R&D)", State::Active, 1),
        ],
        first_href: None,
        next_href: None,
        managers: vec!["alice".to_owned(), "carol".to_owned()],
        invitations: vec![invitation(word, "vision", "alice")],
        may_change: true,
        may_change_members: true,
        sees_people: true,
        typed: String::new(),
        uses: vec!["3 sessions".to_owned(), "4 GPUs".to_owned(), "36 cores".to_owned(), "192 GiB".to_owned()],
        sessions: vec![session("alice", "JupyterLab", &running(word)), session("carol", "Terminal", &queued(word))],
    }
}

/// A group of the directory, as its manager sees it.
pub fn group_directory(word: &Word) -> GroupPage {
    let page = group(word);
    let viewer = Viewer {
        name: "dmitri.ivanov".to_owned(),
        display_name: word("Dmitri Ivanov"),
        role: Role::User,
        manages_groups: true,
    };
    GroupPage {
        layout: Layout { viewer: Some(viewer), ..layout(word).at(Nav::Administration) },
        notice: None,
        error: Some(word("The group `students-2030` belongs to the directory; change it there.")),
        source: source_word("ldap"),
        subject: Some(word("cn=students-2030,ou=groups,dc=example,dc=org")),
        gone: Some(ago(86_400)),
        member_count: 9431,
        next_href: Some("/admin/groups/0199a0b2?cursor=eA".to_owned()),
        managers: vec!["dmitri.ivanov".to_owned()],
        may_change: false,
        may_change_members: false,
        sees_people: false,
        uses: Vec::new(),
        sessions: Vec::new(),
        ..page
    }
}
