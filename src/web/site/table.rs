//! Users as a CSV file, as spreadsheets and student registers write it: one user a line, with the groups that they are
//! in. It is read into the same declaration as a site's file, and so planned, judged and applied by the same rules. An
//! empty cell leaves its value as it is. Pure.

use std::collections::BTreeMap;

use csv::{ReaderBuilder, StringRecord, Trim};

use crate::{
    model::{
        FieldError, Role, Timestamp,
        time::parse_day_or_moment,
        user::{ExpiryChange, canonical_name},
    },
    site::{
        Declared,
        declared::{SiteGroup, SiteUser},
    },
};

/// A table of users, as far as it could be read.
#[derive(Clone, Debug, Default)]
pub(super) struct UserTable {
    /// The place of a user is `lines.3`, that of a group the first line which names it: `lines.3.groups`.
    pub declared: Declared,
    pub faults: Vec<FieldError>,
    /// The columns that are not imported, by their headings.
    pub ignored: Vec<String>,
}

/// The columns that are read, each with its name.
const COLUMNS: [&str; 8] = ["name", "display_name", "role", "groups", "manages", "expires_at", "disabled", "source"];

/// Reads a table. Its first line names the columns; fields are separated by commas, semicolons or tabs.
pub(super) fn read_users(text: &str) -> UserTable {
    // The reader counts a line for each LF, and is past the last one of a record when it has read it.
    let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n").replace('\r', "\n") + "\n";
    let mut table = UserTable::default();
    let mut reader =
        ReaderBuilder::new().delimiter(delimiter(&text)).flexible(true).trim(Trim::All).from_reader(text.as_bytes());
    let columns = match reader.headers() {
        Ok(header) => table.columns(header),
        Err(error) => {
            table.fault("lines.1", "invalid_value", format!("This is not CSV: {error}."));
            return table;
        }
    };
    if !columns.contains(&Some("name")) {
        let message = "The first line names the columns. One of them must be ‘name’, for the user names.";
        table.fault("lines.1", "required", message);
        return table;
    }
    let mut groups = BTreeMap::new();
    let mut record = StringRecord::new();
    loop {
        let read = reader.read_record(&mut record);
        let within: usize = record.iter().map(|field| field.matches('\n').count()).sum();
        let line = reader.position().line().saturating_sub(1 + within as u64);
        match read {
            Ok(true) => table.user(&columns, &record, line, &mut groups),
            Ok(false) => break,
            Err(error) => {
                table.fault(&format!("lines.{line}"), "invalid_value", format!("This is not CSV: {error}."));
                break;
            }
        }
    }
    table.declared.groups = groups.into_values().collect();
    table
}

/// What separates the fields, by the first line.
fn delimiter(text: &str) -> u8 {
    let first = text.trim_start().lines().next().unwrap_or_default();
    let count = |delimiter: &u8| first.bytes().filter(|byte| byte == delimiter).count();
    // The last of equals is taken.
    [b'\t', b';', b','].into_iter().max_by_key(count).unwrap_or(b',')
}

/// The column that a heading names: `User name`, `username` and `name` are the same.
fn column(heading: &str) -> Option<&'static str> {
    let heading = heading.to_lowercase().replace([' ', '-'], "_");
    match heading.as_str() {
        "user" | "user_name" | "username" | "login" => Some("name"),
        "full_name" => Some("display_name"),
        "group" => Some("groups"),
        "expires" => Some("expires_at"),
        other => COLUMNS.into_iter().find(|known| *known == other),
    }
}

impl UserTable {
    fn fault(&mut self, place: &str, code: &str, message: impl Into<String>) {
        self.faults.push(FieldError::new(place, code, message));
    }

    fn columns(&mut self, header: &StringRecord) -> Vec<Option<&'static str>> {
        let mut columns = Vec::new();
        for heading in header {
            let column = column(heading);
            match column {
                Some(known) if columns.contains(&column) => {
                    self.fault("lines.1", "duplicate", format!("Two columns are ‘{known}’."));
                }
                Some(_) => {}
                None if heading.is_empty() => self.ignored.push(format!("column {}", columns.len() + 1)),
                None => self.ignored.push(heading.to_owned()),
            }
            columns.push(column);
        }
        columns
    }

    fn user(
        &mut self,
        columns: &[Option<&'static str>],
        record: &StringRecord,
        line: u64,
        groups: &mut BTreeMap<String, (String, SiteGroup)>,
    ) {
        if record.iter().all(str::is_empty) {
            return;
        }
        let place = format!("lines.{line}");
        if columns.len() < record.len() {
            let (has, columns) = (record.len(), columns.len());
            let message = format!(
                "This line has {has} fields, and there are {columns} columns. Put quotation marks around a field with \
                 a separator in it."
            );
            return self.fault(&place, "invalid_value", message);
        }
        if record.iter().any(|field| field.contains(char::REPLACEMENT_CHARACTER)) {
            return self.fault(&place, "invalid_value", "Some characters are not UTF-8. Save the file as CSV UTF-8.");
        }
        let cell = |column| {
            let number = columns.iter().position(|known| *known == Some(column))?;
            record.get(number).filter(|text| !text.is_empty())
        };
        let Some(name) = cell("name") else {
            return self.fault(&format!("{place}.name"), "required", "Enter a user name.");
        };
        let role = self.value(&place, "role", cell("role"), role);
        let disabled = self.value(&place, "disabled", cell("disabled"), yes);
        let expires_at = self.value(&place, "expires_at", cell("expires_at"), expiry);
        for (column, managers) in [("groups", false), ("manages", true)] {
            let names = cell(column).unwrap_or_default().split([',', ';', '|', ' ', '\t']);
            for group in names.map(str::trim).filter(|group| !group.is_empty()) {
                let new = || (format!("{place}.{column}"), empty(group));
                let (_, group) = groups.entry(group.to_owned()).or_insert_with(new);
                let list = if managers { &mut group.managers } else { &mut group.members };
                let list = list.get_or_insert_default();
                if !list.iter().any(|known| canonical_name(known) == canonical_name(name)) {
                    list.push(name.to_owned());
                }
            }
        }
        let user = SiteUser {
            name: name.to_owned(),
            source: cell("source").map(str::to_owned),
            display_name: cell("display_name").map(str::to_owned),
            role,
            disabled,
            expires_at: expires_at.unwrap_or_default(),
            quota: None,
        };
        self.declared.users.push((place, user));
    }

    fn value<T>(
        &mut self,
        place: &str,
        column: &str,
        cell: Option<&str>,
        read: fn(&str) -> Result<T, &'static str>,
    ) -> Option<T> {
        read(cell?).map_err(|message| self.fault(&format!("{place}.{column}"), "invalid_value", message)).ok()
    }
}

fn empty(group: &str) -> SiteGroup {
    SiteGroup {
        name: group.to_owned(),
        source: None,
        members: None,
        managers: None,
        each: None,
        total: None,
        chargeable: None,
        restrictive: None,
    }
}

fn role(text: &str) -> Result<Role, &'static str> {
    text.to_lowercase().parse().map_err(|_err| "A role is user, operator or admin.")
}

fn yes(text: &str) -> Result<bool, &'static str> {
    match text.to_lowercase().as_str() {
        "yes" | "true" | "1" => Ok(true),
        "no" | "false" | "0" => Ok(false),
        _ => Err("Enter yes or no."),
    }
}

fn expiry(text: &str) -> Result<ExpiryChange, &'static str> {
    if text.eq_ignore_ascii_case("never") {
        return Ok(ExpiryChange::Never);
    }
    let moment: Option<Timestamp> = parse_day_or_moment(text);
    moment.map(ExpiryChange::At).ok_or("Enter a time in UTC, as 2030-01-31 or 2030-01-31 12:00, or ‘never’.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(table: &UserTable) -> Vec<&str> {
        table.declared.users.iter().map(|(_, user)| user.name.as_str()).collect()
    }

    fn places(table: &UserTable) -> Vec<&str> {
        table.faults.iter().map(|fault| fault.field.as_str()).collect()
    }

    #[test]
    fn tables_of_spreadsheets_are_read() {
        for text in [
            "name,display_name,groups\nada,Ada L,\"vision, speech\"\nbob,,vision\n",
            "\u{feff}User name;Full name;Groups\r\nada;Ada L;vision|speech\r\n;;\r\nbob;;vision\r\n",
            "Username\tDisplay name\tGroup\nada\tAda L\tvision speech\n\nbob\t\tvision",
        ] {
            let table = read_users(text);
            assert_eq!((names(&table), places(&table)), (vec!["ada", "bob"], vec![]), "{text}");
            assert_eq!(table.declared.users[0].1.display_name.as_deref(), Some("Ada L"), "{text}");
            assert_eq!(table.declared.users[1].1.display_name, None, "an empty cell says nothing");
            let groups: Vec<_> =
                table.declared.groups.iter().map(|(_, group)| (group.name.as_str(), group.members.clone())).collect();
            let both = Some(vec!["ada".to_owned(), "bob".to_owned()]);
            assert_eq!(groups, [("speech", Some(vec!["ada".to_owned()])), ("vision", both)], "{text}");
        }
    }

    #[test]
    fn values_are_read_or_named_with_their_line() {
        let table = read_users(
            "login,role,expires,disabled,manages,source\nada,Operator,2030-01-31,no,vision,local\nbob,boss,soon,perhaps,,\n\
             cyd,,never,,,\n,user,,,,\ndan,user,,,,,\nm\u{fffd}ller,,,,,\n",
        );
        assert_eq!(names(&table), ["ada", "bob", "cyd"]);
        let (place, ada) = &table.declared.users[0];
        assert_eq!((place.as_str(), ada.role, ada.disabled), ("lines.2", Some(Role::Operator), Some(false)));
        assert_eq!(ada.expires_at, ExpiryChange::At(parse_day_or_moment("2030-01-31").unwrap()));
        assert_eq!(ada.source.as_deref(), Some("local"));
        assert_eq!(table.declared.users[2].1.expires_at, ExpiryChange::Never);
        assert_eq!(table.declared.groups[0].1.managers.as_deref(), Some(&["ada".to_owned()][..]));
        assert_eq!(
            places(&table),
            ["lines.3.role", "lines.3.disabled", "lines.3.expires_at", "lines.5.name", "lines.6", "lines.7"]
        );
    }

    #[test]
    fn lines_are_counted_as_an_editor_does() {
        for end in ["\n", "\r\n", "\r"] {
            let text = ["", "name,display_name", "", "ada,x", "", "", "bob,\"two", "lines\"", "cyd,x", "d,", "", "e,x"];
            let table = read_users(&text.join(end));
            let lines: Vec<_> = table.declared.users.iter().map(|(place, _)| place.as_str()).collect();
            assert_eq!(lines, ["lines.4", "lines.7", "lines.9", "lines.10", "lines.12"], "{end:?}");
        }
    }

    #[test]
    fn columns_are_known_or_told() {
        let table = read_users("name,E-mail,Phone,\nada,a@b.org,1,\n");
        assert_eq!((table.ignored.join(", ").as_str(), names(&table)), ("E-mail, Phone, column 4", vec!["ada"]));
        for odd in ["", "\n\n", "ada\nbob", "mail,groups\nx,y", "name,login\na,b"] {
            let table = read_users(odd);
            assert_eq!(places(&table), ["lines.1"], "{odd:?}");
        }
    }
}
