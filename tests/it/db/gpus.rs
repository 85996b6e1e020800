//! What GPUs did over time, and the question whether somebody still needs theirs.

use lyceum::{
    db::{
        admit::AdmissionMode,
        gpus::{Point, Span},
        sessions::Ending,
    },
    model::{Clock, EndReason, SessionState, Timestamp},
};

use super::{START, add_user, asking, inventory, judge, new_session, number, on_both, running};

fn point(uuid: &str, at: Timestamp, readings: i64, utilisation: f64, celsius: Option<i64>) -> Point {
    Point { uuid: uuid.to_owned(), at, readings, utilisation, memory_bytes: 100.0, milliwatts: 7.0, celsius }
}

#[tokio::test]
async fn minutes_add_up_to_hours() {
    on_both(async |house| {
        let hour = Span::Hour.begin(START);
        let minute = |number: i64| hour.plus_seconds(number * 60);
        house
            .db
            .add_gpu_points(&[point("a", minute(0), 10, 100.0, Some(50)), point("b", minute(0), 10, 1.0, None)])
            .await
            .unwrap();
        house.db.add_gpu_points(&[point("a", minute(1), 30, 20.0, Some(40))]).await.unwrap();
        // A portal that was started again within a minute goes on with it.
        house.db.add_gpu_points(&[point("a", minute(1).plus_seconds(59), 10, 60.0, Some(60))]).await.unwrap();
        house.db.add_gpu_points(&[point("a", minute(61), 10, 0.0, None)]).await.unwrap();

        let points = |span, from, to| house.db.gpu_points(span, from, to);
        let minutes = points(Span::Minute, hour, minute(60)).await.unwrap();
        let seen: Vec<_> = minutes.iter().map(|point| (point.uuid.as_str(), point.at, point.readings)).collect();
        assert_eq!(seen, [("a", minute(0), 10), ("b", minute(0), 10), ("a", minute(1), 40)]);
        assert!((minutes[2].utilisation - 30.0).abs() < 1e-9, "{minutes:?}");
        assert_eq!(minutes[2].celsius, Some(60));
        let hours = points(Span::Hour, hour, minute(120)).await.unwrap();
        assert_eq!(hours.iter().map(|point| point.readings).collect::<Vec<_>>(), [50, 10, 10]);
        assert!((hours[0].utilisation - 44.0).abs() < 1e-9 && (hours[0].memory_bytes - 100.0).abs() < 1e-9);
        assert_eq!((hours[0].celsius, hours[1].celsius), (Some(60), None));

        house.db.forget_gpu_points(minute(1), minute(60)).await.unwrap();
        assert_eq!(number(&house.db, "SELECT COUNT(*) FROM gpu_history WHERE span = 60").await, 2);
        assert_eq!(number(&house.db, "SELECT COUNT(*) FROM gpu_history WHERE span = 3600").await, 1);
    })
    .await;
}

#[tokio::test]
async fn who_held_which_gpus() {
    on_both(async |house| {
        let user = add_user(&house.db, "ann").await;
        running(&house.db, user).await;
        let new = new_session(user, 2);
        let clock = Clock::manual(START);
        house.db.admit(&asking(user), AdmissionMode::Insert(&new), &clock, judge(&inventory(2), 2)).await.unwrap();

        let held = |from, to| house.db.gpu_holdings(from, to);
        let far = Timestamp(i64::MAX);
        let all = held(Timestamp(0), far).await.unwrap();
        let holdings: Vec<_> = all.iter().map(|held| (held.session, held.owner_name.as_str(), held.to)).collect();
        assert_eq!(holdings, [(new.id, "ann", None)], "the other session has none");
        assert_eq!((all[0].owner, &all[0].gpus, all[0].from), (user, &inventory(2).gpus, START));
        assert_eq!(held(Timestamp(0), START).await.unwrap(), [], "before that nobody did");
        let ending = Ending {
            reason: EndReason::Exited,
            exit_code: Some(0),
            signal: None,
            at: START.plus_seconds(60),
            detail: String::new(),
        };
        assert!(house.db.end_session(new.id, &ending).await.unwrap());
        assert_eq!(held(START.plus_seconds(30), far).await.unwrap()[0].to, Some(START.plus_seconds(60)));
        assert_eq!(held(START.plus_seconds(60), far).await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn an_owner_is_asked_and_answers() {
    on_both(async |house| {
        let user = add_user(&house.db, "ann").await;
        let id = running(&house.db, user).await;
        assert!(house.db.ask_owner(id, "bob", "bob asks", START).await.unwrap());
        let session = house.db.find_session(id).await.unwrap().unwrap();
        let asked = session.asked.unwrap();
        assert_eq!((asked.by.as_str(), asked.at), ("bob", START));
        let audit = house.db.list_audit(1).await.unwrap();
        assert_eq!(
            (audit[0].action.as_str(), audit[0].actor.as_str(), audit[0].detail.as_str()),
            ("session.ask", "bob", "ann")
        );
        let told = house.db.session_events(id, 0).await.unwrap();
        let last = told.last().unwrap();
        assert_eq!((last.message.as_str(), last.state), ("bob asks", SessionState::Running));

        assert!(house.db.answer_ask(id).await.unwrap());
        assert!(!house.db.answer_ask(id).await.unwrap(), "once");
        assert!(house.db.ask_owner(id, "bob", "again", START).await.unwrap());
        assert!(house.db.keep_session(id, START.plus_seconds(60)).await.unwrap());
        assert_eq!(house.db.find_session(id).await.unwrap().unwrap().asked, None, "keep is an answer");

        let before = house.db.list_audit(100).await.unwrap().len();
        let stopped = house.db.begin_stop(id, EndReason::Idle, START, "", None).await.unwrap();
        assert!(stopped && !house.db.ask_owner(id, "bob", "late", START).await.unwrap());
        assert_eq!(house.db.list_audit(100).await.unwrap().len(), before, "nothing happened, nothing is told");
    })
    .await;
}
