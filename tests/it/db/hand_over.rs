//! What an account leaves, on both databases: it is counted, goes to another owner as a whole, and not while something runs.

use lyceum::{
    db::{
        Error,
        hand_over::{AccountContents, Between, HandedOver},
    },
    model::{Dataset, Model, moves::Moves},
};

use super::{BY, NOTED, add_user, datasets, ended_job, execute, models, on_both, running};

#[tokio::test]
async fn work_goes_to_another_owner_once_and_only_when_it_has_ended() {
    on_both(async |house| {
        let db = &house.db;
        let (ada, bob) = (add_user(db, "ada").await, add_user(db, "bob").await);
        let done = ended_job(db, ada, "done").await;
        let run = "INSERT INTO runs (id, owner, name, directory, session_id, job_id, visibility, complete, points, curves,
            look_at, skipped, created_at) VALUES";
        let values = format!(
            "('01a20ff0-0000-7000-8000-000000000001', '{ada}', 'r', '/home/ada/logs/1', NULL, '{}', 'private', TRUE, 0, 0,
             0, '{{}}', 0)",
            done.job
        );
        execute(db, &format!("{run} {values}")).await;
        let user = async |id| db.find_user(id).await.unwrap().unwrap().user;
        let (from, to) = (user(ada).await, user(bob).await);
        let moves = Moves::parse([("/home/ada".to_owned(), "/home/bob/ada".to_owned())]).unwrap();
        let between = Between { from: &from, to: &to, moves: &moves, by: BY };

        running(db, ada).await;
        let held = db.account_contents(ada).await.unwrap();
        assert_eq!((held.live(), held.jobs, held.runs), (1, 1, 1), "{held:?}");
        assert_eq!(db.hand_over_work(between).await.unwrap(), None, "something runs");
        execute(db, &format!("UPDATE sessions SET state = 'ended', ended_at = 1 WHERE owner = '{ada}'")).await;

        let handed = db.hand_over_work(between).await.unwrap();
        assert_eq!(handed, Some(HandedOver { jobs: 1, sweeps: 0, runs: 1 }));
        assert_eq!(db.hand_over_work(between).await.unwrap(), Some(HandedOver::default()), "nothing is left");
        let rest = db.account_contents(ada).await.unwrap();
        assert_eq!(AccountContents { sign_ins: rest.sign_ins, tokens: rest.tokens, ..AccountContents::default() }, rest);
        let run = db.run_of_job(done.job).await.unwrap().unwrap();
        assert_eq!((run.owner, run.directory.as_str()), (bob, "/home/bob/ada/logs/1"));
        let job = db.find_job(done.job).await.unwrap().unwrap();
        assert_eq!((job.owner, job.latest.owner), (bob, bob));
        let rows = db.list_audit(5).await.unwrap();
        let told: Vec<&str> =
            rows.iter().filter(|row| row.action == "user.hand_over").map(|row| row.detail.as_str()).collect();
        assert_eq!(told, ["to bob: 1 jobs, 0 sweeps, 1 runs"]);
    })
    .await;
}

#[tokio::test]
async fn datasets_and_models_go_with_the_paths_of_their_files() {
    on_both(async |house| {
        let db = &house.db;
        let (ada, bob) = (add_user(db, "ada").await, add_user(db, "bob").await);
        let user = async |id| db.find_user(id).await.unwrap().unwrap().user;
        let (from, to) = (user(ada).await, user(bob).await);
        let moves = Moves::parse([("/home/a".to_owned(), "/home/bob/a".to_owned())]).unwrap();
        let between = Between { from: &from, to: &to, moves: &moves, by: BY };
        let dataset = datasets::dataset(ada, "ada", "signs");
        db.add_dataset(&dataset, r#"{"output": "/home/a/datasets/x", "n": 1}"#, None, &NOTED).await.unwrap();
        let model = Model { directory: "/home/a/runs/x".to_owned(), ..models::model(ada, "ada", "lenet") };
        db.add_model(&model, r#"{"data": {"path": "/home/a/datasets/x"}}"#, None, &NOTED).await.unwrap();
        let test = models::test(model.id, ada);
        db.add_model_test(&test).await.unwrap();

        // Removing a dataset removes its files, so a dataset whose directory another one has stays.
        let other = Dataset { directory: moves.path(&dataset.directory), ..datasets::dataset(bob, "bob", "mine") };
        db.add_dataset(&other, "{}", None, &NOTED).await.unwrap();
        assert!(matches!(db.hand_over_dataset(&dataset, between).await, Err(Error::Unique)));
        assert_eq!(db.find_dataset(dataset.id).await.unwrap().unwrap().owner, ada, "it stays");
        assert!(db.remove_dataset(other.id, &NOTED).await.unwrap());
        assert!(db.hand_over_dataset(&dataset, between).await.unwrap());
        assert!(!db.hand_over_dataset(&dataset, between).await.unwrap(), "it is not theirs any more");
        let theirs = db.find_dataset(dataset.id).await.unwrap().unwrap();
        assert_eq!((theirs.owner, theirs.directory.as_str()), (bob, "/home/bob/a/datasets/x’"));
        let spec = db.dataset_spec(dataset.id).await.unwrap().unwrap();
        assert_eq!(spec, r#"{"n":1,"output":"/home/bob/a/datasets/x"}"#);

        assert!(db.hand_over_model(&model, between).await.unwrap());
        assert!(!db.hand_over_model(&model, between).await.unwrap());
        let theirs = db.find_model(model.id).await.unwrap().unwrap();
        assert_eq!((theirs.owner, theirs.directory.as_str()), (bob, "/home/bob/a/runs/x"));
        let config = db.model_config(model.id).await.unwrap().unwrap();
        assert_eq!(config, r#"{"data":{"path":"/home/bob/a/datasets/x"}}"#);
        let asked = db.find_model_test(test.id, bob).await.unwrap().unwrap();
        assert_eq!(asked.directory, "/home/bob/a/runs/x");
        assert_eq!(db.find_model_test(test.id, ada).await.unwrap(), None);
    })
    .await;
}
