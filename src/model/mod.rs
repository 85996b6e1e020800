//! The words of the house as plain types: ids, time, people, resources, quotas, sessions.
//! Nothing here does I/O or knows how anything is stored, started or drawn; every rule in
//! this folder is a pure function that a table or a property can test.

pub mod ending;
pub mod fault;
pub mod files;
pub mod gpus;
pub mod group;
pub mod ids;
pub mod quota;
pub mod resources;
pub mod session;
pub mod setting;
pub mod size;
pub mod time;
pub mod timeline;
pub mod user;

pub use fault::FieldError;
pub use gpus::{DeviceAccess, DeviceNumber, Gpu, GpuDevice, GpuInventory, GpuWatch, NVIDIA};
pub use group::{Group, GroupName};
pub use ids::{GroupId, LoginId, SessionId, TokenId, UserId};
pub use resources::{Capacity, Resources};
pub use session::{EndReason, Session, SessionState};
pub use time::{Clock, Timestamp};
pub use user::{Role, User, Username};
