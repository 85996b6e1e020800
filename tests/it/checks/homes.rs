//! Homes that are full or read-only, through a whole portal: the card and the API say what is
//! wrong and what to do, for an app that the agent itself is and for JupyterLab.

use serde_json::json;

use super::{Account, spoiled};
use crate::{idleness::jupyters_python, life::House, needs};

#[tokio::test]
async fn a_card_says_that_the_home_is_full() {
    if !needs::root() {
        return;
    }
    let [full, read_only] = [Account::new(&["--create-home"]), Account::new(&["--create-home"])];
    let mut house = House::new(&[]);
    let python = jupyters_python(needs::part_met);
    if let Some(python) = &python {
        house.configure(&format!("[[environments.list]]\nname = 'default'\ntitle = 'Tested'\npython = '{python}'\n"));
    }
    house.wrap(spoiled(&full.home(), &read_only.home()));
    house.start().await;
    for (account, sentence) in [
        (&full, "is full: delete files there, then start again"),
        (&read_only, "is on a read-only file system: ask your administrator"),
    ] {
        let person = house.person_as(&account.name);
        let sentence = format!("the home directory {} {sentence}", account.home().display());
        for app in ["terminal", "jupyter"].into_iter().take(if python.is_some() { 2 } else { 1 }) {
            let id = person.start(&house, json!({ "app": app })).await;
            let ended = person.ended(&house, id, "launch_failed").await;
            let detail = ended["detail"].as_str().unwrap();
            assert!(detail.starts_with(&sentence), "{app}: {ended}");
            for page in [format!("/sessions/{id}/card"), format!("/sessions/{id}")] {
                let page = person.request(&house, "GET", &page).send().await.unwrap().text().await.unwrap();
                assert!(page.contains("Could not start: ") && page.contains(&sentence), "{app}: {page}");
                assert!(page.contains("Start again"), "{app}");
            }
            if let Some(record) = house.record(id) {
                house.nothing_left(&record).await;
            }
        }
    }
}
