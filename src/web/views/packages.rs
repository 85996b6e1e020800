//! `/settings/packages`: what the viewer installed over the shared environments.

use askama::Template;

use crate::{
    model::size::human_size,
    protocol::Package,
    sessions::OwnPackages,
    web::page::{Layout, filters},
};

/// One's own packages.
#[derive(Debug, Template)]
#[template(path = "packages.html")]
pub struct Packages {
    pub layout: Layout,
    /// What a form did.
    pub notice: Option<String>,
    /// Why nobody could look.
    pub trouble: Option<String>,
    pub overlays: Vec<OverlayPanel>,
}

/// What was installed over one environment.
#[derive(Clone, Debug)]
pub struct OverlayPanel {
    pub name: String,
    pub environment: String,
    pub python_version: String,
    pub is_current: bool,
    /// `12 MiB`, `more than 3 GiB`
    pub size: String,
    pub count: usize,
    pub packages: Vec<Package>,
    /// Sessions that run in it: id and name.
    pub used_by: Vec<(String, String)>,
}

impl From<OwnPackages> for OverlayPanel {
    fn from(own: OwnPackages) -> Self {
        let OwnPackages { overlay, is_current, used_by } = own;
        let size = human_size(i64::try_from(overlay.bytes).unwrap_or(i64::MAX));
        Self {
            name: overlay.name,
            environment: overlay.environment,
            python_version: overlay.python_version,
            is_current,
            size: if overlay.counted { size } else { format!("more than {size}") },
            count: overlay.count,
            packages: overlay.packages,
            used_by: used_by.into_iter().map(|(id, name)| (id.to_string(), name)).collect(),
        }
    }
}

impl OverlayPanel {
    /// What is asked before everything is removed.
    pub fn question(&self) -> String {
        let packages = if self.count == 1 { "package" } else { "packages" };
        let question = format!(
            "Remove all packages that you installed on top of ‘{}’ ({} {packages}, {})? The shared environment is not \
             changed.",
            self.environment, self.count, self.size
        );
        if self.used_by.is_empty() {
            return question;
        }
        let names: Vec<&str> = self.used_by.iter().map(|(_, name)| name.as_str()).collect();
        format!("{question} These sessions use them: {}. Restart their kernels afterwards.", names.join(", "))
    }

    /// How many are not listed.
    pub fn more(&self) -> usize {
        self.count.saturating_sub(self.packages.len())
    }
}
