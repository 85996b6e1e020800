//! What attempts of jobs made of the machine, one row an attempt: written while it runs and at its end,
//! and forgotten with it. What stands in a row is `model::hardware`'s.

use sqlx::{query, query_as, query_scalar};

use super::{
    Db, Result, reading,
    types::{Json, parse},
    writing,
};
use lyceum_model::{JobId, SessionId, hardware::Hardware};

impl Db {
    /// Keeps what a workload has made of the machine so far, if it is there.
    pub async fn keep_hardware(&self, session: SessionId, hardware: &Hardware) -> Result<()> {
        writing!(self, pool => query("INSERT INTO session_hardware (session_id, stretches)
             SELECT $1, $2 WHERE EXISTS (SELECT 1 FROM sessions WHERE id = $1)
             ON CONFLICT (session_id) DO UPDATE SET stretches = $2")
            .bind(session.to_string()).bind(Json::write(hardware)).execute(pool).await.map(drop))?;
        Ok(())
    }

    pub async fn hardware_of(&self, session: SessionId) -> Result<Option<Hardware>> {
        let text: Option<String> = reading!(self, pool =>
            query_scalar("SELECT stretches FROM session_hardware WHERE session_id = $1")
                .bind(session.to_string()).fetch_optional(pool).await)?;
        text.map(|text| Json::read(&text, "use of the machine")).transpose()
    }

    /// Of each attempt of a job of which something is kept.
    pub async fn hardware_of_job(&self, job: JobId) -> Result<Vec<(SessionId, Hardware)>> {
        let rows: Vec<(String, String)> = reading!(self, pool => query_as(
            "SELECT session_id, stretches FROM session_hardware JOIN sessions ON sessions.id = session_id
             WHERE sessions.job_id = $1 ORDER BY session_id")
            .bind(job.to_string()).fetch_all(pool).await)?;
        let one =
            |(id, text): (String, String)| Ok((parse(&id, "session id")?, Json::read(&text, "use of the machine")?));
        rows.into_iter().map(one).collect()
    }
}
