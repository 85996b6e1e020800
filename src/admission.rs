//! Admission: decide and reserve in one transaction. Sessions (and later jobs) come here
//! before anything happens; nothing is launched that was not admitted, and what is admitted
//! counts until it has ended. The rules are `model::quota`'s, the transaction `db`'s.

use std::collections::HashSet;

use crate::{
    db::{
        self, Db,
        admit::{Admitted, Deed, Facts, NewSession, Verdict},
    },
    model::{
        Capacity, Clock, GpuInventory, Resources, SessionId, UserId,
        quota::{Decision, Limits, Reason, Request, Situation, Usage, decide},
        session::SessionSpec,
    },
};

/// Decides for one cluster.
#[derive(Clone, Debug)]
pub struct Admission {
    pub db: Db,
    pub clock: Clock,
    pub capacity: Capacity,
    pub inventory: GpuInventory,
}

/// Somebody's limits and what bears on them now.
#[derive(Clone, Debug)]
pub struct Standing {
    pub limits: Limits,
    pub usage: Usage,
    pub in_use: Usage,
    pub capacity: Capacity,
}

/// Whether a portal that is not root serves this person: it runs everything as its own
/// account, which is for the one who came first.
pub async fn is_the_one_person(db: &Db, user: UserId) -> db::Result<bool> {
    Ok(db.setting_or("one_person", &user.to_string()).await? == user.to_string())
}

impl Admission {
    /// What would be decided about this request, with nothing reserved.
    pub async fn rehearse(&self, owner: UserId, request: &Request) -> db::Result<Verdict> {
        self.admit(owner, Deed::Nothing, request).await.map(verdict)
    }

    /// Decides about a new session and writes it, unless it is refused.
    pub async fn insert(&self, new: &NewSession) -> db::Result<Admitted> {
        self.admit(new.owner, Deed::Insert(new), &request(&new.spec, new.light)).await
    }

    /// Decides again about one that waits.
    pub async fn reconsider(
        &self,
        owner: UserId,
        id: SessionId,
        spec: &SessionSpec,
        light: bool,
    ) -> db::Result<Verdict> {
        self.admit(owner, Deed::Reconsider(id), &request(spec, light)).await.map(verdict)
    }

    /// Limits with their sources, and use now, for bars and sliders.
    pub async fn standing(&self, owner: UserId) -> db::Result<Standing> {
        let limits = self.limits(owner).await?;
        let (usage, in_use) = self.db.usage(owner).await?;
        Ok(Standing { limits, usage, in_use, capacity: self.capacity })
    }

    /// Somebody's limits alone, for those who look often.
    pub async fn limits(&self, owner: UserId) -> db::Result<Limits> {
        let single = self.db.count_users().await? <= 1;
        let rows = self.db.limits_of(owner).await?;
        Ok(Limits::resolve(&rows, &self.capacity, single, self.clock.now()))
    }

    async fn admit(&self, owner: UserId, deed: Deed<'_>, request: &Request) -> db::Result<Admitted> {
        let single = self.db.count_users().await? <= 1;
        let now = self.clock.now();
        let already_waiting = matches!(deed, Deed::Reconsider(_));
        let judge = |facts: &Facts| {
            let limits = Limits::resolve(&facts.limits, &self.capacity, single, now);
            let situation = Situation {
                limits: &limits,
                usage: facts.usage,
                in_use: facts.in_use,
                capacity: self.capacity,
                own: &facts.own,
                already_waiting,
            };
            match decide(request, &situation) {
                Decision::Refuse(reasons) => Verdict::Refuse(reasons),
                Decision::Wait(reasons) => Verdict::Wait(reasons),
                Decision::Admit => choose_gpus(&self.inventory, &facts.gpus_taken, &request.resources),
            }
        };
        self.db.admit(owner, deed, &self.clock, judge).await
    }
}

/// Names the GPUs of a request that the numbers admit. A model that is not there, or not
/// free, is a reason of its own.
fn choose_gpus(inventory: &GpuInventory, taken: &HashSet<String>, asked: &Resources) -> Verdict {
    let (want, model) = (asked.gpus, asked.gpu_model.as_deref());
    let picked = usize::try_from(want).ok().and_then(|want| inventory.pick(taken, want, model));
    if let Some(gpus) = picked {
        return Verdict::Admit { gpus };
    }
    let alike = || inventory.gpus.iter().filter(|gpu| model.is_none_or(|model| gpu.model == model));
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let there = count(alike().count());
    let used = count(alike().filter(|gpu| taken.contains(&gpu.uuid)).count());
    let name = model.unwrap_or("GPU");
    let hint = if there < want {
        format!("This asks for {want} × {name}; the machine has {there}.")
    } else {
        format!("Not enough of the machine's {there} × {name} are free. This starts when something ends.")
    };
    let reasons = vec![Reason {
        code: "capacity.gpus".to_owned(),
        scope: "machine".to_owned(),
        used,
        requested: want,
        limit: there,
        over_by: used.saturating_add(want).saturating_sub(there),
        hint,
    }];
    if there < want { Verdict::Refuse(reasons) } else { Verdict::Wait(reasons) }
}

fn request(spec: &SessionSpec, light: bool) -> Request {
    Request { resources: spec.resources.clone(), duration_seconds: spec.duration_seconds, light }
}

/// For deeds that carry no idempotency key.
fn verdict(admitted: Admitted) -> Verdict {
    match admitted {
        Admitted::Judged(verdict) => verdict,
        Admitted::Repeated(_) => Verdict::Wait(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Gpu;

    #[test]
    fn a_model_that_is_not_there_is_refused_and_one_in_use_waits() {
        let gpu = |index: i64, model: &str| Gpu { index, uuid: format!("u{index}"), model: model.to_owned() };
        let inventory =
            GpuInventory { gpus: vec![gpu(0, "A"), gpu(1, "A"), gpu(2, "B")], driver: true, devices: Vec::new() };
        let taken = HashSet::from(["u0".to_owned()]);
        let choose = |gpus, model: Option<&str>| {
            let asked = Resources { gpus, gpu_model: model.map(str::to_owned), ..Resources::default() };
            choose_gpus(&inventory, &taken, &asked)
        };
        assert!(matches!(choose(1, Some("A")), Verdict::Admit { gpus } if gpus[0].index == 1));
        let Verdict::Wait(reasons) = choose(2, Some("A")) else { panic!("waits") };
        assert_eq!((reasons[0].used, reasons[0].limit, reasons[0].over_by), (1, 2, 1));
        assert!(matches!(choose(3, None), Verdict::Wait(_)));
        // Also one that happens to be called as what it is.
        for model in ["C", "GPU"] {
            let Verdict::Refuse(reasons) = choose(1, Some(model)) else { panic!("refused") };
            assert_eq!((reasons[0].used, reasons[0].limit, reasons[0].over_by), (0, 0, 1), "{model}");
        }
    }
}
