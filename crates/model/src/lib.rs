//! The words of the house as plain types: ids, time, people, resources, quotas, sessions.
//! Nothing here does I/O or knows how anything is stored, started or drawn; every rule in
//! this folder is a pure function that a table or a property can test.

pub mod alert;
pub mod announcement;
pub mod cuda;
pub mod dataset;
pub mod description;
pub mod diagnostics;
pub mod efficiency;
pub mod ending;
pub mod event;
pub mod export;
pub mod fault;
pub mod files;
pub mod finding;
pub mod gpus;
pub mod group;
pub mod hardware;
pub mod health;
pub mod hold;
pub mod ids;
pub mod inventory;
pub mod job;
pub mod ledger;
pub mod line;
pub mod loops;
pub mod machines;
pub mod maintenance;
pub mod modules;
pub mod moves;
pub mod node_list;
pub mod notification;
pub mod preset;
pub mod queue;
pub mod quota;
pub mod records;
pub mod reservation;
pub mod resources;
pub mod run;
pub mod session;
pub mod setting;
pub mod size;
pub mod slurm;
pub mod sweep;
pub mod time;
pub mod timeline;
pub mod token;
pub mod trained;
pub mod user;
pub mod window;

pub use announcement::Announcement;
pub use dataset::{Dataset, DatasetState};
pub use description::DescriptionChanges;
pub use fault::FieldError;
pub use finding::Finding;
pub use gpus::{DeviceAccess, DeviceNumber, Gpu, GpuDevice, GpuInventory, GpuWatch, NVIDIA};
pub use group::{Group, GroupName, Invitation};
pub use ids::{
    AnnouncementId, DatasetId, DiagnosticsId, GroupId, IdPart, JobId, LoginId, ModelId, ModelTestId, NotAnId,
    NotificationId, PresetId, RunId, SessionId, SweepId, TokenId, UserId, WebhookId,
};
pub use inventory::Inventory;
pub use job::Job;
pub use loops::Loops;
pub use machines::Machines;
pub use maintenance::Maintenance;
pub use preset::Preset;
pub use queue::{Queue, QueueId};
pub use reservation::Reservation;
pub use resources::{Capacity, Resources};
pub use run::Run;
pub use session::{EndReason, Outcome, Session, SessionState};
pub use slurm::{SlurmChoices, SlurmOptions};
pub use sweep::{Sweep, SweepState};
pub use time::{Clock, Timestamp};
pub use trained::{Model, ModelTest};
pub use user::{Role, User, Username};
pub use window::{Phase, Window};
