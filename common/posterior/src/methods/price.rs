//! What the visits of an update cost, by this build's accountant.

use std::ops::Range;

use dp_pvi_accounting::{Composition, Prices, PrivacyLoss};
use dp_pvi_accounting::{Delta, DpEvent};

use super::{Setting, UpdateSpec};
use dp_pvi_models::spec::TaskError;

/// What these visits of one site are, in order: each event with the number of visits in a row that are it.
pub(crate) fn visit_events(update: &UpdateSpec, setting: &Setting<'_>, visits: Range<u32>) -> Result<Vec<(DpEvent, u64)>, TaskError> {
    let mut events: Vec<(DpEvent, u64)> = Vec::new();
    update.each_visit(setting, visits, |visit| {
        match events.last_mut() {
            Some((last, count)) if *last == visit.event => *count += 1,
            _ => events.push((visit.event, 1)),
        }
        Ok(())
    })?;
    Ok(events)
}

/// What the first `visits` visits of one site cost at prices of which some may be known, under their relation.
pub(crate) fn loss_at(
    update: &UpdateSpec,
    setting: &Setting<'_>,
    prices: &mut Prices,
    delta: Delta,
    visits: u32,
) -> Result<PrivacyLoss, TaskError> {
    let mut total = Composition::default();
    for (event, count) in visit_events(update, setting, 0..visits)? {
        let charge = prices.learn(&event)?;
        total.add(&charge, count);
    }
    Ok(total.loss(delta))
}

/// What all visits of one site cost under the guarantee that the setting states.
pub(crate) fn whole_loss(update: &UpdateSpec, setting: &Setting<'_>) -> Result<PrivacyLoss, TaskError> {
    let mut prices = Prices::new(setting.privacy.relation);
    loss_at(update, setting, &mut prices, setting.privacy.delta, setting.visits())
}
