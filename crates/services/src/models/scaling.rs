//! What more devices bring: trainings of the same network on the same dataset, with as many
//! pictures a device in the same precision, told apart by how many devices shared a batch.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Models, Result, artifacts::MAX_INDEX_LENGTH};
use lyceum_model::{Model, ModelId, User, trained::Speed};

use crate::sessions::Actor;

/// How many trainings are looked at, the latest first.
const LATEST: i64 = 200;
/// The longest name of a device.
const MAX_NAME_LENGTH: usize = 100;

/// Throughput of similar trainings by number of devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, utoipa::ToSchema)]
#[schema(as = ModelScaling)]
pub struct Scaling {
    /// Name of the device.
    pub device: String,
    pub batch_per_device: u32,
    pub precision: String,
    /// The latest training for each number of devices, the fewest first. Empty if there is only one number of devices.
    pub rows: Vec<Scaled>,
}

#[derive(Clone, Debug, PartialEq, Serialize, utoipa::ToSchema)]
#[schema(as = ModelScaled)]
pub struct Scaled {
    pub devices: u32,
    pub images_per_second: f64,
    /// Throughput of each device, as a fraction of the throughput of each device in the training with the fewest
    /// devices.
    pub efficiency: f64,
    /// The model of this training.
    #[schema(value_type = String, format = "uuid")]
    pub model: ModelId,
    pub name: String,
}

impl Models {
    /// How trainings like this model's went on other numbers of devices, as far as they are shown to whoever asks.
    pub async fn scaling(&self, actor: Actor<'_>, model: &Model) -> Result<Scaling> {
        let (Some(speed), Some(dataset)) = (&model.speed, model.dataset) else { return Ok(Scaling::default()) };
        // Only a name says that two networks are the same.
        if !super::networks(&model.kind).contains(&model.network.as_str()) {
            return Ok(Scaling::default());
        }
        let others = self.db.list_speeds(actor.user.id, dataset, Some(&model.network), LATEST).await?;
        let known = others.into_iter().filter_map(|one| Some((one.id, one.name, one.speed?)));
        // This one stands for its own number of devices, whatever came later.
        let own = (model.id, model.name.clone(), speed.clone());
        Ok(compared(speed, std::iter::once(own).chain(known)))
    }

    /// As the trainer noted it; nothing of what cannot be so.
    pub(super) async fn speed(&self, user: &User, model: &Model) -> Result<Option<Speed>> {
        let found = self.read(user, model, "speed.json", MAX_INDEX_LENGTH).await?;
        Ok(found.and_then(|bytes| speed(&bytes)))
    }
}

fn speed(bytes: &[u8]) -> Option<Speed> {
    let mut found: Speed = serde_json::from_slice(bytes).ok()?;
    for name in [&mut found.device, &mut found.precision] {
        name.retain(|letter| !letter.is_control());
        name.truncate(name.floor_char_boundary(MAX_NAME_LENGTH));
    }
    let can_be = found.devices > 0 && found.images_per_second.is_finite() && found.images_per_second > 0.0;
    can_be.then_some(found)
}

/// The first of each number of devices that is like this one but for that.
fn compared(like: &Speed, known: impl Iterator<Item = (ModelId, String, Speed)>) -> Scaling {
    let share = |speed: &Speed| speed.batch_size / speed.devices.max(1);
    let is_like =
        |speed: &Speed| (share(speed), &speed.device, &speed.precision) == (share(like), &like.device, &like.precision);
    let mut by_count = BTreeMap::new();
    for (model, name, speed) in known.filter(|(_, _, speed)| is_like(speed)) {
        by_count.entry(speed.devices).or_insert((model, name, speed.images_per_second));
    }
    let each = |(devices, (_, _, rate)): (&u32, &(ModelId, String, f64))| rate / f64::from(*devices);
    let alone = by_count.first_key_value().map(each).unwrap_or_default();
    let mut rows: Vec<Scaled> = by_count
        .into_iter()
        .map(|(devices, (model, name, images_per_second))| Scaled {
            devices,
            images_per_second,
            efficiency: images_per_second / f64::from(devices) / alone,
            model,
            name,
        })
        .collect();
    if rows.len() < 2 {
        rows.clear();
    }
    Scaling { device: like.device.clone(), batch_per_device: share(like), precision: like.precision.clone(), rows }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(devices: u32, batch_size: u32, images_per_second: f64) -> Speed {
        let (device, precision) = ("H100".to_owned(), "float32".to_owned());
        Speed { devices, device, batch_size, precision, images_per_second }
    }

    fn known(speeds: &[Speed]) -> impl Iterator<Item = (ModelId, String, Speed)> {
        speeds.iter().map(|speed| (ModelId::new(), speed.images_per_second.to_string(), speed.clone()))
    }

    #[test]
    fn efficiency_is_against_the_fewest_devices() {
        let speeds = [at(2, 64, 1800.0), at(1, 32, 1000.0), at(2, 64, 1.0), at(4, 128, 3000.0), at(4, 64, 9.0)];
        let found = compared(&speeds[0], known(&speeds));
        let rows: Vec<_> = found.rows.iter().map(|row| (row.devices, row.images_per_second, row.efficiency)).collect();
        assert_eq!(rows, [(1, 1000.0, 1.0), (2, 1800.0, 0.9), (4, 3000.0, 0.75)]);
        assert_eq!(found.batch_per_device, 32);
    }

    #[test]
    fn what_is_not_alike_is_not_compared() {
        let one = at(1, 32, 1000.0);
        let others = [
            one.clone(),
            at(2, 32, 2000.0),
            Speed { device: "cpu".to_owned(), ..at(2, 64, 2.0) },
            Speed { precision: "mixed_float16".to_owned(), ..at(2, 64, 2.0) },
        ];
        assert!(compared(&one, known(&others)).rows.is_empty());
    }

    #[test]
    fn a_speed_that_cannot_be_is_none() {
        let text = |devices: i64, rate: f64| {
            serde_json::json!({ "devices": devices, "device": "a\nb", "batch_size": 8, "precision": "float32",
                "images_per_second": rate, "new": 1 })
            .to_string()
        };
        assert_eq!(speed(text(2, 5.0).as_bytes()).unwrap().device, "ab");
        for bad in [text(0, 5.0), text(-1, 5.0), text(1, 0.0), text(1, -1.0), "{}".to_owned()] {
            assert_eq!(speed(bad.as_bytes()), None, "{bad}");
        }
    }
}
