//! Admission: decide and reserve in one transaction. Sessions (and later jobs) come here
//! before anything happens; nothing is launched that was not admitted, and what is admitted
//! counts until it has ended. The rules are `model::quota`'s, the transaction `db`'s.

use crate::{
    db::{
        self, Db,
        admit::{Admitted, Deed, Facts, NewSession, Verdict},
    },
    model::{
        Capacity, Clock, GpuInventory, SessionId, UserId,
        quota::{Decision, Limits, Request, Situation, Usage, decide},
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
        let single = self.db.count_users().await? <= 1;
        let facts = self.db.usage(owner).await?;
        let limits = Limits::resolve(&facts.limits, &self.capacity, single, self.clock.now());
        Ok(Standing { limits, usage: facts.usage, in_use: facts.in_use, capacity: self.capacity })
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
                Decision::Admit => self.choose_gpus(request, facts),
            }
        };
        self.db.admit(owner, deed, &self.clock, judge).await
    }

    /// Names the GPUs of a request that the numbers admit. A model that is not there, or not
    /// free, is a reason of its own.
    fn choose_gpus(&self, request: &Request, facts: &Facts) -> Verdict {
        let (want, model) = (request.resources.gpus, request.resources.gpu_model.as_deref());
        let picked = usize::try_from(want).ok().and_then(|want| self.inventory.pick(&facts.gpus_taken, want, model));
        if let Some(gpus) = picked {
            return Verdict::Admit { gpus };
        }
        let model = model.unwrap_or("GPU");
        let there = self.inventory.gpus.iter().filter(|gpu| model == "GPU" || gpu.model == model).count();
        let there = i64::try_from(there).unwrap_or(i64::MAX);
        let (used, hint) = if there < want {
            (0, format!("This asks for {want} × {model}; the machine has {there}."))
        } else {
            (there, format!("Not enough of the machine's {there} × {model} are free. This starts when something ends."))
        };
        let reasons = vec![crate::model::quota::Reason {
            code: "capacity.gpus".to_owned(),
            scope: "machine".to_owned(),
            used,
            requested: want,
            limit: there,
            over_by: (used + want - there).max(0),
            hint,
        }];
        if there < want { Verdict::Refuse(reasons) } else { Verdict::Wait(reasons) }
    }
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
