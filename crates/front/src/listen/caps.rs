//! How many connections there may be, in all and from one address. A place is held as long
//! as the socket is open, upgraded or not.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use parking_lot::Mutex;

use super::ExemptAddress;

/// Counts the open connections of one listener.
#[derive(Clone)]
pub struct Caps(Arc<Inner>);

struct Inner {
    total: usize,
    per_address: usize,
    exempt: ExemptAddress,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    total: usize,
    by_address: HashMap<IpAddr, usize>,
}

impl Caps {
    /// `exempt` addresses (a reverse proxy, loopback behind `ssh -L`) stand for many people
    /// and are bound by the total alone.
    pub fn new(total: usize, per_address: usize, exempt: ExemptAddress) -> Self {
        Self(Arc::new(Inner { total, per_address, exempt, open: Mutex::default() }))
    }

    /// A place for a connection from `address`, unless all are taken.
    pub fn take(&self, address: IpAddr) -> Option<ConnectionSlot> {
        let Inner { total, per_address, exempt, open } = &*self.0;
        let mut open = open.lock();
        if *total <= open.total {
            return None;
        }
        let address = (!exempt(address)).then(|| network(address));
        if let Some(address) = address {
            let count = open.by_address.entry(address).or_default();
            if *per_address <= *count {
                return None;
            }
            *count += 1;
        }
        open.total += 1;
        Some(ConnectionSlot { caps: self.clone(), address })
    }
}

/// One open connection's place; dropping it frees the place.
pub struct ConnectionSlot {
    caps: Caps,
    address: Option<IpAddr>,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut open = self.caps.0.open.lock();
        open.total -= 1;
        if let Some(address) = self.address
            && let Some(count) = open.by_address.get_mut(&address)
        {
            *count -= 1;
            if *count == 0 {
                open.by_address.remove(&address);
            }
        }
    }
}

/// Who an address is counted as: somebody with IPv6 has a whole /64 to come from.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_address_and_in_all() {
        let caps = Caps::new(4, 2, Arc::new(|address| address.is_loopback()));
        let (a, b): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "::ffff:10.0.0.1".parse().unwrap());
        let first = caps.take(a).unwrap();
        let _second = caps.take(b).unwrap();
        assert!(caps.take(a).is_none());
        drop(first);
        let _third = caps.take(a).unwrap();

        let (x, y): (IpAddr, IpAddr) = ("2001:db8::1".parse().unwrap(), "2001:db8::2:3".parse().unwrap());
        assert_eq!(network(x), network(y));
        let _fourth = caps.take(x).unwrap();
        let fifth = caps.take("127.0.0.1".parse().unwrap()).unwrap();
        assert!(caps.take("127.0.0.1".parse().unwrap()).is_none(), "the total binds everybody");
        drop(fifth);
        assert!(caps.take("127.0.0.1".parse().unwrap()).is_some());
    }
}
