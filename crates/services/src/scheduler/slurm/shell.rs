//! What jobs hold and held that nobody handed in through the portal: those that the controller still
//! knows, and those that ended before as the accounts tell. The portal's own are among them; whoever
//! asks knows them by their numbers.

use std::collections::BTreeMap;

use super::{Shared, accounts::Record, queue::Row, state::JobPhase};
use lyceum_model::{Timestamp, queue::ShellJob, session::Allocation};

/// Slurm's accounts, by the names of the groups.
type Accounts = BTreeMap<String, String>;

impl Shared {
    pub(super) async fn shell_jobs(&self) -> Option<Vec<ShellJob>> {
        let view = self.view().await.ok()?;
        let age = i64::try_from(view.answered?.elapsed().as_secs()).unwrap_or(0);
        let told_at = self.config.clock.now().plus_seconds(-age);
        let accounts = &self.config.settings.accounts;
        Some(view.queue.iter().chain(&*view.ended).filter_map(|row| of_row(row, told_at, accounts)).collect())
    }

    pub(super) async fn shell_jobs_since(&self, since: Timestamp) -> Option<Vec<ShellJob>> {
        let seconds = self.config.clock.now().seconds_since(since).max(0);
        let records = self.controller.accounts_since(seconds).await?;
        let accounts = &self.config.settings.accounts;
        Some(records.iter().filter_map(|record| of_record(record, accounts)).collect())
    }
}

/// The group whose account this is: none of a name that several groups share. Slurm's own names are in
/// small letters, whatever somebody has written.
fn group_of(account: &str, accounts: &Accounts) -> Option<String> {
    let mut groups = accounts.iter().filter(|(_, of_group)| of_group.eq_ignore_ascii_case(account));
    let (group, _) = groups.next()?;
    groups.next().is_none().then(|| group.clone())
}

fn of_row(row: &Row, told_at: Timestamp, accounts: &Accounts) -> Option<ShellJob> {
    let (queued, started_at) = (&row.of_queue, row.started_at?);
    let is_over = matches!(row.standing, JobPhase::Ended(_));
    let to = row.ended_at.filter(|_| is_over);
    let held = Allocation { start: started_at.0, to, ..row.allocation(told_at)? };
    // Its end moves by as long as it was suspended.
    let ends_by = queued.limit_seconds.map(|limit| held.from.plus_seconds(limit)).filter(|_| !is_over);
    to.is_none_or(|to| held.from < to).then(|| ShellJob {
        job: row.job,
        user: queued.user.clone(),
        label: format!("{} ({})", queued.name, queued.label),
        held,
        gpu_model: queued.resources.gpu_model.clone(),
        group: group_of(&queued.account, accounts),
        ends_by,
        session: row.session,
    })
}

fn of_record(record: &Record, accounts: &Accounts) -> Option<ShellJob> {
    let held = record.allocation(record.started_at?.0).filter(|held| held.to.is_some())?;
    Some(ShellJob {
        job: record.job,
        user: record.user.clone(),
        label: format!("{} ({})", record.name, record.label),
        held,
        gpu_model: record.resources.gpu_model.clone(),
        group: group_of(&record.account, accounts),
        ends_by: None,
        session: None,
    })
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            accounts,
            queue::{parse, tests::RECORDED},
        },
        *,
    };

    #[test]
    fn what_the_controller_and_the_accounts_say_is_the_same() {
        let groups = Accounts::from([
            ("Vision".to_owned(), "vis".to_owned()),
            ("a".to_owned(), "x".to_owned()),
            ("b".to_owned(), "x".to_owned()),
        ]);
        assert_eq!((group_of("VIS", &groups), group_of("x", &groups)), (Some("Vision".to_owned()), None));
        let recorded = RECORDED.replace("(null)", "vis");
        let rows = parse(&recorded, "<S>").unwrap();
        let now = Timestamp(1_795_338_000_000);
        assert_eq!(of_row(&rows[0], now, &groups), None, "it waits");
        let of_controller = of_row(&rows[1], now, &groups).unwrap();
        assert_eq!(of_controller.group.as_deref(), Some("Vision"));
        assert_eq!((of_controller.label.as_str(), of_controller.user.as_str()), ("x (1)", "alice"));
        assert_eq!(of_controller.held.to, Some(Timestamp(1_795_337_998_000)));
        let told = "1<S>1001<S>FAILED<S>3:0<S>1795337990<S>1795337994<S>1795337998<S>00:00:00<S>\
                    cpu=1,mem=1G,node=1,gres/gpu=1,gres/gpu:a100=1<S>alice<S>vis<S>1<S>x<S>\n";
        let records = accounts::parse(told, "<S>").unwrap();
        assert_eq!(of_record(&records[0], &groups), Some(of_controller));
        // One that runs is told by the controller alone.
        let running = Row { standing: JobPhase::Alive, ended_at: None, ..rows[1].clone() };
        let held = of_row(&running, now, &groups).unwrap();
        assert_eq!((held.held.to, held.ends_by), (None, None), "it may run for ever");
        let records = accounts::parse(&told.replace("<S>1795337998<S>", "<S>Unknown<S>"), "<S>").unwrap();
        assert_eq!(of_record(&records[0], &groups), None);
    }
}
