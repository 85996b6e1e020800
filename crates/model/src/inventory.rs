//! What there is in all, of a machine or of a cluster: for decisions, bars and forms. Whoever starts
//! workloads knows it, and a cluster may grow while the portal runs.

use std::sync::Arc;

use parking_lot::RwLock;

use super::{Capacity, GpuInventory};

/// Cores, memory and GPUs. A copy is another handle on the same.
#[derive(Clone, Debug)]
pub struct Inventory(Arc<RwLock<(Capacity, Arc<GpuInventory>)>>);

impl Inventory {
    #[must_use]
    pub fn new(capacity: Capacity, inventory: GpuInventory) -> Self {
        Self(Arc::new(RwLock::new((capacity, Arc::new(inventory)))))
    }

    #[must_use]
    pub fn capacity(&self) -> Capacity {
        self.0.read().0
    }

    #[must_use]
    pub fn inventory(&self) -> Arc<GpuInventory> {
        Arc::clone(&self.0.read().1)
    }

    /// Exchanges both; whether it is something else.
    pub fn set(&self, capacity: Capacity, inventory: GpuInventory) -> bool {
        let mut known = self.0.write();
        let changed = (known.0, &*known.1) != (capacity, &inventory);
        *known = (capacity, Arc::new(inventory));
        changed
    }
}
