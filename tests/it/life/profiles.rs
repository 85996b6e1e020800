//! Profiles that an administrator adds while the portal runs: they replace the calculated ones, groups bind, what runs
//! keeps its size, and a portal that is killed knows them again.

use serde_json::{Value, json};

use super::{House, Person, eventually, jobs};
use crate::portal::{FORM, form};

const MIB: i64 = 1 << 20;

fn sized(name: &str, cpus: i64, groups: &[&str], position: Option<i64>) -> Value {
    json!({
        "name": name,
        "title": name.to_uppercase(),
        "resources": { "gpus": 0, "cpus": cpus, "memory_bytes": 128 * MIB },
        "duration_seconds": 600,
        "groups": groups,
        "position": position,
    })
}

fn without_name(mut profile: Value) -> Value {
    profile.as_object_mut().unwrap().remove("name");
    profile
}

async fn names(house: &House, person: &Person) -> Vec<String> {
    let listed = person.get(house, "/profiles").await;
    let items = listed["items"].as_array().unwrap().iter();
    items.map(|one| format!("{} {}", one["name"].as_str().unwrap(), one["origin"].as_str().unwrap())).collect()
}

fn job(profile: &str) -> Value {
    json!({ "command": ["sleep", "600"], "profile": profile })
}

#[tokio::test]
async fn added_ordered_for_groups_and_kept() {
    let Some(mut house) = House::open(&[]).await else { return };
    let (admin, ada) = (house.admin(), house.person());
    assert!(names(&house, &ada).await.iter().all(|one| one.ends_with(" shipped")));
    let refused = admin.ask(&house, "DELETE", "/profiles/cpu", &Value::Null).await;
    assert_eq!(refused.0, 409, "{refused:?}");

    // Twenty administrators at once: one adds it, and the calculated ones are gone.
    let new = sized("debug", 1, &[], None);
    let asked = futures_util::future::join_all((0..20).map(|_| admin.ask(&house, "POST", "/profiles", &new))).await;
    let mut statuses: Vec<u16> = asked.iter().map(|(status, _)| *status).collect();
    statuses.sort_unstable();
    assert_eq!((statuses[0], statuses[1], statuses[19]), (201, 422, 422), "{asked:?}");
    assert_eq!(names(&house, &ada).await, ["debug added"]);

    // Order and groups. Whoever is in none of them neither sees it nor starts with it.
    for new in [sized("large", 2, &["vision"], None), sized("tiny", 1, &[], Some(5))] {
        let (status, made) = admin.ask(&house, "POST", "/profiles", &new).await;
        assert_eq!((status, &made["added_by"]), (201, &json!(admin.name)), "{made}");
    }
    assert_eq!(names(&house, &admin).await, ["tiny added", "debug added", "large added"]);
    assert_eq!(names(&house, &ada).await, ["tiny added", "debug added"]);
    assert_eq!(ada.ask(&house, "GET", "/profiles/large", &Value::Null).await.0, 404);
    let (status, refused) = ada.ask(&house, "POST", "/jobs", &job("large")).await;
    assert_eq!((status, &refused["errors"][0]["field"]), (422, &json!("profile")), "{refused}");
    assert_eq!(admin.ask(&house, "POST", "/groups", &json!({ "name": "vision" })).await.0, 201);
    let member = format!("/groups/vision/members/{}", ada.name);
    assert_eq!(admin.ask(&house, "PUT", &member, &Value::Null).await.0, 204);
    eventually("a member sees it", async || (names(&house, &ada).await.len() == 3).then_some(())).await;
    let form = ada.request(&house, "GET", "/jobs/new").send().await.unwrap().text().await.unwrap();
    assert!(form.find("TINY") < form.find("DEBUG") && form.find("DEBUG") < form.find("LARGE"), "{form}");

    // What runs keeps its size, whatever becomes of the profile.
    let id = jobs::submit(&house, &ada, job("large")).await;
    let running = jobs::state(&house, &ada, &id, "running").await;
    assert_eq!(running["resources"]["cpus"], 2, "{running}");
    let changed = without_name(sized("large", 1, &[], Some(1)));
    let (status, changed) = admin.ask(&house, "PUT", "/profiles/large", &changed).await;
    assert_eq!((status, &changed["position"], &changed["groups"]), (200, &json!(1), &json!([])), "{changed}");
    assert_eq!(ada.ask(&house, "PUT", "/profiles/large", &without_name(new)).await.0, 403);
    assert_eq!(jobs::job(&house, &ada, &id).await["resources"]["cpus"], 2);
    assert_eq!(admin.ask(&house, "DELETE", "/profiles/tiny", &Value::Null).await.0, 204);
    assert_eq!(admin.ask(&house, "DELETE", "/profiles/tiny", &Value::Null).await.0, 404);

    house.kill();
    house.start().await;
    assert_eq!(names(&house, &ada).await, ["large added", "debug added"]);
    assert_eq!(jobs::job(&house, &ada, &id).await["resources"]["cpus"], 2);
    assert_eq!(admin.ask(&house, "DELETE", "/profiles/large", &Value::Null).await.0, 204);
    assert_eq!(jobs::job(&house, &ada, &id).await["state"], "running");
    let (_, ended) = ada.ask(&house, "POST", &format!("/jobs/{id}/cancel"), &Value::Null).await;
    assert!(ended["id"].is_string(), "{ended}");
    jobs::ended(&house, &ada, &id, "stopped_by_owner").await;
    assert_eq!(admin.ask(&house, "DELETE", "/profiles/debug", &Value::Null).await.0, 204);
    assert!(names(&house, &ada).await.iter().all(|one| one.ends_with(" shipped")));
}

#[tokio::test]
async fn those_of_the_file_stay_and_come_first() {
    let mut house = House::new(&[]);
    house.configure(
        "[[profiles]]\nname = 'file'\ntitle = 'File'\ncpus = 1\nmemory = '128MiB'\n\
         [[profiles]]\nname = 'theirs'\ntitle = 'Theirs'\ncpus = 1\nmemory = '128MiB'\ngroups = ['vision']\n",
    );
    house.start().await;
    let (admin, ada) = (house.admin(), house.person());
    for (name, position) in [("last", None), ("between", Some(15)), ("beside", Some(10))] {
        assert_eq!(admin.ask(&house, "POST", "/profiles", &sized(name, 1, &[], position)).await.0, 201);
    }
    let all = ["file file", "beside added", "between added", "theirs file", "last added"];
    assert_eq!(names(&house, &admin).await, all);
    assert_eq!(names(&house, &ada).await, ["file file", "beside added", "between added", "last added"]);
    let (status, refused) = admin.ask(&house, "POST", "/profiles", &sized("file", 1, &[], None)).await;
    assert_eq!((status, &refused["errors"][0]["field"]), (422, &json!("name")), "{refused}");
    for (method, body) in [("PUT", without_name(sized("file", 1, &[], None))), ("DELETE", Value::Null)] {
        let (status, refused) = admin.ask(&house, method, "/profiles/file", &body).await;
        let why = refused["detail"].as_str().unwrap();
        assert!(status == 409 && why.contains("is in the configuration file"), "{method}: {refused}");
    }

    // On the page: a form that is refused keeps what was typed, and one that is not takes effect.
    let page = async |path: &str, fields: &[(&str, &str)]| {
        let request = admin.request(&house, "POST", path).header("content-type", FORM).body(form(fields));
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let typed = [("name", "paged"), ("gpus", "0"), ("cpus", "1"), ("memory", "a lot"), ("duration", "1h")];
    let (status, answer) = page("/admin/profiles", &typed).await;
    assert!(status == 422 && answer.contains("Enter a size such as") && answer.contains("value=\"a lot\""), "{answer}");
    let typed = [
        ("name", "paged"),
        ("gpus", "0"),
        ("cpus", "1"),
        ("memory", "300 MiB"),
        ("duration", "1h"),
        ("groups", "nobody"),
    ];
    assert_eq!(page("/admin/profiles", &typed).await.0, 303);
    let listed = admin.request(&house, "GET", "/admin/profiles").send().await.unwrap().text().await.unwrap();
    assert!(listed.contains("(no such group)") && listed.contains("value=\"300 MiB\""), "{listed}");
    let typed = [("title", "Paged"), ("gpus", "0"), ("cpus", "100000"), ("memory", "300 MiB"), ("duration", "90s")];
    assert_eq!(page("/admin/profiles/paged", &typed).await.0, 303);
    let listed = admin.request(&house, "GET", "/admin/profiles").send().await.unwrap().text().await.unwrap();
    assert!(listed.contains("The largest node has") && listed.contains("value=\"90s\""), "{listed}");
    assert_eq!(page("/admin/profiles/paged/remove", &[]).await.0, 303);
    assert_eq!(names(&house, &admin).await, all);
}
