//! What the real program writes down: an open listener, and what root does on the command
//! line; the chain that `lyceum admin audit verify` walks; and the copies in the portal's own
//! log and at the system logger's socket.

use std::os::unix::{fs::PermissionsExt, net::UnixDatagram};

use serde_json::Value;

use super::{House, eventually};

#[tokio::test]
async fn an_open_listener_and_the_command_line_are_written_down() {
    if !crate::needs::root() {
        return;
    }
    let variables = [("LYCEUM_SERVER__INSECURE_HTTP", "true")];
    let mut house = House::new(&variables);
    house.listen = "0.0.0.0:0".to_owned();
    let socket = house.file("syslog");
    let logger = UnixDatagram::bind(&socket).unwrap();
    logger.set_nonblocking(true).unwrap();
    // As /dev/log is: for everybody.
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666)).unwrap();
    house.set("LYCEUM_AUDIT__SYSLOG", socket.to_str().unwrap());
    house.start().await;

    let person = house.person();
    let run = |arguments: &[&str], fine: bool| {
        let (success, said) = house.run(arguments);
        assert_eq!(success, fine, "{arguments:?}: {said}");
        said
    };
    run(&["admin", "quota", "set", "user", &person.name, "gpus=2"], true);
    run(&["admin", "user", "disable", &person.name], true);

    let db = house.db().await;
    let rows = db.audit_after(0, 100).await.unwrap();
    let told: Vec<(&str, &str)> = rows.iter().map(|row| (row.actor.as_str(), row.action.as_str())).collect();
    let root = |action| ("unix:root", action);
    let by_root = [root("user.add"), root("token.make"), root("quota.change"), root("user.disable")];
    let by_portal = [("portal", "server.insecure_http"), ("portal", "user.add")];
    assert_eq!(told, [&by_portal[..], &by_root].concat());
    assert_eq!(rows[4].detail, "gpus=2, was inherit");

    assert!(
        run(&["admin", "audit", "verify"], true)
            .contains(&format!("6 entries, intact up to number 6 with hash {}", rows[5].hash))
    );
    let mut copies: Vec<String> = Vec::new();
    eventually("all rows are at the logger", async || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length) = logger.recv(&mut buffer) {
            copies.push(String::from_utf8(buffer[..length].to_vec()).unwrap());
        }
        (copies.len() >= 6).then_some(())
    })
    .await;
    for (copy, row) in copies.iter().zip(&rows) {
        assert!(copy.starts_with("<85>lyceum[") && copy.contains(&row.hash), "{copy}");
    }
    let log = eventually("all rows are in the log", async || {
        let log = house.log();
        rows.iter().all(|row| log.contains(&row.hash)).then_some(log)
    })
    .await;
    let line = log.lines().find(|line| line.contains(&rows[4].hash)).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!(line["fields"]["action"], "quota.change", "{line}");

    crate::db::execute(&db, "DROP TRIGGER audit_is_never_changed").await;
    crate::db::execute(&db, "UPDATE audit SET actor = 'alice' WHERE number = 4").await;
    let said = run(&["admin", "audit", "verify"], false);
    assert!(said.contains("damaged at number 4: the entry was changed"), "{said}");
    db.close().await;
}
