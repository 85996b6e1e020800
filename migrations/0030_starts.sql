-- A batch system may put what runs back into its queue and start it again: each start is an
-- allocation of its own. And people hold what the portal has not started: jobs from a shell, which
-- have no session, and are told by the number of their job and the moment of their start.
CREATE TABLE held (
    -- Null where somebody handed it in on a shell.
    session_id    TEXT REFERENCES sessions (id),
    -- Which start of its session it is, from 1 on; of a job from a shell, when it began as the batch system says.
    start_number  BIGINT NOT NULL DEFAULT 1,
    -- Whether there are others of the same session or job.
    of_several    BOOLEAN NOT NULL DEFAULT FALSE,
    -- The number of its job, where it is one of a batch system's.
    job_number    BIGINT,
    owner         TEXT NOT NULL REFERENCES users (id),
    charged_group TEXT,
    gpus          BIGINT NOT NULL,
    cpus          BIGINT NOT NULL,
    memory_bytes  BIGINT NOT NULL,
    gpu_list      TEXT NOT NULL,
    started_at    BIGINT NOT NULL,
    -- By when it is over at the latest, where no session says so.
    ends_by       BIGINT,
    ended_at      BIGINT,
    number        BIGINT
);
INSERT INTO held (session_id, owner, charged_group, gpus, cpus, memory_bytes, gpu_list, started_at, ended_at, number)
    SELECT session_id, owner, charged_group, gpus, cpus, memory_bytes, gpu_list, started_at, ended_at, number
    FROM intervals;
DROP TABLE intervals;
ALTER TABLE held RENAME TO intervals;
CREATE UNIQUE INDEX intervals_start ON intervals (session_id, start_number);
CREATE UNIQUE INDEX intervals_job ON intervals (job_number, start_number) WHERE session_id IS NULL;
CREATE INDEX intervals_job_number ON intervals (job_number) WHERE job_number IS NOT NULL;
-- Nobody holds the same twice at once.
CREATE UNIQUE INDEX intervals_open ON intervals (session_id) WHERE ended_at IS NULL;
CREATE INDEX intervals_owner ON intervals (owner, started_at);
CREATE INDEX intervals_owner_ended ON intervals (owner, ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX intervals_group_ended ON intervals (charged_group, ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX intervals_ended ON intervals (ended_at, started_at, gpus, cpus, owner, charged_group)
    WHERE ended_at IS NOT NULL;
CREATE UNIQUE INDEX intervals_number ON intervals (number);
