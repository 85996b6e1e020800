//! What may be limited, how each of it is called and counted, and whose limits it can be.
//! The names are those of API, command line and database.

use std::borrow::Cow;

use serde::{Serialize, Serializer};

use crate::{size::human_size, time::human_duration};

/// One thing that can be limited.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Field {
    Gpus,
    /// GPUs of one model, beside the limit for all: `gpus:NVIDIA A100-SXM4-80GB`.
    GpusOf(String),
    Cpus,
    MemoryBytes,
    /// Running at once; light ones not counted.
    Sessions,
    Jobs,
    /// Waiting to be admitted at once.
    Pending,
    /// Light sessions running at once.
    Light,
    MaxSessionSeconds,
    MaxJobSeconds,
    MaxExtensions,
    ExtensionSeconds,
    IdleTimeoutSeconds,
    /// How long the GPUs of a session may do nothing.
    GpuIdleTimeoutSeconds,
    /// GPUs × hours in a period.
    GpuHours,
    /// Cores × hours in a period.
    CpuHours,
    /// Warned about, never enforced.
    StorageBytes,
}

/// How amounts of a field are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Count,
    Bytes,
    Seconds,
    Hours,
}

/// The longest name of a GPU model (bytes), as a request may ask for one.
const MAX_MODEL_LENGTH: usize = 64;

impl Field {
    /// All but those of single GPU models, of which there are as many as models.
    pub const ALL: [Self; 16] = [
        Self::Gpus,
        Self::Cpus,
        Self::MemoryBytes,
        Self::Sessions,
        Self::Jobs,
        Self::Pending,
        Self::Light,
        Self::MaxSessionSeconds,
        Self::MaxJobSeconds,
        Self::MaxExtensions,
        Self::ExtensionSeconds,
        Self::IdleTimeoutSeconds,
        Self::GpuIdleTimeoutSeconds,
        Self::GpuHours,
        Self::CpuHours,
        Self::StorageBytes,
    ];

    #[must_use]
    pub fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::GpusOf(model) => return Cow::Owned(format!("gpus:{model}")),
            Self::Gpus => "gpus",
            Self::Cpus => "cpus",
            Self::MemoryBytes => "memory_bytes",
            Self::Sessions => "sessions",
            Self::Jobs => "jobs",
            Self::Pending => "pending",
            Self::Light => "light",
            Self::MaxSessionSeconds => "max_session_seconds",
            Self::MaxJobSeconds => "max_job_seconds",
            Self::MaxExtensions => "max_extensions",
            Self::ExtensionSeconds => "extension_seconds",
            Self::IdleTimeoutSeconds => "idle_timeout_seconds",
            Self::GpuIdleTimeoutSeconds => "gpu_idle_timeout_seconds",
            Self::GpuHours => "gpu_hours",
            Self::CpuHours => "cpu_hours",
            Self::StorageBytes => "storage_bytes",
        })
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(model) = text.strip_prefix("gpus:") {
            let odd = model.is_empty() || model.len() > MAX_MODEL_LENGTH || model.contains(char::is_control);
            return (!odd && model.trim() == model).then(|| Self::GpusOf(model.to_owned()));
        }
        Self::ALL.into_iter().find(|field| field.name() == text)
    }

    /// Returns the field's word in the code of a reason, shorter where only one thing can be meant.
    pub(super) fn code_word(&self) -> Cow<'static, str> {
        match self {
            Self::MemoryBytes => Cow::Borrowed("memory"),
            Self::MaxSessionSeconds => Cow::Borrowed("duration"),
            Self::GpusOf(_) => Cow::Borrowed("gpus"),
            other => other.name(),
        }
    }

    pub(super) fn of_code_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.code_word() == word)
    }

    /// Whether a group or the cluster can have one limit of it for all together.
    #[must_use]
    pub fn has_total(&self) -> bool {
        matches!(
            self,
            Self::Gpus
                | Self::GpusOf(_)
                | Self::Cpus
                | Self::MemoryBytes
                | Self::Sessions
                | Self::Jobs
                | Self::GpuHours
                | Self::CpuHours
        )
    }

    /// Whether Slurm has such a limit too: where it keeps the limits, these are its own.
    #[must_use]
    pub fn is_slurms(&self) -> bool {
        let counts_hours = matches!(self, Self::GpuHours | Self::CpuHours);
        self.has_total() && !counts_hours || matches!(self, Self::MaxSessionSeconds | Self::MaxJobSeconds)
    }

    /// Whether so much of it can be in use; how long something may take cannot.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.unit() != Unit::Seconds && *self != Self::MaxExtensions
    }

    #[must_use]
    pub fn unit(&self) -> Unit {
        match self {
            Self::MemoryBytes | Self::StorageBytes => Unit::Bytes,
            Self::MaxSessionSeconds
            | Self::MaxJobSeconds
            | Self::ExtensionSeconds
            | Self::IdleTimeoutSeconds
            | Self::GpuIdleTimeoutSeconds => Unit::Seconds,
            Self::GpuHours | Self::CpuHours => Unit::Hours,
            _ => Unit::Count,
        }
    }

    /// The amount with its unit: `2 GPUs`, `1 core`, `48 GiB`, `8 h`, `2 × A100`, `40 GPU-hours`.
    #[must_use]
    pub fn amount(&self, value: i64) -> String {
        match (self, self.unit()) {
            (Self::GpusOf(model), _) => format!("{value} × {model}"),
            (_, Unit::Bytes) => human_size(value),
            (_, Unit::Seconds) => human_duration(value),
            _ if value == 1 => format!("1 {}", self.singular()),
            _ => format!("{value} {}", self.plural()),
        }
    }

    /// The amount without its unit where a count needs none.
    #[must_use]
    pub fn number(&self, value: i64) -> String {
        if self.unit() == Unit::Bytes { human_size(value) } else { value.to_string() }
    }

    #[must_use]
    pub fn plural(&self) -> &str {
        match self {
            Self::Gpus => "GPUs",
            Self::GpusOf(model) => model,
            Self::Cpus => "cores",
            Self::MemoryBytes => "memory",
            Self::Jobs => "jobs",
            Self::Light => "light sessions",
            Self::MaxExtensions => "extensions",
            Self::GpuHours => "GPU-hours",
            Self::CpuHours => "core-hours",
            Self::StorageBytes => "storage",
            _ => "sessions",
        }
    }

    fn singular(&self) -> &'static str {
        match self {
            Self::Gpus => "GPU",
            Self::Cpus => "core",
            Self::Jobs => "job",
            Self::Light => "light session",
            Self::MaxExtensions => "extension",
            Self::GpuHours => "GPU-hour",
            Self::CpuHours => "core-hour",
            _ => "session",
        }
    }
}

impl Serialize for Field {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for field in Field::ALL.into_iter().chain([Field::GpusOf("NVIDIA H100: 80 GB".to_owned())]) {
            assert_eq!(Field::parse(&field.name()), Some(field));
        }
        for name in ["", "gpu", "GPUS", "gpus:", "gpus: A", "gpus:\n", "kind", "value"] {
            assert_eq!(Field::parse(name), None, "{name:?}");
        }
        assert_eq!(Field::parse(&format!("gpus:{}", "x".repeat(65))), None);
    }

    #[test]
    fn amounts_are_read_by_people() {
        assert_eq!(Field::Gpus.amount(1), "1 GPU");
        assert_eq!(Field::GpusOf("A100".to_owned()).amount(2), "2 × A100");
        assert_eq!(Field::MemoryBytes.amount(48 << 30), "48 GiB");
        assert_eq!(Field::MaxSessionSeconds.amount(28_800), "8 h");
        assert_eq!(Field::GpuHours.amount(40), "40 GPU-hours");
    }
}
