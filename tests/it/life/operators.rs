//! What operators do with others' work from a shell: the ids that are printed find it, one bad id among several stops
//! nothing, and a group is stopped with all that its people run and wait for.

use std::process::Command;

use serde_json::{Value, json};

use super::{
    House, Person, eventually,
    jobs::{ended, job, state, submit},
};

pub fn shell(house: &House, person: &Person, arguments: &[&str]) -> (Option<i32>, String, String) {
    let token = person.authorization().replacen("Bearer ", "", 1);
    let mut command = Command::new(&house.program);
    let output = command.args(arguments).env("LYCEUM_URL", &house.url).env("LYCEUM_TOKEN", token).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[tokio::test]
async fn printed_ids_work_and_one_bad_id_stops_nothing() {
    let Some(house) = House::open(&[]).await else { return };
    let (person, other, admin) = (house.person(), house.person(), house.admin());
    admin.allow(&house, &person, json!({ "jobs": -1, "pending": -1 })).await;
    let sleep = json!({ "command": ["sleep", "600"] });
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(submit(&house, &person, sleep.clone()).await);
    }
    let session = person.run(&house, "web").await.to_string();

    // Those of one minute are told apart, for their owner and for operators.
    let (_, listed, _) = shell(&house, &admin, &["job", "list", "--owner", "*"]);
    let short: Vec<&str> = listed.lines().skip(1).map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(short.len(), 5, "{listed}");
    for id in &short {
        assert!(id.len() == 8 && ids.iter().filter(|whole| whole.ends_with(id)).count() == 1, "{id} of {ids:?}");
        for whose in [&admin, &person] {
            let (code, shown, errors) = shell(&house, whose, &["job", "show", id]);
            assert!(code == Some(0) && shown.split(' ').next().unwrap().ends_with(id), "{shown} {errors}");
        }
        assert_eq!(shell(&house, &other, &["job", "show", id]).0, Some(66), "nobody else's");
    }
    let (code, said, _) = shell(&house, &admin, &["session", "list", "--owner", "*"]);
    assert!(code == Some(0) && said.contains(&session[28..]), "{said}");
    assert_eq!(shell(&house, &admin, &["session", "log", &session[28..]]).0, Some(0));
    assert_eq!(shell(&house, &admin, &["session", "log", &session[..23]]).0, Some(0), "a beginning too");
    let (code, _, errors) = shell(&house, &admin, &["job", "cancel", &ids[0][..6]]);
    assert!(code == Some(65) && ids.iter().all(|id| errors.contains(id)), "the candidates: {errors}");
    let (code, _, errors) = shell(&house, &admin, &["job", "cancel", "ffffffffff"]);
    assert!(code == Some(66) && errors.contains("there is no job of yours, or visible to you"), "{errors}");
    assert_eq!(person.ask(&house, "GET", "/jobs?id=x'", &json!({})).await.0, 422);
    let of_part = person.get(&house, &format!("/jobs?id={}", &ids[1][28..])).await;
    assert_eq!((of_part["items"].as_array().unwrap().len(), &of_part["items"][0]["id"]), (1, &json!(ids[1])));

    // A bad id, wherever it stands, is reported, and the others are done.
    let (code, said, errors) = shell(&house, &admin, &["job", "cancel", &ids[0], "ffffffffff", "zzz", &ids[1][28..]]);
    assert_eq!(code, Some(1), "{said} {errors}");
    assert!(
        errors.contains("ffffffffff: ") && errors.contains("zzz: ") && errors.contains("2 of 4 failed"),
        "{errors}"
    );
    for id in &ids[..2] {
        ended(&house, &person, id, "stopped_by_admin").await;
    }
    let (code, _, _) = shell(&house, &person, &["job", "change", "ffffffffff", &ids[2], "--name", "renamed"]);
    assert_eq!((code, &job(&house, &person, &ids[2]).await["name"]), (Some(1), &json!("renamed")));
    let (code, _, _) = shell(&house, &person, &["job", "resume", "ffffffffff", &ids[0]]);
    assert_eq!((code, &job(&house, &person, &ids[0]).await["attempt"]), (Some(1), &json!(2)));
    let (code, _, _) = shell(&house, &person, &["job", "delete", "ffffffffff", &ids[3], &ids[1]]);
    assert_eq!((code, person.ask(&house, "GET", &format!("/jobs/{}", ids[1]), &json!({})).await.0), (Some(1), 404));
    assert_ne!(job(&house, &person, &ids[3]).await["state"], "ended", "what lives is not deleted");
    let (code, _, _) = shell(&house, &person, &["session", "stop", "ffffffffff", &session[28..]]);
    assert_eq!(code, Some(1));
    person.ended(&house, session.parse().unwrap(), "stopped_by_owner").await;
    for deed in ["pause", "stop"] {
        let (code, _, errors) = shell(&house, &person, &["sweep", deed, "ffffffffff", "eeeeeeeeee"]);
        assert!(code == Some(1) && errors.contains("2 of 2 failed"), "{errors}");
    }
    let (code, _, errors) = shell(&house, &person, &["run", "forget", "ffffffffff", "eeeeeeeeee"]);
    assert!(code == Some(1) && errors.contains("2 of 2 failed"), "{errors}");
}

#[tokio::test]
async fn a_group_is_stopped_with_its_jobs() {
    let Some(house) = House::open(&[]).await else { return };
    let (person, other, admin) = (house.person(), house.person(), house.admin());
    for somebody in [&person, &other] {
        admin.allow(&house, somebody, json!({ "jobs": -1, "pending": -1, "sessions": -1 })).await;
    }
    assert_eq!(admin.ask(&house, "POST", "/groups", &json!({ "name": "course" })).await.0, 201);
    let member = format!("/groups/course/members/{}", person.name);
    assert_eq!(admin.ask(&house, "PUT", &member, &json!({})).await.0, 204);

    let lasting = json!({ "command": ["sleep", "600"] });
    let session = person.run(&house, "web").await;
    let runs = submit(&house, &person, lasting.clone()).await;
    let after = json!({ "command": ["true"], "after": [{ "job": runs, "needs": "any" }] });
    let waits = submit(&house, &person, after).await;
    let failing = json!({ "command": ["false"], "retries": 5, "retry_wait_seconds": 3600 });
    let retries = submit(&house, &person, failing).await;
    eventually("it is to be tried again", async || {
        let job = job(&house, &person, &retries).await;
        (job["attempt"] == 2 && job["state"] == "queued").then_some(())
    })
    .await;
    let plan = json!({ "array": "0-8", "parallel": 1, "job": lasting });
    let (status, sweep) = person.ask(&house, "POST", "/sweeps", &plan).await;
    assert_eq!(status, 201, "{sweep}");
    let others = submit(&house, &other, lasting.clone()).await;
    state(&house, &person, &runs, "running").await;

    // A job's attempt is listed with its job, and its id ends the job.
    let listed = admin.get(&house, "/groups/course/sessions").await;
    let row = |job: &str| listed["items"].as_array().unwrap().iter().find(|item| item["job"] == *job).cloned();
    let listed_job = row(&runs).unwrap_or_else(|| panic!("{listed}"));
    assert!(
        listed["items"]
            .as_array()
            .unwrap()
            .iter()
            .any(|item| item["id"] == session.to_string() && item.get("job").is_none())
    );
    let attempt = format!("/sessions/{}", listed_job["id"].as_str().unwrap());
    assert_eq!(other.ask(&house, "DELETE", &attempt, &json!({})).await.0, 404, "not theirs");
    let spare = submit(&house, &person, json!({ "command": ["sleep", "600"], "retries": 3 })).await;
    state(&house, &person, &spare, "running").await;
    let listed = admin.get(&house, "/groups/course/sessions").await;
    let id = listed["items"].as_array().unwrap().iter().find(|item| item["job"] == *spare).unwrap()["id"].clone();
    assert_eq!(admin.ask(&house, "DELETE", &format!("/sessions/{}", id.as_str().unwrap()), &json!({})).await.0, 202);
    ended(&house, &person, &spare, "stopped_by_admin").await;

    for (somebody, status) in [(&person, 403), (&other, 403)] {
        assert_eq!(somebody.ask(&house, "POST", "/groups/course/stop", &Value::Null).await.0, status);
    }
    assert_eq!(admin.ask(&house, "POST", "/groups/nowhere/stop", &Value::Null).await.0, 404);
    let (code, said, errors) = shell(&house, &admin, &["session", "stop", "--group", "course", "--dry-run"]);
    assert_eq!(code, Some(0), "{said} {errors}");
    assert!(said.lines().any(|line| line.contains(&runs) && line.ends_with("would be stopped")), "{said}");
    assert_eq!(job(&house, &person, &runs).await["state"], "running", "nothing was stopped");
    let (code, said, errors) = shell(&house, &admin, &["session", "stop", "--group", "course"]);
    assert_eq!(code, Some(0), "{said} {errors}");
    for id in [&session.to_string(), &runs, &waits, &retries, &sweep["id"].as_str().unwrap().to_owned()] {
        assert!(said.lines().any(|line| line.contains(id) && line.ends_with("was stopped")), "{id}: {said}");
    }
    person.ended(&house, session, "stopped_by_admin").await;
    for id in [&runs, &waits, &retries] {
        ended(&house, &person, id, "stopped_by_admin").await;
    }
    eventually("the sweep has ended", async || {
        let sweep = person.get(&house, &format!("/sweeps/{}", sweep["id"].as_str().unwrap())).await;
        (sweep["state"] == "ended").then_some(())
    })
    .await;
    assert_eq!(person.get(&house, "/jobs?state=queued").await["items"], json!([]), "nothing is tried again");
    assert_eq!(job(&house, &other, &others).await["state"], "running", "who is not in the group goes on");
    let again = admin.ask(&house, "POST", "/groups/course/stop", &Value::Null).await;
    assert_eq!((again.0, &again.1["failed"]), (202, &json!(0)), "{}", again.1);
}
