//! What a session's job holds, and what it held in each of its starts. The controller tells of the
//! latest one alone: what was before it was put back into the queue, and what the controller
//! has forgotten, is asked of the accounts, once.

use super::{Shared, accounts::Record, queue::Row};
use lyceum_model::{
    SessionId,
    session::{Accounting, Allocation, Placement, WorkloadStarts},
};

impl Shared {
    pub(super) async fn starts(&self, session: SessionId, placement: &Placement) -> Option<WorkloadStarts> {
        let view = self.controller.view();
        let age = i64::try_from(view.answered?.elapsed().as_secs()).unwrap_or(0);
        let number = u32::try_from(placement.pid).ok().filter(|number| *number > 0);
        if let Some(row) = view.job(session, number) {
            let own = row.allocation(self.config.clock.now().plus_seconds(-age));
            let earlier = self.earlier_starts(session, row).await;
            let accounting = match &earlier {
                Some(_all) => Accounting::Complete,
                None if row.restarts > 0 && self.controller.keeps_accounts() => Accounting::Pending,
                None => Accounting::Unknown,
            };
            let allocations = earlier.unwrap_or_default().into_iter().chain(own).collect();
            return Some(WorkloadStarts { latest: row.start(), allocations, accounting, job: Some(row.job) });
        }
        // A view that is no answer has forgotten nothing.
        let job = number.filter(|_| view.objection().is_none())?;
        let records = self.controller.account(job).await?;
        if records.iter().any(|record| record.uid != placement.uid) {
            return None;
        }
        let latest = i64::try_from(records.len()).unwrap_or(1);
        Some(WorkloadStarts {
            latest,
            allocations: allocations(&records, latest),
            accounting: Accounting::Complete,
            job: Some(job),
        })
    }

    /// What its job held before it was put back into the queue; `None` where there is no such time,
    /// or nobody knows all of it.
    async fn earlier_starts(&self, session: SessionId, row: &Row) -> Option<Vec<Allocation>> {
        if row.restarts == 0 {
            return None;
        }
        if let Some((restarts, earlier)) = self.past_starts.lock().get(&session)
            && *restarts == row.restarts
        {
            return Some(earlier.clone());
        }
        let records = self.controller.account(row.job).await?;
        let earlier = before(&records, row)?;
        self.past_starts.lock().insert(session, (row.restarts, earlier.clone()));
        Some(earlier)
    }
}

/// What was held before the start that the controller tells of; `None` while the accounts have not
/// heard of all of it.
fn before(records: &[Record], row: &Row) -> Option<Vec<Allocation>> {
    let (_, before) = records.split_last()?;
    let is_all = row.restarts <= i64::try_from(before.len()).ok()?
        && records.iter().all(|record| record.uid == row.uid)
        && before.iter().all(|record| record.ended_at.is_some());
    is_all.then(|| allocations(before, row.restarts))
}

/// What was held in each start, of which the last one has this number.
fn allocations(records: &[Record], last: i64) -> Vec<Allocation> {
    let numbered = (0..=last).rev().zip(records.iter().rev());
    let mut held: Vec<Allocation> = numbered.filter_map(|(start, record)| record.allocation(start)).collect();
    held.reverse();
    held
}

#[cfg(test)]
mod tests {
    use super::{
        super::{accounts, queue},
        *,
    };
    use lyceum_model::Timestamp;

    /// Of Slurm 22.05.8: a job that was put back into the queue and waits there.
    const RECORDED: &str = "\
        1<S>1001<S>REQUEUED<S>0:0<S>1795426833<S>1795426833<S>1795426855<S>00:00:05<S>billing=1,cpu=1,gres/gpu=1,mem=256M,node=1<S>ada<S><S>1<S>x<S>\n\
        1<S>1001<S>PENDING<S>0:0<S>1795426855<S>Unknown<S>Unknown<S>00:00:00<S><S>ada<S><S>1<S>x<S>\n";

    fn records(text: &str) -> Vec<Record> {
        accounts::parse(text, "<S>").unwrap()
    }

    fn restarted(restarts: i64) -> Row {
        Row { restarts, ..queue::parse(queue::tests::RECORDED, "<S>").unwrap().remove(1) }
    }

    #[test]
    fn each_start_has_its_number() {
        let first = Allocation {
            start: 1,
            from: Timestamp(1_795_426_838_000),
            to: Some(Timestamp(1_795_426_855_000)),
            gpus: 1,
            cpus: 1,
            memory_bytes: 256 << 20,
        };
        assert_eq!(before(&records(RECORDED), &restarted(1)), Some(vec![first]));
        // The accounts have not heard of the second one yet.
        assert_eq!(before(&records(RECORDED), &restarted(2)), None);
        let running =
            RECORDED.replace("REQUEUED", "RUNNING").replace("<S>1795426855<S>00:00:05", "<S>Unknown<S>00:00:05");
        assert_eq!(before(&records(&running), &restarted(1)), None);
        let of_another = RECORDED.replacen("1001", "1002", 1);
        assert_eq!(before(&records(&of_another), &restarted(1)), None);
        // Nobody knows the row any more: the one that never began held nothing.
        assert_eq!(allocations(&records(RECORDED), 2), [first]);
    }
}
