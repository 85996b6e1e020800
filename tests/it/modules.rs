//! Modules in the API and the form: bad names are refused by field, before anything is written.

use serde_json::{Value, json};

use crate::portal::TestPortal;

#[tokio::test]
async fn bad_names_of_modules_are_refused() {
    let portal = TestPortal::start().await;
    portal.add_user("ada", lyceum::model::Role::User).await;
    let ada = portal.sign_in("ada").await;
    let faults = async |modules: Value| -> Vec<String> {
        // Another fault keeps a good one from starting.
        let body = json!({"app": "terminal", "resources": {"cpus": 0}, "modules": modules});
        let answer = ada.post("/api/v1/sessions", &body).await;
        assert_eq!(answer.status(), 422, "{body}");
        let problem: Value = answer.json().await.unwrap();
        let errors = problem["errors"].as_array().unwrap();
        errors.iter().map(|error| error["field"].as_str().unwrap().to_owned()).collect()
    };
    assert!(!faults(json!(["gcc/13.2", "cuda"])).await.contains(&"modules".to_owned()));
    let many: Vec<String> = (0..33).map(|at| format!("m{at}")).collect();
    for bad in [
        json!(["gcc;id"]),
        json!(["gcc\nid"]),
        json!(["-x"]),
        json!(["$(id)"]),
        json!([""]),
        json!(["/etc/passwd"]),
        json!(["../x"]),
        json!(many),
    ] {
        assert!(faults(bad.clone()).await.contains(&"modules".to_owned()), "{bad}");
    }
    let listed: Value = ada.get("/api/v1/modules").await.json().await.unwrap();
    assert_eq!(listed["items"], json!([]), "nothing has been listed here");
    let form = ada.visit("/sessions/new").await.text().await.unwrap();
    assert!(form.contains("name=\"modules\""), "there is a field for them");
    let typed = [
        ("csrf_token", ada.csrf_token.as_str()),
        ("app", "terminal"),
        ("profile", "custom"),
        ("gpus", "0"),
        ("cpus", "1"),
        ("memory", "1 GB"),
        ("modules", "gcc;id"),
    ];
    let answer = ada.post_form("/sessions", &typed).await;
    assert_eq!(answer.status(), 422);
    let text = answer.text().await.unwrap();
    assert!(text.contains("modules-error") && text.contains("value=\"gcc;id\""), "{text}");
}
