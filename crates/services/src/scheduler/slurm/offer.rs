//! What the cluster has, what fits on its nodes, and what its queue contains, as the controller reported it last.

use std::{collections::BTreeSet, time::Duration};

use async_trait::async_trait;

use super::{MARGIN, Slurm, choices, listing, machines, size, submit};
use crate::scheduler::{BatchQueue, ClusterInfo, Error, Person, Result, local::blocking};
use lyceum_model::{
    Capacity, Inventory, Machines, Queue, QueueId, Resources, SessionId, SlurmChoices, Timestamp,
    job::Shape,
    queue::{Part, ShellJob},
    quota::Reason,
    reservation,
};
use lyceum_node::helper::identity;
use lyceum_wire::protocol::{BatchEnd, BatchOrder};

/// How long somebody who looks at the nodes waits for a new answer.
const A_LOOK: Duration = Duration::from_secs(3);

#[async_trait]
impl ClusterInfo for Slurm {
    fn cluster(&self) -> &str {
        &self.shared.config.settings.name
    }

    fn stock(&self) -> &Inventory {
        self.shared.controller.stock()
    }

    fn largest(&self) -> Capacity {
        size::largest(&self.shared.eligible(&self.shared.controller.view())).unwrap_or(self.stock().capacity())
    }

    fn largest_for(&self, shape: &Shape) -> Capacity {
        let nothing = Capacity { gpus: 0, cpus: 0, memory_bytes: 0 };
        let view = self.shared.controller.view();
        size::largest(&self.shared.eligible_for(&view, shape)).unwrap_or(nothing)
    }

    fn longest_seconds(&self, resources: &Resources) -> Option<i64> {
        size::longest(&self.shared.eligible(&self.shared.controller.view()), resources)
    }

    fn longest_for(&self, resources: &Resources, shape: &Shape) -> Option<i64> {
        let view = self.shared.controller.view();
        size::longest(&self.shared.eligible_for(&view, shape), &size::of_one_node(resources, shape))
    }

    fn reserved(&self, resources: &Resources, seconds: i64, shape: &Shape) -> Option<(Reason, Timestamp)> {
        // Slurm itself says what a job finds in the reservation that it names.
        if shape.option("reservation").is_some() {
            return None;
        }
        let view = self.shared.controller.view();
        if view.reservations.is_empty() {
            return None;
        }
        let one = size::of_one_node(resources, shape);
        let fitting = self.shared.eligible_for(&view, shape).into_iter().filter(|node| node.fits(&one));
        let fitting: BTreeSet<&str> = fitting.map(|node| node.name.as_str()).collect();
        let nodes = usize::try_from(shape.nodes).unwrap_or(1);
        let request = reservation::Request { nodes, seconds, margin: MARGIN };
        reservation::in_the_way(&view.reservations, &Vec::from_iter(fitting), request, self.shared.config.clock.now())
    }

    fn objection(&self, resources: &Resources, seconds: i64, shape: &Shape) -> Option<String> {
        let view = self.shared.controller.view();
        size::objection_to(&self.shared.eligible_for(&view, shape), resources, seconds, shape)
    }

    async fn choices(&self, unix_name: &str) -> Option<SlurmChoices> {
        let settings = &self.shared.config.settings;
        let listed = self.shared.lister.listed(settings).await;
        let name = unix_name.to_owned();
        let groups = if listed.as_ref().is_some_and(|listed| listed.asks_groups()) {
            blocking(move || Ok(identity::group_names(&name))).await.unwrap_or_default()
        } else {
            Vec::new()
        };
        let now = self.shared.config.clock.now();
        Some(choices::choices(listed.as_deref(), settings, (unix_name, &groups), now))
    }

    fn faults(&self) -> Vec<(&'static str, String)> {
        self.shared.controller.faults()
    }

    async fn machines(&self) -> Option<Machines> {
        // If Slurm does not answer, the previous view is shown with its time.
        let looked = tokio::time::timeout(A_LOOK, self.shared.controller.look_at_nodes()).await;
        let view = self.shared.controller.view();
        let trouble = view.objection().or_else(|| match looked {
            Ok(Ok(_newer)) => None,
            Ok(Err(Error::Unavailable(why))) => Some(why),
            Ok(Err(other)) => Some(other.sentence()),
            Err(_elapsed) => Some("Slurm has not listed its nodes within a few seconds".to_owned()),
        });
        let partition = &self.shared.config.settings.partition;
        Some(Machines {
            margin_seconds: MARGIN,
            ..machines::machines(&view, partition, trouble, self.shared.config.clock.now())
        })
    }

    async fn set_drained(&self, node: &str, reason: Option<&str>) -> Result<()> {
        self.shared.controller.set_drained(node, reason).await?;
        // Who asks next sees it; what cannot be listed now is listed later.
        let _ = self.shared.controller.look_at_nodes_anew().await;
        Ok(())
    }
}

#[async_trait]
impl BatchQueue for Slurm {
    fn has_queue(&self) -> bool {
        true
    }

    async fn queue(&self) -> Option<Queue> {
        let trouble = self.shared.view().await.err();
        let (view, now) = (self.shared.controller.view(), self.shared.config.clock.now());
        let listed = blocking(move || Ok(listing::queue(&view, trouble, now))).await;
        Some(listed.unwrap_or_else(|err| Queue { trouble: Some(err.to_string()), ..Queue::default() }))
    }

    async fn shell_jobs(&self) -> Option<Vec<ShellJob>> {
        self.shared.shell_jobs().await
    }

    async fn shell_jobs_since(&self, since: Timestamp) -> Option<Vec<ShellJob>> {
        self.shared.shell_jobs_since(since).await
    }

    async fn cancel_queued(&self, person: &Person, id: QueueId) -> Result<()> {
        let end = match id.part {
            Part::Whole => BatchEnd::Whole,
            Part::Task(task) => BatchEnd::Task(task),
            Part::Waiting => BatchEnd::Waiting,
        };
        // The order belongs to no session; this id identifies it when it is asked about again.
        let order = self.shared.order(SessionId::new(), &person.unix_name, BatchOrder::Cancel { job: id.job, end });
        let ran = order.await?;
        if ran.status != Some(0) {
            let said = submit::complaint(&ran.complaints);
            return Err(if ran.status.is_none() || submit::is_unreached(&said) {
                Error::Unavailable(format!("Slurm did not cancel the job: {said}"))
            } else {
                Error::Refused(format!("Slurm did not cancel the job: {said}."))
            });
        }
        self.shared.controller.refresh().await.map(drop)
    }
}
